"""Sources of a copy: a place in a text, or on a walk through a table that leads from ids to the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Source(Protocol):
    """A place in a text that is copied: an id, and what follows it."""

    def ahead(self, n: int) -> Sequence[int]:
        """This id and at most n that follow; may be empty."""

    def trust(self, n: int) -> Sequence[float]:
        """How far each of these is believed, beside what the copy is; empty where that is the same for all."""

    def moved(self, n: int) -> Source:
        """The place n ids further on, of those that `ahead` returned."""


class Located(NamedTuple):
    """A place to copy from: `length` ids up to it are the text's last ones."""

    source: Source
    length: int


class TextSource(NamedTuple):
    """A place in the answer's own text; a copy that reaches the end goes on with what it has written itself."""

    text: list[int]
    place: int

    def ahead(self, n: int) -> list[int]:
        ids = self.text[self.place : self.place + n + 1]
        return ids[:1] + (ids[1:] * -(-n // (len(ids) - 1)))[:n] if 1 < len(ids) <= n else ids

    def trust(self, n: int) -> Sequence[float]:
        return ()

    def moved(self, n: int) -> TextSource:
        return TextSource(self.text, self.place + n)


class TableWalk:
    """Some ids, and those that a table leads to, as far as was asked for. step: from the ids so far to the next one,
    and how far that is believed; None where the table ends.
    """

    def __init__(self, ids: list[int], step: Callable[[list[int]], tuple[int, float] | None]) -> None:
        self.ids = ids
        self.trust = [1.0] * len(ids)
        self._step = step

    def extend(self, size: int) -> None:
        """Extend the walk to `size` ids, unless the table ends."""
        ids, trust, step = self.ids, self.trust, self._step
        for _ in range(size - len(ids)):
            if (copied := step(ids)) is None:
                return
            ids.append(copied[0])
            trust.append(copied[1])


class WalkSource(NamedTuple):
    """A place on a walk through a table, which knows no places of its own."""

    walk: TableWalk
    place: int

    def ahead(self, n: int) -> list[int]:
        self.walk.extend(self.place + n + 1)
        return self.walk.ids[self.place : self.place + n + 1]

    def trust(self, n: int) -> Sequence[float]:
        return self.walk.trust[self.place : self.place + n + 1]

    def moved(self, n: int) -> WalkSource:
        return WalkSource(self.walk, self.place + n)
