"""The cost of a pass of n rows, from sizes that were measured."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def cost_of_rows(points: Sequence[tuple[int, float]], n: int) -> float:
    """Milliseconds of n rows; points: (rows, milliseconds), one or more, in order. Between two of them costs lie on a
    straight line.

    Beyond the last one they go on with the slope from half of its rows on: single steps, and the noise of single sizes,
    would be carried far. Of one point nothing is known of the slope. Further rows are not assumed to be free: they cost
    half of their share.
    """
    i = bisect_left(points, (n, 0.0))
    n1, ms1 = points[min(i, len(points) - 1)]
    if i == 0:
        return ms1
    if i < len(points):
        n0, ms0 = points[i - 1]
        return ms0 + (ms1 - ms0) * (n - n0) / (n1 - n0)
    if len(points) == 1:
        return ms1 * (1 + 0.5 * (n - n1) / n1)
    n0, ms0 = points[min(bisect_left(points, (n1 // 2, 0.0)), len(points) - 2)]
    return ms1 + max(ms1 - ms0, 0.0) * (n - n1) / (n1 - n0)
