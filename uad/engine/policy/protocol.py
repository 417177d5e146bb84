"""The loop's questions to a policy, and its reports. Counts are target ids. Values and protocols only.

A round goes like this:

    if not policy.plan(wishes):               # 0: the policy wants to be asked
        for drafter in drafters:              # those without a model first
            asks = policy.asks(drafter.origin)
            if asks:
                drafts = ...                  # while it drafts, it asks `policy.more` before each of its decodes
                policy.observe(Drafted(drafter.origin, drafts, seconds))
        chosen = policy.choose()
    ...                                       # decode and verify
    policy.observe(Decoded(...))
    policy.observe(Commit(...))               # for each sequence that writes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from uad.base.types import Ask, Commit, Draft, Origin, SpeculativeParams


@dataclass(frozen=True, slots=True)
class Wish:
    """One sequence that writes in this round."""

    seq: int
    params: SpeculativeParams
    """The parameters that its request asks for."""
    room: int
    """How many ids may be drafted at most; 0: it writes without drafts."""
    depth: int = 0
    """Positions in its KV."""
    n_left: int = 1 << 30
    """Ids that the answer may still have."""
    n_pending: int = 1
    """Ids that its KV lacks, which this round decodes in any case. They are more than one where the memory could not
    stop where the last draft went wrong.
    """
    is_forced: bool = False
    """Whether a constraint says how it goes on, surely or probably; only then the grammar's drafter is asked."""
    is_predicted: bool = False
    """Whether the request has a prediction; only then the drafter of those is asked."""

    def may_ask(self, origin: Origin) -> bool:
        """Whether its request lets this drafter draft, and has what that drafts from."""
        if (origin is Origin.GRAMMAR and not self.is_forced) or (origin is Origin.PREDICTION and not self.is_predicted):
            return False
        types = self.params.types
        return not types or origin in types


class Chosen(NamedTuple):
    """The draft that one sequence submits."""

    draft: Draft
    """Cut to the length that is worth it."""
    n_rows: int = 0
    """How many rows its part of the batch should have; dummies fill up. A batch of equal parts is one pass over the
    weights.
    """


class Drafted(NamedTuple):
    """A drafter answered what `Policy.asks` said. Of a call that failed nothing is reported."""

    origin: Origin
    drafts: Sequence[Draft]
    """In the order of its asks."""
    seconds: float
    """Seconds of the whole call."""


class Decoded(NamedTuple):
    """The time one round took. Several similar plain rounds may be reported as one, with the means of their times."""

    passes: Sequence[tuple[int, int]]
    """The decode's passes: sequences, and rows of each."""
    depth: int
    """Positions after which it was, on average over its sequences."""
    seconds: float
    """Seconds of the decode alone."""
    asking: float = 0.0
    """Seconds in which policy and drafters were asked beforehand, all in all; 0: they were not."""


class Ended(NamedTuple):
    """The text of this sequence is over."""

    seq: int


class Restored(NamedTuple):
    """A text came back into a sequence in which nothing runs; n_held: how many of its ids each drafter that writes has
    read.
    """

    seq: int
    n_held: Mapping[Origin, int]


Seen = Drafted | Decoded | Commit | Ended | Restored
"""Reports to a policy. A `Commit` says that ids became part of a sequence, drafted or not."""


class Worth(NamedTuple):
    """The savings from asking a drafter in a round, and the cost of that, in plain decodes."""

    saves: float
    costs: float


@dataclass(frozen=True, slots=True)
class PolicyView:
    """A policy's knowledge, for display."""

    curve: tuple[float, ...] = ()
    """By k: milliseconds of a pass of k + 1 rows."""
    plain: tuple[tuple[int, float], ...] = ()
    """Depths, and milliseconds of a single row there."""
    worth: Mapping[Origin, Worth] = field(default_factory=dict)


class Policy(Protocol):
    """Decides for all sequences at once, since they share one batch."""

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        """A new text starts in this sequence, after a prompt of n_prompt ids, and is sampled at this temperature.
        n_cached of the prompt's ids are those of the text that ran here before.
        """

    def plan(self, wishes: Sequence[Wish]) -> int:
        """How many ids each sequence may write plainly before the policy wants to be asked again. 0: it wants to be
        asked in this round.

        The answer holds while the same sequences write, and no constraint says how one of them goes on. Nothing need
        be asked meanwhile; what is decoded and committed may be reported at its end.
        """
        ...

    def asks(self, origin: Origin) -> Sequence[Ask]:
        """The asks for this drafter, one per sequence; called once per drafter, those without a model first. Empty:
        leave it alone.
        """
        ...

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]] = (), steps: Sequence[tuple[int, float]] = ()
    ) -> Sequence[bool]:
        """Called while a drafter writes: whether each of these sequences should write a further id. Once it is done it
        is called without any.

        wrote: ids that were written since the last call: the sequence, and the id's probability given that all before
        it are right. steps: draft decodes since then: the number of sequences, each with one id, and the seconds taken.
        """
        ...

    def choose(self) -> Mapping[int, Chosen]:
        """The choice for each sequence; those that are missing write one id."""
        ...

    def observe(self, seen: Seen) -> None:
        """Learns from what happened."""

    def view(self, depth: int) -> PolicyView:
        """The policy's knowledge of costs after `depth` positions. Changes no decision."""
        ...
