"""Dataclasses of counts that can be added up, field by field. The only place that says how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, reduce
from operator import add
from typing import Any, Self, TypeVar, cast

T = TypeVar("T", bound="Sums")


class Sums:
    """Base of such dataclasses.

    Numbers and nested counts are added, dictionaries by key, switches with `or`; names stay. A field with
    `metadata={"add": f}` becomes f(a, b).
    """

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(how(getattr(self, name), getattr(other, name)) for name, how in _rules(cast(Any, type(self))))
        )


def total(counts: Sequence[T]) -> T:
    """The sum of one or more; times are work then, not elapsed time."""
    return reduce(add, counts)


@cache
def _rules(kind: Any) -> tuple[tuple[str, Callable[[Any, Any], Any]], ...]:
    return tuple((one.name, one.metadata.get("add", _added)) for one in fields(kind))


def _added(a: Any, b: Any) -> Any:
    if isinstance(a, bool):
        return a or b
    if isinstance(a, dict):
        return a | {key: a[key] + value if key in a else value for key, value in b.items()}
    return a if isinstance(a, str) else a + b
