"""Where two sequences part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from operator import ne


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """Number of leading items that a and b share."""
    n = min(len(a), len(b))
    if tuple(a[:n]) == tuple(b[:n]):
        return n
    return next(compress(count(), map(ne, a, b)))
