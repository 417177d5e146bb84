"""The sequences of a round that may draft, and the guesses for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from uad.base.types import Ask, Draft, Origin
from uad.engine.policy.calibration import Calibration
from uad.engine.policy.drafter import UNKNOWN_READ
from uad.engine.policy.knowledge import SequenceState
from uad.engine.policy.machine import CostTable
from uad.engine.policy.protocol import Wish


class Candidate(NamedTuple):
    """A drafter's guess for one sequence."""

    origin: Origin
    draft: Draft
    gains: list[float]
    """Ids expected to be accepted of the first k, by k."""
    price: float
    """What asking for one takes on average, in plain decodes."""
    saved_ms: float
    """Milliseconds that it is expected to save at its best length, before its price."""
    is_sure: bool
    """Whether that is more than asking for it took, and it is expected to be accepted nearly whole."""


@dataclass(slots=True)
class Fixed:
    """A sequence in this round that drafts as its request says."""

    wish: Wish
    guess: Draft = field(default_factory=Draft)
    """What the first drafter with a guess wrote."""
    forced: Draft = field(default_factory=Draft)
    """What a grammar forces."""

    def ask(self, writes: bool) -> Ask:
        """What it says; nothing but reading where that is no draft. What looks texts up has sizes of its own."""
        wish, params = self.wish, self.wish.params
        if params.longest <= 0:
            return Ask(wish.seq, 0, n_read=UNKNOWN_READ)
        if not writes:
            return Ask(wish.seq, wish.room)
        return Ask(wish.seq, min(params.longest, wish.room), params.n_min, params.p_min, UNKNOWN_READ)


@dataclass(slots=True)
class Automatic:
    """A sequence in this round that drafts as far as it pays."""

    wish: Wish
    state: SequenceState
    longest: int
    """Ids that a drafter may write for it."""
    table: CostTable
    """Costs of its group, which shares passes."""
    size: int
    """Sequences in its group."""
    plain_ms: float
    """The sequence's share of a round without drafts."""
    candidates: list[Candidate] = field(default_factory=list)
    calibration: Calibration = field(default_factory=Calibration)
    """The calibration of the drafter that writes for it now."""
    bins: list[int] = field(default_factory=list)
    """Bins of the beliefs that it wrote so far."""
    p: float = 1.0
    """The probability that all of these are accepted."""

    @property
    def is_sure(self) -> bool:
        """Whether there is a sure guess. What a grammar forces says nothing of what comes after it."""
        return any(member.is_sure and member.origin is not Origin.GRAMMAR for member in self.candidates)
