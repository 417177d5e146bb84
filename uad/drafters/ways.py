"""Sources that are no text: a table leads from each id to the next one, and a way is what it led to. Knows no table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Way(ABC):
    """Some ids, and those that a table leads to, as far as was asked for."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.doubtful: list[int] = []
        """Places of ids that are not simply believed."""
        self.trust: list[float] = []
        """How far each of those is."""

    @abstractmethod
    def extend(self, size: int) -> None:
        """To so many ids, unless the table ends."""

    def doubt(self, trust: float) -> None:
        """Believe the next id only so far."""
        self.doubtful.append(len(self.ids))
        self.trust.append(trust)


class Walk(NamedTuple):
    """A place on a way: a `Source`."""

    way: Way
    place: int

    def ahead(self, n: int) -> list[int]:
        stop = self.place + n + 1
        if len(self.way.ids) < stop:
            self.way.extend(stop)
        return self.way.ids[self.place : stop]

    def trust(self, n: int) -> Sequence[float]:
        way, place = self.way, self.place
        first, stop = bisect_left(way.doubtful, place), bisect_right(way.doubtful, place + n)
        if first == stop:
            return ()
        trust = [1.0] * (min(len(way.ids), place + n + 1) - place)
        for at, doubt in zip(way.doubtful[first:stop], way.trust[first:stop], strict=True):
            trust[at - place] = doubt
        return trust

    def moved(self, n: int) -> Walk:
        return Walk(self.way, self.place + n)
