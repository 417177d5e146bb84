"""Fixed control, as llama-server's: the request's n_max, n_min and p_min, whatever they cost."""

from __future__ import annotations

from collections.abc import Sequence

from uad.policy.protocol import Budget, Wish


class FixedPolicy:
    """Every sequence drafts as far as it asks."""

    def budgets(self, wishes: Sequence[Wish]) -> list[Budget]:
        return [Budget(max(min(wish.params.n_max, wish.room), 0), wish.params.n_min, wish.params.p_min) for wish in wishes]
