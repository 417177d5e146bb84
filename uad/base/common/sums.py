"""Dataclasses of counts that can be added up, field by field. The only place that says how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, reduce
from operator import add, attrgetter
from typing import Any, Self, TypeVar, cast

T = TypeVar("T", bound="Sums")
_NUMBERS = (int, float)


class Sums:
    """Base of such dataclasses.

    Numbers and nested counts are added, dictionaries by key, switches with `or`; names stay. A field with
    `metadata={"add": f}` becomes f(a, b).
    """

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        of, rules = _rules(cast(Any, type(self)))
        return type(self)(
            *[
                a + b if how is _added and type(a) in _NUMBERS else how(a, b)
                for how, a, b in zip(rules, of(self), of(other), strict=True)
            ]
        )


def total(counts: Sequence[T]) -> T:
    """The sum of one or more; times are work then, not elapsed time."""
    return reduce(add, counts)


@cache
def _rules(kind: Any) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[Callable[[Any, Any], Any], ...]]:
    """A function that reads all fields of such an object, and the functions that add each of them."""
    names = [field.name for field in fields(kind)]
    of = attrgetter(*names) if len(names) > 1 else lambda counts: (getattr(counts, names[0]),)
    return of, tuple(field.metadata.get("add", _added) for field in fields(kind))


def _added(a: Any, b: Any) -> Any:
    if isinstance(a, bool):
        return a or b
    if isinstance(a, dict):
        return a | {key: a[key] + value if key in a else value for key, value in b.items()}
    return a if isinstance(a, str) else a + b
