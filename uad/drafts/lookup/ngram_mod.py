"""ngram-mod: a constant pool that maps the hash of n ids to the id that followed, shared by slots. Knows no positions
in any text.

The pool is not checked for collisions: a wrong id costs a rejected draft, never wrong text. An entry that had another
id before says so, and is believed less.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial

from uad.base.types import Draft, Origin
from uad.drafts.lookup.history import agreement
from uad.drafts.lookup.lookup_drafter import LookupDrafter, SlotText
from uad.drafts.lookup.sources import Located, TableWalk, WalkSource

POOL_SIZE = 1 << 22
"""Entries of 4 bytes: about 16 MB."""
_LEAST_POOL = 1 << 16
_FULL = 0.25
"""Share of used entries from which the pool is emptied: beyond it collisions make drafts."""
_LOW_RATE = 0.25
_LOW_STREAK = 5
"""Drafts in a row with less than the low rate of submitted ids accepted, after which the pool is emptied."""
ID = (1 << 30) - 1
"""Bits of an entry that hold the id."""
_REWRITTEN = 1 << 30
"""The bit of an entry which says that it had another id before."""
_LONGER = 2
"""Times n ids, after which what is ambiguous after n is remembered as well: so copies stay where they are."""
_TRUST = 0.5
"""How far a rewritten entry is believed."""


def drafter(
    n_match: int = 24, n_min: int = 48, n_max: int = 64, share: str = "server", n_slots: int = 1
) -> LookupDrafter:
    """Drafts ids as long as the pool knows the next one: at least n_min (else nothing), at most n_max.

    `share` is how far texts meet: "server" one pool for all slots; "slot" one per slot; "off" one per slot that is
    emptied for each prompt. Pools of slots share out the same memory.
    """
    size = POOL_SIZE if share == "server" else max(POOL_SIZE >> (n_slots - 1).bit_length(), _LEAST_POOL)
    new = partial(Pool, n_match, size)
    shared = new() if share == "server" else None
    return LookupDrafter(
        Origin.NGRAM_MOD,
        lambda text: NgramMod(text, shared or new(), n_min, n_max, share == "off"),
        shared,
    )


class Pool:
    """Hash of n ids to the next id, with the mark of a rewritten entry; -1: none. `epoch` counts how often it was
    emptied.

    Of rewritten entries the ids after `longer` ids are kept as well.
    """

    def __init__(self, n: int, size: int = POOL_SIZE) -> None:
        self.n = n
        self.longer = _LONGER * n
        self.table = array("i", [-1]) * size
        self.n_used = 0
        self.epoch = 0

    @property
    def memory(self) -> int:
        return len(self.table) * self.table.itemsize

    @property
    def is_full(self) -> bool:
        """Whether so much of the table is used that it should be emptied."""
        return self.n_used > _FULL * len(self.table)

    def reset(self) -> None:
        """Forget everything."""
        if self.n_used:
            self.table = array("i", [-1]) * len(self.table)
        self.n_used = 0
        self.epoch += 1

    def slot(self, ids: Sequence[int], stop: int, n: int) -> int:
        """Where the id after the n ids before `stop` is; there must be n ids."""
        return hash(tuple(ids[stop - n : stop])) & (len(self.table) - 1)

    def follower(self, ids: list[int]) -> tuple[int, float] | None:
        """The id after these, n at least, and how far it is believed."""
        table = self.table
        entry = table[hash(tuple(ids[-self.n :])) & (len(table) - 1)]  # `slot`, without the call
        if 0 <= entry < _REWRITTEN:
            return entry, 1.0
        if entry < 0:
            return None
        if self.longer <= len(ids):
            longer = table[self.slot(ids, len(ids), self.longer)]
            entry = longer if longer >= 0 else entry
        return entry & ID, _TRUST if entry >= _REWRITTEN else 1.0

    def learn(self, ids: Sequence[int], start: int, streak: int) -> int:
        """Put in ids[start:], each of which has n ids before it; returns how many of the last were known to follow.
        `streak`: how many before them were.
        """
        table, n, mask = self.table, self.n, len(self.table) - 1
        near = tuple(ids[start - n :])  # slices of a tuple need no second copy
        slots = [hash(near[at : at + n]) & mask for at in range(len(ids) - start)]
        for slot, id_ in zip(slots, ids[start:], strict=True):
            entry = table[slot]
            if entry >= 0 and entry & ID == id_:
                streak += 1
            else:
                streak = 0
                self._put(slot, id_)
        for at, slot in enumerate(slots, start):
            if table[slot] >= _REWRITTEN and self.longer <= at:
                self._put(self.slot(ids, at, self.longer), ids[at])
        return streak

    def _put(self, slot: int, id_: int) -> None:
        entry = self.table[slot]
        if entry < 0:
            self.n_used += 1
            self.table[slot] = id_
        elif entry & ID != id_:
            self.table[slot] = id_ | _REWRITTEN


class NgramMod:
    """One slot. ids[:size] are in the pool; `streak` is how many of the last of them it had predicted."""

    def __init__(self, text: SlotText, pool: Pool, n_min: int, n_max: int, is_emptied: bool) -> None:
        self._text = text
        self._n_min = n_min
        self._n_max = n_max
        self._is_emptied = is_emptied
        self.pool = pool
        self.size = 0
        self.streak = 0
        self.guess: Sequence[int] = ()  # the last draft, from `size` on
        self._n_low = 0
        self._epoch = -1

    @property
    def memory(self) -> int:
        return self.pool.memory

    def begin(self, n_kept: int) -> None:
        if self._is_emptied or self.pool.is_full:
            self.pool.reset()
        self.size = min(n_kept, self.size) if self._epoch == self.pool.epoch else 0
        self._epoch = self.pool.epoch
        self.guess, self.streak, self._n_low = (), 0, 0

    def draft(self, n: int) -> Draft | None:
        self._settle()
        # all new ids at once: of what goes on in two ways within them, both are then distinguished
        self.streak = self.pool.learn(self._text.ids, max(self.size, self.pool.n), self.streak)
        self.size = len(self._text.ids)
        if n <= 0 or len(self._text.ids) < self.pool.n:
            return None
        n = min(n, self._n_max)
        draft = self._text.copy(max(n, self._n_min), self.pool.n, self._find)
        if draft is None:
            return None
        self.guess = draft.ids if draft.kind == draft.origin else ()  # what was resumed says little of the pool
        return draft.first(n)

    def _find(self) -> Located | None:
        ids = self._text.ids[-max(self.pool.longer, self.pool.n) :]
        source, n = WalkSource(TableWalk(ids, self.pool.follower), len(ids) - 1), max(self._n_min, 1)
        return Located(source, self.pool.n + self.streak) if len(source.ahead(n)) > n else None

    def _settle(self) -> None:
        """Empty the pool where too little of what it drafts is right."""
        guess, self.guess = self.guess, ()
        n, known = agreement(guess, self._text.ids, self.size)
        n_judged = min(self._text.n_submitted or 0, len(guess))
        if n_judged and (known or n >= n_judged):
            self._n_low = self._n_low + 1 if n < _LOW_RATE * n_judged else 0
        if self._n_low >= _LOW_STREAK:
            self._n_low = 0
            self.pool.reset()

    def end(self) -> None:
        """The answer is in the pool, or read with the next request."""
