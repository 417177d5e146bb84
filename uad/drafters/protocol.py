"""The one protocol of all drafters: begin, propose, observe, end. Values only; knows no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from uad.types import Commit, Draft


@dataclass(frozen=True, slots=True)
class Ask:
    """How far one sequence may draft in this round, in target ids. n_max 0 asks for no draft but lets the drafter catch up."""

    seq: int
    n_max: int
    n_min: int = 0
    p_min: float = 0.0


class Drafter(Protocol):
    """Guesses for several sequences at once. Sequences are slot numbers."""

    def begin(self, seq: int, prompt: Sequence[int]) -> None:
        """A sequence starts (again) with this prompt of target ids; what fits of earlier state is reused."""

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """One draft per ask, in order. May be empty; never longer than n_max."""
        ...

    def observe(self, commit: Commit) -> None:
        """These ids are now part of the sequence."""

    def end(self, seq: int) -> None:
        """The sequence is over; state may be kept for the next one in this slot."""
