"""How often ids of some belief were right, known in hindsight. Arithmetic only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

_N_BINS: Final = 24


class Hindsight:
    """From a belief to the share of such ids that were right, in bins of about equally many, counted with one that was
    half right.

    judged: of each id what was believed, and whether it was right.
    """

    def __init__(self, judged: Iterable[tuple[float, bool]]) -> None:
        ordered = sorted(judged)
        size = max(-(-len(ordered) // _N_BINS), 1)
        bins: list[list[tuple[float, bool]]] = []
        for belief, right in ordered:
            if not bins or (len(bins[-1]) >= size and belief > bins[-1][-1][0]):  # equal ones stay together
                bins.append([])
            bins[-1].append((belief, right))
        bins = bins or [[(0.0, False)]]
        self._starts = [one[0][0] for one in bins]
        self._shares = [(sum(right for _, right in one) + 0.5) / (len(one) + 1) for one in bins]

    def share(self, belief: float) -> float:
        """Of the bin in which this belief lies."""
        return self._shares[max(bisect_right(self._starts, belief) - 1, 0)]
