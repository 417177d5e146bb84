"""What a decode costs: T(rows, depth), from measured samples, followed online. Arithmetic only: no clock, no model.

A curve is kept as it was measured, steps and all; between measured points it is interpolated. Two things follow the machine: one factor
for all sizes (a neighbour slows everything down alike, and then no decision changes), quickly; and each size on its own, slowly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_SPEED_RATE = 0.15  # of the common factor, per decode
_SHAPE_RATE = 0.04  # of one size's own cost, per decode
_MOST_PER_STEP = 1.5  # an outlier counts as no more than this much too slow (or too fast)


@dataclass(frozen=True, slots=True)
class CostSample:
    """One measured decode: n rows in one pass behind `depth` positions took ms milliseconds."""

    n: int
    depth: int
    ms: float


class CostCurve:
    """T(n, depth) in milliseconds, n >= 1; above the largest measured n it goes on with the last slope.

    Each measured depth is one table; in between they are mixed linearly, beyond the last one the last one holds.
    """

    def __init__(self, samples: Sequence[CostSample]) -> None:
        """Several samples of one (n, depth) count as their median. Raises ValueError without a sample."""
        if not samples:
            raise ValueError("a cost curve needs at least one sample")
        by_depth: dict[int, dict[int, list[float]]] = {}
        for one in samples:
            by_depth.setdefault(one.depth, {}).setdefault(one.n, []).append(one.ms)
        self._depths = sorted(by_depth)
        self._tables = [_Table({n: median(ms) for n, ms in by_depth[depth].items()}) for depth in self._depths]
        self.speed = 1.0

    def ms(self, n: int, depth: int = 0) -> float:
        """Expected milliseconds of one pass of n rows behind depth positions."""
        return self.speed * self._base(n, depth)

    def _base(self, n: int, depth: int) -> float:
        tables, depths = self._tables, self._depths
        if len(depths) == 1 or depth <= depths[0]:
            return tables[0].at(n)
        if depth >= depths[-1]:
            return tables[-1].at(n)
        i = bisect_left(depths, depth)
        share = (depth - depths[i - 1]) / (depths[i] - depths[i - 1])
        return (1 - share) * tables[i - 1].at(n) + share * tables[i].at(n)

    def observe(self, n: int, depth: int, ms: float) -> None:
        """A decode of n rows took ms: most of a surprise is the machine's, a little is this size's."""
        expected = self.ms(n, depth)
        ratio = self.observe_ratio(ms / expected if expected > 0 else 1.0)
        if len(self._depths) == 1:
            self._tables[0].scale(n, ratio**_SHAPE_RATE)
            return
        nearest = min(range(len(self._depths)), key=lambda i: abs(self._depths[i] - depth))
        self._tables[nearest].scale(n, ratio**_SHAPE_RATE)

    def observe_ratio(self, ratio: float) -> float:
        """Something took `ratio` times as long as expected; returns the ratio that was believed."""
        ratio = min(max(ratio, 1 / _MOST_PER_STEP), _MOST_PER_STEP)
        self.speed *= ratio**_SPEED_RATE
        return ratio


class _Table:
    """Cost by n at one depth; index 0 is unused."""

    def __init__(self, points: dict[int, float]) -> None:
        self._points = sorted(points.items())
        self._ms: list[float] = [0.0]

    def at(self, n: int) -> float:
        while len(self._ms) <= n:
            self._ms.append(self._interpolate(len(self._ms)))
        return self._ms[n]

    def scale(self, n: int, factor: float) -> None:
        self._ms[n] = self.at(n) * factor

    def _interpolate(self, n: int) -> float:
        points = self._points
        if len(points) == 1 or n <= points[0][0]:
            return points[0][1]
        i = min(max(bisect_left(points, (n, 0.0)), 1), len(points) - 1)
        (n0, ms0), (n1, ms1) = points[i - 1], points[i]
        return max(ms0 + (ms1 - ms0) * (n - n0) / (n1 - n0), points[0][1] if n > n1 else 0.0)
