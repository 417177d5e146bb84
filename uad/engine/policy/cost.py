"""The cost of a decode: T(rows, depth), from measured samples, followed online. Arithmetic only: no clock, no model.

A curve is kept as it was measured, steps and all; between measured points it is interpolated. Three things follow the
machine. Quickly: one factor for all sizes, since a neighbour slows everything down alike, and then no decision changes.
Slowly: each size on its own. At once: what attention adds after texts longer than measured ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import median
from typing import Final

from uad.base.common.row_costs import cost_of_rows

# Of a decode's surprise (log), into the machine's speed, and of a call's, into what it costs: a machine that became
# slower is known within some twenty of them.
SPEED_RATE: Final = 0.15
# Of what surprised of late, per decode: all sizes together wait for the factors, and learn nothing of themselves.
_LATELY_RATE: Final = 0.35
# Of one size's own cost, per decode, once it is known: after this many measurements, or one beforehand, which counts
# as five. Sizes with fewer learn faster and say nothing about the machine's speed.
_SHAPE_RATE: Final = 0.04
_KNOWN_AFTER_DECODES: Final = 3
_MEASURED: Final = 5
# An outlier counts as no more than this much too slow or too fast; for the cost of a known size, as no more than that.
_MOST_PER_STEP: Final = 1.5
_MOST_OF_SIZE: Final = 1.2
# Noise of a decode: 3 % on a machine at rest, more on shared ones (lab/replay.py has 3 %).
_NOISE: Final = 0.08
# Order of magnitude of what a position might add, in single rows after nothing: 97 ms, and 0.05 a position (AMX, BF16).
_PER_POSITION: Final = 3e-4
# Single rows after a pass of several, until they cost what they usually do; and how many are only compared at first.
# Their extra cost counts beyond noise: 0.4 and 0.5 of a single row on an H100 (docs/gpu.md).
_SETTLING_ROWS: Final = 2
_TRIED_AFTER_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class CostSample:
    """One measured decode: n rows in one pass after `depth` positions took ms milliseconds."""

    n: int
    depth: int
    ms: float


class CostCurve:
    """T(n, depth) in milliseconds, n >= 1. Each measured depth is one table; in between they are mixed linearly, beyond
    the last one positions add to the last one what decodes there showed.
    """

    def __init__(self, samples: Sequence[CostSample]) -> None:
        """Several samples of one (n, depth) count as their median; one alone as well known. Raises ValueError without a
        sample.
        """
        if not samples:
            raise ValueError("a cost curve needs at least one sample")
        by_depth: dict[int, dict[int, list[float]]] = {}
        for sample in samples:
            by_depth.setdefault(sample.depth, {}).setdefault(sample.n, []).append(sample.ms)
        self._depths = sorted(by_depth)
        self._tables = [_SizeTable({n: median(ms) for n, ms in by_depth[depth].items()}) for depth in self._depths]
        self._beyond = _DepthSlope(self._tables[-1].at(1))
        self.n_found = 0  # decodes that showed much of what was unknown
        self._log_speed = 0.0
        self.speed = 1.0
        """By what factor passes take longer now than they were measured to."""
        self._surprise = 0.0  # of late, of all sizes together (log): what the factors have not caught up with
        self._changes = _SizeChangeCost()

    def ms(self, n: int, depth: int = 0) -> float:
        """Expected milliseconds of one pass of n rows after depth positions."""
        return self.speed * self._base(n, depth)

    def change_ms(self, depth: int = 0) -> float:
        """Milliseconds that a pass of several rows adds to the single ones after it; 0 if not clearly seen."""
        return self._changes.share * self.ms(1, depth) if self._changes.are_clear else 0.0

    def _base(self, n: int, depth: int) -> float:
        tables, depths = self._tables, self._depths
        if depth <= depths[0]:
            return tables[0].at(n)
        if depth >= depths[-1]:
            return tables[-1].at(n) + self._beyond.ms(n, depth - depths[-1])
        i = bisect_left(depths, depth)
        share = (depth - depths[i - 1]) / (depths[i] - depths[i - 1])
        return (1 - share) * tables[i - 1].at(n) + share * tables[i].at(n)

    def _nearest(self, depth: int) -> _SizeTable:
        tables = self._tables
        if len(tables) == 1:
            return tables[0]
        return tables[min(range(len(tables)), key=lambda i: abs(self._depths[i] - depth))]

    def observe(self, n: int, depth: int, ms: float) -> None:
        """A decode of n rows took ms: most of a surprise is the machine's, a little is this size's; after more
        positions than were ever measured it is theirs as long as little is known of them. A size of which little is
        known says something about itself alone.
        """
        table = self._nearest(depth)
        expected = self.ms(n, depth)
        is_known = table.n_known(n) >= _KNOWN_AFTER_DECODES
        ratio = ms / expected if expected > 0 else 1.0
        if n > 1:
            self._changes.n_left = _SETTLING_ROWS
        elif self._changes.n_left and self._changes.explain(ratio):
            return
        if is_known and depth > self._depths[-1]:
            rest = self._beyond.learn(
                n, depth - self._depths[-1], (ms - expected) / self.speed, _NOISE * expected / self.speed
            )
            ratio **= rest
            self.n_found += rest < 0.8
        if is_known:
            ratio = exp(self._follow(ratio))
            ratio = min(max(ratio, 1 / _MOST_OF_SIZE), _MOST_OF_SIZE)
        self.n_found += not is_known
        table.learn(n, ratio)

    def observe_ratio(self, ratio: float) -> None:
        """A decode of several passes took `ratio` times as long as expected."""
        self._follow(ratio)

    def _follow(self, ratio: float) -> float:
        """Returns by how much that surprises (log) beyond what did so lately."""
        surprise = log(min(max(ratio, 1 / _MOST_PER_STEP), _MOST_PER_STEP))
        self._log_speed += SPEED_RATE * surprise
        self.speed = exp(self._log_speed)
        self._surprise += _LATELY_RATE * (surprise - self._surprise)
        return surprise - self._surprise


class _SizeChangeCost:
    """The cost of a change in the number of rows. On GPUs a graph of another shape is built, and the second time it is
    recorded: the single rows after a pass of several take longer than those after others. On CPUs they do not.
    """

    def __init__(self) -> None:
        self.n_left = self._n_seen = 0  # single rows that are not settled yet; those that were seen
        self._excess = 0.0  # of one of them, in costs of a settled one

    @property
    def are_clear(self) -> bool:
        """Whether they cost clearly more than noise."""
        return self._n_seen >= _TRIED_AFTER_ROWS and self._excess > _NOISE

    @property
    def share(self) -> float:
        """The extra cost of all single rows after a pass of several, in costs of a settled one."""
        return _SETTLING_ROWS * self._excess

    def explain(self, ratio: float) -> bool:
        """A single row that is not settled took `ratio` times as long as expected; whether that says nothing of what
        one costs in the long run.
        """
        self.n_left -= 1
        self._n_seen += 1
        excess = min(ratio - 1.0, 2.0)
        self._excess += (excess - self._excess) * max(1 / self._n_seen, 0.05)
        return self._n_seen < _TRIED_AFTER_ROWS or self.are_clear


class _DepthSlope:
    """The time that each position beyond the deepest measured one adds to a pass of n rows: ms_once + n * ms_per_row.
    Attention reads it for each row, or once for all of them, or both. Recursive least squares; single_ms: a row where
    the measured depths end.

    One decode of several rows in a longer text than any before shows most of it, before it would be taken for a slow
    machine: that slows single rows alike, and where no single row is ever decoded, nothing would correct it.
    """

    def __init__(self, single_ms: float) -> None:
        self._ms_once = self._ms_per_row = 0.0
        self._variance = (_PER_POSITION * single_ms) ** 2
        self._once, self._both, self._per_row = self._variance, 0.0, self._variance  # the covariance of the two

    def ms(self, n: int, depth: int) -> float:
        return depth * (self._ms_once + n * self._ms_per_row)

    def learn(self, n: int, depth: int, surprise_ms: float, noise_ms: float) -> float:
        """n rows after depth positions took surprise_ms more than expected; returns the share of it that has another
        cause.
        """
        x, y = float(depth), float(n * depth)
        cx, cy = self._once * x + self._both * y, self._both * x + self._per_row * y
        noise = noise_ms * noise_ms
        total = x * cx + y * cy + noise
        if total <= 0 or not surprise_ms:
            return 1.0
        most = 3.0 * sqrt(total)  # what is beyond is a disturbed machine
        believed_ms = min(max(surprise_ms, -most), most)
        self._ms_once = max(self._ms_once + believed_ms * cx / total, 0.0)
        self._ms_per_row = max(self._ms_per_row + believed_ms * cy / total, 0.0)
        if n == 1:  # that says nothing about what further rows add: it fades, the cost of a single row as it is
            moved = 0.01 * self._ms_per_row
            self._ms_per_row -= moved
            self._ms_once += moved
        drift = 1e-5 * self._variance
        self._once += drift - cx * cx / total
        self._both -= cx * cy / total
        self._per_row += drift - cy * cy / total
        return 1.0 - (1.0 - noise / total) * believed_ms / surprise_ms


class _SizeTable:
    """Cost by n at one depth; index 0 is unused. Sizes between those that were measured or seen are interpolated."""

    def __init__(self, points: dict[int, float]) -> None:
        self._points = sorted(points.items())
        self._measured = frozenset(points)
        self._ms: list[float] = [0.0]
        self._n_known: list[int] = [0]  # measurements: those beforehand were of one moment, and count as some

    def at(self, n: int) -> float:
        if len(self._ms) <= n:
            self._grow(n)
        return self._ms[n]

    def n_known(self, n: int) -> int:
        return self._n_known[n] if n < len(self._n_known) else 0

    def learn(self, n: int, ratio: float) -> None:
        """n rows took `ratio` times as long as this says. Of a size of which little is known one slow decode says
        little: it may have been disturbed. A second one, or a much faster one, is believed at once.
        """
        if len(self._ms) <= n:
            self._grow(n)
        self._n_known[n] += 1
        n_known = self._n_known[n]
        rate = max(_SHAPE_RATE, 1 / n_known)
        if n_known <= _KNOWN_AFTER_DECODES:
            ratio = min(ratio, _MOST_OF_SIZE) if n_known == 1 else ratio
            rate = 1.0 if ratio < 1 / _MOST_OF_SIZE or ratio > _MOST_OF_SIZE else rate
        self._ms[n] *= ratio**rate
        if n not in self._measured and n_known <= _KNOWN_AFTER_DECODES:
            self._spread()

    def _spread(self) -> None:
        """A size is known that was not measured: those that were never seen are between others now."""
        n_known = self._n_known
        beyond = [point for point in self._points if point[0] >= len(n_known)]
        self._points = [(n, self._ms[n]) for n in range(len(n_known)) if n_known[n]] + beyond
        for n in range(1, len(n_known)):
            if not n_known[n]:
                self._ms[n] = cost_of_rows(self._points, n)

    def _grow(self, n: int) -> None:
        for k in range(len(self._ms), n + 1):
            self._ms.append(cost_of_rows(self._points, k))
            self._n_known.append(_MEASURED if k in self._measured else 0)
