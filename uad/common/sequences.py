"""Where two sequences part."""

from __future__ import annotations

from collections.abc import Sequence


def first_difference(a: Sequence[object], b: Sequence[object]) -> int:
    """Index of the first items that are not equal; the length of the shorter sequence where there are none."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
