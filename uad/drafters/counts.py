"""How often each id followed each n-gram of 1, 2, 6 and 12 ids. Counts can be taken back; knows no slot and no thresholds.

An n-gram is the number that its ids make, newest in the lowest bits. One that was followed by one id only, as most were, is a packed
number; the others keep their winner, so that asking is constant time however many ids followed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from uad.drafters.store import Rows

SIZES = (1, 2, 6, 12)
"""llama.cpp has 1 to 4. In code four ids are ambiguous: six and twelve cost the same and foresee twice as many."""
LONGEST = SIZES[-1]
LONGER = 4 * LONGEST
"""Ids that tell places apart which go on differently after LONGEST."""
ID_BITS = 21
"""Wide enough for every vocabulary; llama.cpp's largest have 2^18 ids."""
ID_MASK = (1 << ID_BITS) - 1
_ONE = 1 << ID_BITS
WIDTH = LONGEST + 2
"""Columns of a stored row: the n-gram, oldest id first and filled up with -1 in front, the id after it, its count."""


@dataclass(slots=True)
class Followers:
    """What followed an n-gram: all counts, their sum, and the most frequent id."""

    counts: dict[int, int]
    total: int
    best: int

    def add(self, id_: int, n: int) -> None:
        """It followed n more times."""
        count = self.counts[id_] = self.counts.get(id_, 0) + n
        self.total += n
        if count > self.counts[self.best]:
            self.best = id_

    def take(self, id_: int) -> None:
        """It followed once less."""
        self.total -= 1
        if self.counts[id_] == 1:
            del self.counts[id_]
        else:
            self.counts[id_] -= 1
        if id_ == self.best and self.counts:
            self.best = max(self.counts, key=self.counts.__getitem__)


Entry = int | Followers
Table = dict[int, Entry]


class NgramCounts:
    """Tables by n-gram size (tables[0] is for size 1). `longer`, if asked for: what followed LONGER ids, by their hash, where the last
    LONGEST of them had occurred before."""

    def __init__(self, longer: bool = False) -> None:
        self.tables: tuple[Table, ...] = tuple({} for _ in SIZES)
        self.longer: dict[int, int] | None = {} if longer else None

    def __len__(self) -> int:
        return sum(map(len, self.tables))

    @property
    def memory(self) -> int:
        """Bytes, from typical sizes of CPython's objects: a walk over all entries would take too long."""
        return sum(table.__sizeof__() + 79 * len(table) for table in self.tables) + 140 * len(self.longer or ())

    def add(self, ids: Sequence[int], start: int) -> None:
        """Count ids[start:] as followers of what is before them."""
        key = key_of(ids[max(start - LONGEST, 0) : start])
        places, longer = tuple(zip(self.tables, _MASKS, strict=True)), self.longer
        for i in range(start, min(len(ids), LONGEST)):
            for table, mask in places[: bisect_right(SIZES, i)]:
                count(table, key & mask, ids[i])
            key = (key << ID_BITS | ids[i]) & _MASKS[-1]
        for i, id_ in enumerate(ids[max(start, LONGEST) :], max(start, LONGEST)):
            entry: Entry | None = None
            for table, mask in places:
                gram = key & mask
                entry = table.get(gram)
                if entry is None:
                    table[gram] = _ONE | id_
                else:
                    count(table, gram, id_)
            if entry is not None and longer is not None and i >= LONGER:
                longer[longer_key(ids, i)] = id_
            key = (key << ID_BITS | id_) & _MASKS[-1]

    def take(self, ids: Sequence[int], start: int) -> None:
        """Take back what `add` with the same values counted."""
        for i in range(start, len(ids)):
            for size, table in zip(SIZES, self.tables, strict=True):
                if size <= i:
                    _uncount(table, key_of(ids[i - size : i]), ids[i])
            if self.longer is not None and i >= LONGER:
                self.longer.pop(longer_key(ids, i), None)

    def age(self) -> None:
        """Halve all counts: what was seen once only is forgotten."""
        tables = []
        for table in self.tables:
            halved: Table = {}
            for key, entry in table.items():
                for id_, n in items(entry):
                    if n > 1:
                        count(halved, key, id_, n // 2)
            tables.append(halved)
        self.tables = tuple(tables)

    def rows(self) -> Rows:
        """All counts as rows for a file."""
        return np.array(list(self._rows()), dtype=np.int32).reshape(-1, WIDTH)

    def load(self, rows: Rows) -> None:
        """Add the counts of a file. Rows that no `rows()` writes are left out."""
        for *gram, id_, n in rows.tolist():
            ids = [one for one in gram if one >= 0]
            if len(ids) in SIZES and id_ >= 0 and n > 0:
                count(self.tables[SIZES.index(len(ids))], key_of(ids), id_, n)

    def _rows(self) -> Iterator[tuple[int, ...]]:
        for size, table in zip(SIZES, self.tables, strict=True):
            empty = (-1,) * (LONGEST - size)
            for key, entry in table.items():
                gram = tuple(key >> ID_BITS * j & ID_MASK for j in range(size - 1, -1, -1))
                for id_, n in items(entry):
                    yield (*empty, *gram, id_, min(n, 2**31 - 1))


_MASKS = tuple((1 << ID_BITS * size) - 1 for size in SIZES)


def longer_key(ids: Sequence[int], stop: int) -> int:
    """Of the LONGER ids before `stop`."""
    return hash(tuple(ids[stop - LONGER : stop]))


def key_of(ids: Sequence[int]) -> int:
    """The number of an n-gram."""
    key = 0
    for id_ in ids:
        key = key << ID_BITS | id_
    return key


def count(table: Table, key: int, id_: int, n: int = 1) -> None:
    """Count n more of an id after an n-gram."""
    entry = table.get(key)
    if isinstance(entry, int):
        if entry & ID_MASK == id_:
            table[key] = entry + (n << ID_BITS)
        else:
            table[key] = followers = Followers({entry & ID_MASK: entry >> ID_BITS}, entry >> ID_BITS, entry & ID_MASK)
            followers.add(id_, n)
    elif isinstance(entry, Followers):
        entry.add(id_, n)
    else:
        table[key] = n << ID_BITS | id_


def _uncount(table: Table, key: int, id_: int) -> None:
    entry = table[key]
    if isinstance(entry, int):
        if entry >> ID_BITS == 1:
            del table[key]
        else:
            table[key] = entry - _ONE
        return
    entry.take(id_)
    if len(entry.counts) == 1:
        table[key] = entry.total << ID_BITS | entry.best


def best(entry: Entry) -> tuple[int, int, int]:
    """The most frequent follower, its count, and the count of all."""
    if isinstance(entry, int):
        n = entry >> ID_BITS
        return entry & ID_MASK, n, n
    return entry.best, entry.counts[entry.best], entry.total


def items(entry: Entry) -> list[tuple[int, int]]:
    """All followers with their counts."""
    return [(entry & ID_MASK, entry >> ID_BITS)] if isinstance(entry, int) else list(entry.counts.items())
