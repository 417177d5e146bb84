"""Where two sequences part, and how far they end alike."""

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


def common_suffix(text: Sequence[int], end: int, ids: Sequence[int], most: int, known: int = 0) -> int:
    """How many ids before text[end] are the last of `ids`, up to `most`; `known` of them are already known to be."""
    n, most = known, min(most, end, len(ids))
    while n < most and text[end - 1 - n] == ids[-1 - n]:
        n += 1
    return n
