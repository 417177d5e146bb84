"""One sequence in a round of the automatic policy: what it costs, what drafters proposed for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from uad.policy.calibration import Calibration
from uad.policy.gains import Candidate
from uad.policy.machine import RoundTable
from uad.policy.protocol import Wish
from uad.policy.sequences import SequenceState
from uad.types import Origin

# share of a looked-up guess that is expected to be accepted, from which it spares asking the draft model
_SURE: Final = 0.8
_GRAMMAR: Final = Origin.GRAMMAR  # members of an enum are slow to reach


@dataclass(slots=True)
class Member:
    """A sequence that may draft in this round. `table` has the costs of its group of `size` sequences, which share
    passes. While a drafter writes: its calibration, the bins of its beliefs, and the probability that all its ids so
    far are accepted.
    """

    wish: Wish
    state: SequenceState
    table: RoundTable
    size: int
    calibration: Calibration
    p: float = 1.0
    bins: list[int] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)

    def begin(self, calibration: Calibration) -> None:
        """A drafter begins to write for this sequence."""
        self.calibration, self.p, self.bins = calibration, 1.0, []

    @property
    def plain_ms(self) -> float:
        """This sequence's share of a round without drafts."""
        return self.table.upto(1)[1] / self.size

    @property
    def longest(self) -> int:
        """Ids that it may draft."""
        return min(self.wish.params.longest, self.wish.room)

    @property
    def is_sure(self) -> bool:
        """Whether a guess was found that is worth submitting, and expected to be accepted nearly whole. What a grammar
        forces says nothing of what comes after it.
        """
        return any(one.sure >= _SURE and one.value > 0 for one in self.candidates if one.origin is not _GRAMMAR)
