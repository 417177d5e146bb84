"""How often each id followed each n-gram of 1, 2, 6 and 12 ids. Counts can be taken back; knows no slot and no
thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from uad.base.common.arrays import Ints

SIZES = (1, 2, 6, 12)
"""llama.cpp has 1 to 4. In code four ids are ambiguous: six and twelve cost the same and predict twice as many."""
LONGEST = SIZES[-1]
LONGER = 4 * LONGEST
"""Ids that distinguish places which go on differently after LONGEST."""
WIDTH = LONGEST + 2
"""Columns of a stored row: the n-gram, oldest id first and filled up with -1 in front, the id after it, its count."""

Followers: TypeAlias = dict[int, int]
"""Ids and how often each of them came."""


class Several:
    """The different followers of an n-gram, and how many they are in all."""

    __slots__ = ("_usual", "counts", "total")

    def __init__(self, counts: Followers) -> None:
        self.counts = counts
        self.total = sum(counts.values())
        self._usual: int | None = None  # the most frequent follower; None: not known

    def add(self, id_: int, n: int) -> None:
        """It came n times more."""
        counts, usual = self.counts, self._usual
        counts[id_] = now = counts.get(id_, 0) + n
        self.total += n
        if usual is None or id_ == usual or now < counts[usual]:
            return
        # of two that are as frequent the older one wins: which that is, `best` finds out, if it is asked at all
        self._usual = id_ if now > counts[usual] else None

    def take(self, id_: int) -> None:
        """It came once less."""
        self.counts[id_] -= 1
        if not self.counts[id_]:
            del self.counts[id_]
        self.total -= 1
        self._usual = None

    def best(self) -> tuple[int, int, int]:
        """The counts that `best` returns. After "the" 10,000 ids may have come: so the most frequent one is remembered,
        not searched for.
        """
        if self._usual is None:
            self._usual = max(self.counts, key=self.counts.__getitem__)
        return self._usual, self.counts[self._usual], self.total


Known: TypeAlias = Followers | Several
"""The ids seen after an n-gram: mostly always the same one, and how often; or several."""


class NgramCounts:
    """`table`: by n-gram, what came after it. `longer`, if asked for: what came after LONGER ids, by their hash,
    where the last LONGEST of them had occurred before.
    """

    def __init__(self, longer: bool = False) -> None:
        self.table: dict[tuple[int, ...], Known] = {}
        self.longer: dict[int, int] | None = {} if longer else None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def followers(self) -> dict[tuple[int, ...], Followers]:
        """The table with all counts written out; made again, for files."""
        return {gram: dict(counts_of(known)) for gram, known in self.table.items()}

    @property
    def memory(self) -> int:
        """Bytes, from typical sizes of CPython's objects: a walk over all entries would take too long."""
        return self.table.__sizeof__() + 300 * len(self.table) + 140 * len(self.longer or ())

    def add(self, ids: Sequence[int], start: int) -> None:
        """Count ids[start:] as followers of what is before them."""
        table, longer, ids = self.table, self.longer, tuple(ids)  # slices of a tuple need no second copy
        for size in SIZES:
            for i in range(max(start, size), len(ids)):
                gram, id_ = ids[i - size : i], ids[i]
                known = table.get(gram)
                if known is None:
                    table[gram] = {id_: 1}
                    continue
                if isinstance(known, Several):
                    known.add(id_, 1)
                elif id_ in known:
                    known[id_] += 1
                else:
                    table[gram] = Several({**known, id_: 1})
                if size == LONGEST and longer is not None and i >= LONGER:
                    longer[hash(ids[i - LONGER : i])] = id_

    def _count(self, gram: tuple[int, ...], id_: int, n: int) -> None:
        known = self.table.setdefault(gram, {})
        if isinstance(known, Several):
            known.add(id_, n)
        else:
            known[id_] = known.get(id_, 0) + n
            if len(known) > 1:
                self.table[gram] = Several(known)

    def take(self, ids: Sequence[int], start: int) -> None:
        """Take back what `add` with the same values counted."""
        for i in range(start, len(ids)):
            for gram in [tuple(ids[i - size : i]) for size in SIZES if size <= i]:
                known = self.table[gram]
                if isinstance(known, Several):
                    known.take(ids[i])
                else:
                    known[ids[i]] -= 1
                if not (known.total if isinstance(known, Several) else known[ids[i]]):
                    del self.table[gram]
            if self.longer is not None and i >= LONGER:
                self.longer.pop(longer_key(ids, i), None)

    def age(self) -> None:
        """Halve all counts: what was seen once only is forgotten."""
        halved = {
            gram: {id_: n // 2 for id_, n in counts_of(known).items() if n > 1} for gram, known in self.table.items()
        }
        self.table = {gram: Several(counts) for gram, counts in halved.items() if counts}

    def rows(self) -> Ints:
        """All counts as rows for a file."""
        return np.array(list(self._rows()), dtype=np.int32).reshape(-1, WIDTH)

    def _rows(self) -> Iterator[tuple[int, ...]]:
        for gram, known in self.table.items():
            for id_, n in counts_of(known).items():
                yield (*(-1,) * (LONGEST - len(gram)), *gram, id_, min(n, 2**31 - 1))

    def load(self, rows: Ints) -> None:
        """Add the counts of a file. Rows that no `rows()` writes are left out."""
        for *stored, id_, n in rows.tolist():
            gram = tuple(id_ for id_ in stored if id_ >= 0)
            if len(gram) in SIZES and id_ >= 0 and n > 0:
                self._count(gram, id_, n)


def counts_of(known: Known) -> Followers:
    """The ids that followed, and how often each of them did."""
    return known.counts if isinstance(known, Several) else known


def longer_key(ids: Sequence[int], stop: int) -> int:
    """The key of the LONGER ids before `stop`."""
    return hash(tuple(ids[stop - LONGER : stop]))


def best(counts: Followers) -> tuple[int, int, int]:
    """The most frequent follower, its count, and the count of all."""
    id_ = max(counts, key=counts.__getitem__)
    return id_, counts[id_], sum(counts.values())
