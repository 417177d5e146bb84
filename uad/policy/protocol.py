"""What the loop asks a policy, and what it reports to it. Counts are target ids. Values and protocols only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from uad.types import Ask, Commit, Draft, Origin, SpeculativeParams

_GRAMMAR: Final = Origin.GRAMMAR  # members of an enum are slow to reach
_PREDICTION: Final = Origin.PREDICTION


@dataclass(frozen=True, slots=True)
class Wish:
    """One sequence in this round, which writes.

    params: what its request asks for. room: how many ids may be drafted at most (0: it writes without drafts). depth:
    how many positions are in its KV. n_left: how many ids the answer may still have. n_pending: ids that its KV lacks,
    which this round decodes in any case; more than one where the memory could not stop where the last draft went wrong.
    is_forced: whether a constraint says how it goes on, surely or probably; only then the grammar's drafter is asked.
    is_predicted: whether the request has a prediction; only then the drafter of those is asked.
    """

    seq: int
    params: SpeculativeParams
    room: int
    depth: int = 0
    n_left: int = 1 << 30
    n_pending: int = 1
    is_forced: bool = False
    is_predicted: bool = False

    def may_ask(self, origin: Origin) -> bool:
        """Whether its request lets this drafter draft, and has what that drafts from."""
        if (origin is _GRAMMAR and not self.is_forced) or (origin is _PREDICTION and not self.is_predicted):
            return False
        types = self.params.types
        return not types or origin in types


class Chosen(NamedTuple):
    """What one sequence submits: a draft, cut to the length that is worth it, and how many rows its part of the batch
    should have (dummies fill up). A batch of equal parts is one pass over the weights.
    """

    draft: Draft
    n_rows: int = 0


class Round(Protocol):
    """One round of decisions. Also the `Pace` that drafters ask while they draft."""

    def asks(self, origin: Origin) -> Sequence[Ask]:
        """What to ask this drafter, one Ask per sequence; called once per drafter, those without a model first. Empty:
        leave it alone.
        """
        ...

    def proposed(self, origin: Origin, drafts: Sequence[Draft], seconds: float) -> None:
        """What that drafter answered, in the order of its asks, and how long it took in all."""

    def choose(self) -> Mapping[int, Chosen]:
        """What each sequence submits; those that are missing write one id."""
        ...

    def wrote(self, seq: int, p: float) -> None:
        """See `drafters.protocol.Pace`."""

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        """See `drafters.protocol.Pace`."""
        ...

    def stepped(self, n_seq: int, seconds: float) -> None:
        """See `drafters.protocol.Pace`."""


class Worth(NamedTuple):
    """What asking a drafter saves in a round, and what that costs, in plain decodes."""

    saves: float
    costs: float


@dataclass(frozen=True, slots=True)
class PolicyView:
    """What a policy knows, for display. curve[k]: milliseconds of a pass of k + 1 rows; plain: (depth,
    milliseconds of a single row).
    """

    curve: tuple[float, ...] = ()
    plain: tuple[tuple[int, float], ...] = ()
    worth: Mapping[Origin, Worth] = field(default_factory=dict)


class Policy(Protocol):
    """Decides for all sequences at once, since they share one batch."""

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        """A new text starts in this sequence, after a prompt of so many ids, and is sampled at this temperature.
        n_cached of the prompt's ids are those of the text that ran here before.
        """

    def plan(self, wishes: Sequence[Wish]) -> Round | None:
        """The decisions of this round; None where nothing is to be drafted."""
        ...

    def decoded(self, passes: Sequence[tuple[int, int]], depth: int, seconds: float) -> None:
        """A decode of these passes (sequences, rows of each), `depth` positions after them on average, took this
        long.
        """

    def plain_round(self, seconds: float) -> None:
        """A round without drafts took this long beside its decode."""

    def committed(self, commit: Commit) -> None:
        """These ids became part of a sequence, drafted or not."""

    def end(self, seq: int) -> None:
        """The text is over."""

    def view(self, depth: int) -> PolicyView:
        """What it knows of costs after so many positions. Changes no decision."""
        ...
