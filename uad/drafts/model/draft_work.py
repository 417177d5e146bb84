"""The draft model's state between rounds and within one, and how its beliefs pass to the target's ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from uad.base.common.arrays import Floats
from uad.base.common.sequences import common_prefix
from uad.base.types import Ask
from uad.drafts.model.choosing import Chooser
from uad.drafts.model.heal import Healer
from uad.drafts.model.mirror import Mirror
from uad.drafts.model.recall import Recall
from uad.text.mapping.rules import RuleStream
from uad.text.vocab.encode import Encoder, Meter

TAIL_IDS = 48
"""How many of the target's last ids decide how a draft's bytes are cut."""
STEPS_PER_ID = 8
"""Ids of its own that the draft may write for each that is asked for."""


class NoPace:
    """Drafts as far as the ask allows."""

    def wrote(self, seq: int, p: float) -> None: ...

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        return [True] * len(seqs)

    def stepped(self, n_seq: int, seconds: float) -> None: ...


@dataclass(slots=True)
class DraftedSequence:
    """One sequence between rounds."""

    mirror: Mirror
    stream: RuleStream
    tail: deque[int]
    """The sequence's last target ids."""
    meter: Meter
    chooser: Chooser
    recall: Recall
    earlier: list[int] = field(default_factory=list)
    """The ids of the slot's former text, of which the KV still holds those from `earlier_skip` on."""
    earlier_skip: int = 0
    n_in_kv: int = 0
    """How many positions the KV holds."""
    is_cut: bool = False
    """Whether the context was full once."""

    @property
    def held(self) -> tuple[list[int], int]:
        """The ids of the text that the KV is of, up to its end there, and how many of them lie before its window."""
        if self.earlier:
            return self.earlier, self.earlier_skip
        return self.mirror.ids[: self.mirror.n_kv], self.mirror.skip

    def catch_up(self, backlog: list[int]) -> None:
        """These ids were committed; the mirror has seen all before them."""
        if not backlog:
            return
        self.chooser.observe(backlog)
        self.tail.extend(backlog[-TAIL_IDS:])
        self.mirror.extend(self.stream.feed(backlog), self.stream.pending)
        if self.earlier:
            self.mirror.sync()
            n = common_prefix(self.earlier, self.mirror.ids)
            if n > self.earlier_skip:
                self.mirror.skip, self.mirror.n_kv = self.earlier_skip, n
            self.earlier = []


@dataclass(slots=True)
class DraftWork:
    """One ask while a round drafts for it."""

    ask: Ask
    sequence: DraftedSequence
    n_left_over: int = 0
    """Guessed bytes of an earlier round."""
    n_left_guesses: int = 0
    first_choice: int = 0
    """The first id that is chosen again."""
    rest: bytes = b""
    """Committed bytes that the next ids must agree with."""
    row: Floats | None = None
    """The next id's logits."""
    edge_p: float = 1.0
    """How sure the draft is that a token ends at the edge, which the next id inherits."""
    healed: bool = False
    n_steps: int = 0
    n_counted: int = 0
    """Guessed bytes, up to a safe boundary, of which it is known that they are `n_counted_ids` of the target."""
    n_counted_ids: int = 0
    n_read: int = 0
    closing: tuple[int, ...] = ()
    closing_p: float = 0.0

    def narrow(self, healer: Healer) -> None:
        """Only ids from which a single token could go on through all the rest are worth choosing again."""
        mirror = self.sequence.mirror
        while self.first_choice < len(mirror.ids):
            self.rest = mirror.bytes_from(mirror.begin(self.first_choice))
            if len(healer.covering(self.rest)):
                return
            self.first_choice += 1
        self.rest = b""

    def is_long_enough(self, target: Encoder) -> bool:
        """Whether the guessed bytes are as many target ids as were asked for.

        Words that are complete are encoded once, the one that is being written only where that may decide: of the
        guess " the quick bro" with 12 ids asked, " bro" is 4 at most, so that 2 + 4 ids are too few in any case.
        """
        mirror, n_max = self.sequence.mirror, self.ask.n_max
        ahead = mirror.ahead(mirror.edge)
        if len(ahead) < n_max:
            return False
        cut = target.boundaries.last(ahead, len(ahead) - 1, self.n_counted)
        if cut > self.n_counted:
            self.n_counted_ids += len(target.encode(ahead[self.n_counted : cut]))
            self.n_counted = cut
        n, rest = self.n_counted_ids, ahead[cut:]
        return n >= n_max or (n + len(rest) >= n_max and n + len(target.encode(rest)) >= n_max)


def shared_out(guesses: list[tuple[int, float]], lengths: list[int], edge: int) -> tuple[list[float], list[int]]:
    """Probabilities of the draft's ids, handed to the target ids in which they begin; and where, from the edge, each
    target id ends.

    The draft guesses " qu" with 0.9, "ick" with 0.8, " fox" with 0.5; the target's ids are " quick", " fo", "x". They
    get 0.9 * 0.8, 0.5, and 1: in "x" no id of the draft begins, it is as likely as what it is a part of.
    """
    p: list[float] = []
    ends: list[int] = []
    at, k = 0, 0
    for length in lengths:
        at += length
        product = 1.0
        while k < len(guesses) and guesses[k][0] - edge < at:
            product *= guesses[k][1]
            k += 1
        p.append(product)
        ends.append(at)
    return p, ends


def with_trust(p: Sequence[float], trust: Sequence[float]) -> list[float]:
    """p with the probability worked in that the target cuts there, given that it cut as predicted before. Doubtful ids
    at the end cost a row each and nothing after them, so they are offered; a policy may think otherwise.
    """
    before = [1.0, *trust]
    return [belief * sure / last if last else 0.0 for belief, sure, last in zip(p, trust, before, strict=False)]
