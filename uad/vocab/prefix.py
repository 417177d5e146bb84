"""The common beginning of two lists of ids: what a KV cache may keep. Knows no vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count
from operator import ne


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading ids that a and b share."""
    n = min(len(a), len(b))
    if tuple(a[:n]) == tuple(b[:n]):
        return n
    return next(compress(count(), map(ne, a, b)))
