"""How often each id followed each n-gram of 1, 2, 6 and 12 ids. Counts can be taken back; knows no slot and no
thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from uad.lookup.store import Rows

SIZES = (1, 2, 6, 12)
"""llama.cpp has 1 to 4. In code four ids are ambiguous: six and twelve cost the same and predict twice as many."""
LONGEST = SIZES[-1]
LONGER = 4 * LONGEST
"""Ids that distinguish places which go on differently after LONGEST."""
WIDTH = LONGEST + 2
"""Columns of a stored row: the n-gram, oldest id first and filled up with -1 in front, the id after it, its count."""

Followers: TypeAlias = dict[int, int]
"""Ids and how often each of them came."""


class NgramCounts:
    """`followers`: by n-gram, what came after it. `longer`, if asked for: what came after LONGER ids, by their hash,
    where the last LONGEST of them had occurred before.
    """

    def __init__(self, longer: bool = False) -> None:
        self.followers: dict[tuple[int, ...], Followers] = {}
        self.longer: dict[int, int] | None = {} if longer else None

    def __len__(self) -> int:
        return len(self.followers)

    @property
    def memory(self) -> int:
        """Bytes, from typical sizes of CPython's objects: a walk over all entries would take too long."""
        return self.followers.__sizeof__() + 300 * len(self.followers) + 140 * len(self.longer or ())

    def add(self, ids: Sequence[int], start: int) -> None:
        """Count ids[start:] as followers of what is before them."""
        for i in range(start, len(ids)):
            if self.longer is not None and i >= LONGER and tuple(ids[i - LONGEST : i]) in self.followers:
                self.longer[longer_key(ids, i)] = ids[i]
            for size in SIZES:
                if size <= i:
                    self._count(tuple(ids[i - size : i]), ids[i], 1)

    def _count(self, gram: tuple[int, ...], id_: int, n: int) -> None:
        counts = self.followers.setdefault(gram, {})
        counts[id_] = counts.get(id_, 0) + n

    def take(self, ids: Sequence[int], start: int) -> None:
        """Take back what `add` with the same values counted."""
        for i in range(start, len(ids)):
            for gram in [tuple(ids[i - size : i]) for size in SIZES if size <= i]:
                counts = self.followers[gram]
                counts[ids[i]] -= 1
                if not counts[ids[i]]:
                    del counts[ids[i]]
                if not counts:
                    del self.followers[gram]
            if self.longer is not None and i >= LONGER:
                self.longer.pop(longer_key(ids, i), None)

    def age(self) -> None:
        """Halve all counts: what was seen once only is forgotten."""
        halved = {gram: {id_: n // 2 for id_, n in counts.items() if n > 1} for gram, counts in self.followers.items()}
        self.followers = {gram: counts for gram, counts in halved.items() if counts}

    def rows(self) -> Rows:
        """All counts as rows for a file."""
        return np.array(list(self._rows()), dtype=np.int32).reshape(-1, WIDTH)

    def _rows(self) -> Iterator[tuple[int, ...]]:
        for gram, counts in self.followers.items():
            for id_, n in counts.items():
                yield (*(-1,) * (LONGEST - len(gram)), *gram, id_, min(n, 2**31 - 1))

    def load(self, rows: Rows) -> None:
        """Add the counts of a file. Rows that no `rows()` writes are left out."""
        for *stored, id_, n in rows.tolist():
            gram = tuple(one for one in stored if one >= 0)
            if len(gram) in SIZES and id_ >= 0 and n > 0:
                self._count(gram, id_, n)


def longer_key(ids: Sequence[int], stop: int) -> int:
    """Of the LONGER ids before `stop`."""
    return hash(tuple(ids[stop - LONGER : stop]))


def best(counts: Followers) -> tuple[int, int, int]:
    """The most frequent follower, its count, and the count of all."""
    id_ = max(counts, key=counts.__getitem__)
    return id_, counts[id_], sum(counts.values())
