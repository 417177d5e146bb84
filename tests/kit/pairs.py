"""Fewer cases than a product has, for tests with several dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any


def pairs(*dimensions: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases in which each value of a dimension meets each of every other one. Errors need two values far more often
    than three.
    """
    values = [list(dimension) for dimension in dimensions]
    left = [*itertools.product(*(range(len(some)) for some in values))]
    missing = {pair for case in left for pair in _pairs_of(case)}
    chosen = []
    while missing:
        best = max(left, key=lambda case: len(missing & _pairs_of(case)))  # the first of equals
        left.remove(best)
        missing -= _pairs_of(best)
        chosen.append(best)
    return [tuple(some[i] for some, i in zip(values, case, strict=True)) for case in sorted(chosen)]


def _pairs_of(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(itertools.combinations(enumerate(case), 2))
