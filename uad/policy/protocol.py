"""What the loop asks a policy, and what it is told. Counts are target ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from uad.types import SpeculativeParams


@dataclass(frozen=True, slots=True)
class Wish:
    """One sequence in this round: what its request asks for, and how many ids may follow at most (0 while it reads its prompt)."""

    seq: int
    params: SpeculativeParams
    room: int


@dataclass(frozen=True, slots=True)
class Budget:
    """How far one sequence may draft. n_max 0: not at all."""

    n_max: int
    n_min: int
    p_min: float


class Policy(Protocol):
    """Decides for all sequences at once, since they share one batch."""

    def budgets(self, wishes: Sequence[Wish]) -> list[Budget]:
        """One budget per wish, in order; never more than its room or its n_max."""
        ...
