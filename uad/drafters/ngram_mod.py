"""ngram-mod: a constant pool that maps the hash of n ids to the id that followed, shared by slots. Knows no positions in any history.

The pool is not checked for collisions: a wrong id costs a rejected draft, never wrong text. An entry that had another id before says so,
and is believed less.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from uad.drafters.copying import CopyDrafter, Found
from uad.drafters.following import Following
from uad.drafters.history import FACTOR, HASH_BITS, HASH_MASK, ID_BYTES, agreement, hash_of, hashes_of
from uad.drafters.ways import Walk, Way
from uad.types import Ask, Commit, Draft, Origin
from uad.vocab.prefix import common_prefix

POOL_SIZE = 1 << 22
"""Entries of 4 bytes: about 16 MB."""
_LEAST_POOL = 1 << 16
_FULL = 0.25
"""Share of used entries from which the pool starts anew: beyond it collisions make drafts."""
_LOW_RATE = 0.25
_LOW_STREAK = 5
"""So many drafts in a row of which less than the low rate was accepted of what was submitted, and the pool starts anew."""
_BULK = 256
ID = (1 << 30) - 1
"""Of an entry: the id."""
_REWRITTEN = 1 << 30
"""Of an entry: that it had another id before."""
_LONGER = 2
"""Times n ids, after which what is ambiguous after n is remembered as well, by who follows copies: so they stay where they are."""
_SALT = 0x15A4E35
"""Keeps entries for longer n-grams apart from the others."""
_TRUST = 0.5
"""How far a rewritten entry is believed."""


class Pool:
    """Hash of n ids to the next id, with the mark of a rewritten entry; -1: none. `epoch` counts how often it was emptied.

    Of rewritten entries the ids after `longer` ids are kept as well (0: they are not).
    """

    def __init__(self, n: int, size: int = POOL_SIZE, longer: int = 0) -> None:
        self.n = n
        self.longer = longer
        self.shift = HASH_BITS - (size.bit_length() - 1)
        self.drop = pow(FACTOR, n + 1, 1 << HASH_BITS)
        self.table = array("i", b"\xff" * (4 * size))
        self.n_used = 0
        self.epoch = 0

    @property
    def memory(self) -> int:
        return len(self.table) * self.table.itemsize

    @property
    def is_full(self) -> bool:
        return self.n_used > _FULL * len(self.table)

    def reset(self) -> None:
        """Forget everything."""
        if self.n_used:
            self._view().fill(-1)
        self.n_used = 0
        self.epoch += 1

    def learn(self, ids: Sequence[int]) -> None:
        """Put in every id that has n ids before it, all at once."""
        words = np.array(ids, dtype=np.int64)
        slots = hashes_of(words, self.n)[:-1] >> self.shift
        self._put_all(slots, words[self.n :].astype(np.int32))
        if 0 < self.longer < len(ids):
            ambiguous = np.flatnonzero(self._view()[slots[self.longer - self.n :]] >= _REWRITTEN)
            values = hashes_of(words, self.longer)[ambiguous] + _SALT & HASH_MASK
            self._put_all(values >> self.shift, words[self.longer + ambiguous].astype(np.int32))

    def _put_all(self, slots: npt.NDArray[np.int32], new: npt.NDArray[np.int32]) -> None:
        table = self._view()
        old = table[slots]
        self.n_used += len(np.unique(slots[old < 0]))
        table[slots] = new  # of equal slots the last one stays
        rewritten = (old >= _REWRITTEN) | ((old >= 0) & (old != new)) | (table[slots] != new)
        table[slots[rewritten]] |= _REWRITTEN

    def longer_slot(self, ids: Sequence[int], stop: int) -> int:
        """Where the id after the `longer` ids before `stop` is; there must be so many."""
        return (hash_of(ids[stop - self.longer : stop]) + _SALT & HASH_MASK) >> self.shift

    def put(self, slot: int, id_: int) -> None:
        """One more entry."""
        found = self.table[slot]
        if found < 0:
            self.n_used += 1
            self.table[slot] = id_
        elif found & ID != id_:
            self.table[slot] = id_ | _REWRITTEN

    def _view(self) -> npt.NDArray[np.int32]:
        return np.frombuffer(self.table, dtype=np.int32)


class _Way(Way):
    """Through a pool, from at least n ids on. What the pool learns meanwhile does not change what was found."""

    def __init__(self, pool: Pool, ids: list[int], value: int) -> None:
        super().__init__(ids)
        self.pool = pool
        self.epoch = pool.epoch
        self._value = value

    def extend(self, size: int) -> None:
        pool, ids, value = self.pool, self.ids, self._value
        table, shift, drop, n, longer, add = pool.table, pool.shift, pool.drop, pool.n, pool.longer, ids.append
        for i in range(len(ids), size):
            id_ = table[value >> shift]
            if id_ < 0:
                break
            if id_ >= _REWRITTEN:
                if 0 < longer <= i and (known := table[pool.longer_slot(ids, i)]) >= 0:
                    id_ = known
                if id_ >= _REWRITTEN:
                    self.doubt(_TRUST)
                    id_ &= ID
            value = ((value + id_) * FACTOR - ids[i - n] * drop) & HASH_MASK
            add(id_)
        self._value = value


@dataclass(slots=True)
class _State:
    """One slot. ids[:size] are in the pool; `value` is the hash of the n ids before `size`.

    `streak` is how many ids up to `size` the pool had foreseen. `guess` is the last draft, from `size` on; n_submitted: how many ids were
    submitted in its round, of whatever draft; None before that is known.
    """

    pool: Pool
    ids: list[int] = field(default_factory=list)
    size: int = 0
    value: int = 0
    streak: int = 0
    n_low: int = 0
    epoch: int = -1
    guess: Sequence[int] = ()
    n_submitted: int | None = None


class NgramMod(CopyDrafter[_State]):
    """Drafts ids as long as the pool knows the next one: at least n_min (else nothing), at most n_max.

    `share` is how far texts meet: "server" one pool for all slots; "slot" one per slot; "off" one per slot that is emptied for each
    prompt. Pools of slots share out the same memory.
    """

    def __init__(
        self, n_match: int = 24, n_min: int = 48, n_max: int = 64, share: str = "server", n_slots: int = 1, follow: bool = True
    ) -> None:
        super().__init__(Origin.NGRAM_MOD, n_match, follow)
        self._n_min = n_min
        self._n_max = n_max
        self._share = share
        self._size = POOL_SIZE if share == "server" else max(POOL_SIZE >> (n_slots - 1).bit_length(), _LEAST_POOL)
        self._longer = _LONGER * n_match if follow else 0
        self._pool = Pool(n_match, self._size, self._longer) if share == "server" else None

    @property
    def memory(self) -> int:
        return super().memory + (self._pool.memory if self._pool else 0)

    def observe(self, commit: Commit) -> None:
        super().observe(commit)
        state = self._slots[commit.seq]
        if state.n_submitted is None:
            state.n_submitted = commit.n_drafted

    def _new(self, seq: int) -> _State:
        return _State(self._pool or Pool(self._n_match, self._size, self._longer))

    def _begin(self, state: _State, prompt: Sequence[int]) -> None:
        kept = common_prefix(state.ids, prompt)
        state.ids[kept:] = prompt[kept:]
        pool = state.pool
        if self._share == "off" or pool.is_full:
            pool.reset()
        known = min(kept, state.size) if state.epoch == pool.epoch else 0
        state.epoch = pool.epoch
        state.guess, state.streak, state.n_low = (), 0, 0
        self._go_to(state, known)

    def _draft(self, state: _State, ask: Ask) -> Draft:
        self._settle(state)
        self._learn(state, self._following[ask.seq])
        if ask.n_max <= 0 or len(state.ids) < self._n_match:
            return self._nothing
        draft = self._copy(ask.seq, state, max(min(ask.n_max, self._n_max), self._n_min))
        state.guess, state.n_submitted = draft.ids if draft.kind == self._origin else (), None  # what was resumed says little of the pool
        return draft.first(min(ask.n_max, self._n_max))

    def _find(self, state: _State) -> Found | None:
        ids = state.ids[-max(state.pool.longer, self._n_match) :]
        walk = Walk(_Way(state.pool, ids, state.value), len(ids) - 1)
        n = max(self._n_min, 1)
        return Found(walk, self._n_match + state.streak) if len(walk.ahead(n)) > n else None

    def _settle(self, state: _State) -> None:
        """Empty the pool where too little of what it drafts is right."""
        guess, state.guess = state.guess, ()
        n, known = agreement(guess, state.ids, state.size)
        n_judged = min(state.n_submitted or 0, len(guess))
        if n_judged and (known or n >= n_judged):
            state.n_low = state.n_low + 1 if n < _LOW_RATE * n_judged else 0
        if state.n_low >= _LOW_STREAK:
            state.n_low = 0
            state.pool.reset()

    def _learn(self, state: _State, following: Following) -> None:
        """Put the new ids into the pool. What was copied word for word is there."""
        ids, pool, n = state.ids, state.pool, self._n_match
        if len(ids) - state.size >= _BULK and len(ids) > n:
            pool.learn(ids[max(state.size - n, 0) :])
            self._go_to(state, len(ids))
            return
        for source, start, stop in following.copied(len(ids)):
            start = max(start + n, state.size)
            if isinstance(source, Walk) and isinstance(source.way, _Way) and source.way.epoch == pool.epoch and stop - start > n:
                self._learn_to(state, start)
                streak = state.streak + stop - start
                self._go_to(state, stop)
                state.streak = streak
        self._learn_to(state, len(ids))

    def _learn_to(self, state: _State, stop: int) -> None:
        if stop <= state.size:
            return
        ids, pool, n = state.ids, state.pool, self._n_match
        if state.size < n:
            self._go_to(state, min(n, stop))
        table, shift, drop, value, streak = pool.table, pool.shift, pool.drop, state.value, state.streak
        start = state.size
        for at, (new, old) in enumerate(zip(ids[start:stop], ids[max(start - n, 0) :], strict=False), start):
            slot = value >> shift
            found = table[slot]
            if found == new:
                streak += 1
            else:
                streak = streak + 1 if found >= 0 and found & ID == new else 0
                pool.put(slot, new)
                if found >= 0 and 0 < pool.longer <= at:
                    pool.put(pool.longer_slot(ids, at), new)
            value = ((value + new) * FACTOR - old * drop) & HASH_MASK
        state.size, state.value, state.streak = stop, value, streak

    def _go_to(self, state: _State, size: int) -> None:
        state.size, state.streak = size, 0
        state.value = hash_of(state.ids[max(size - self._n_match, 0) : size])

    def _memory_of(self, state: _State) -> int:
        return ID_BYTES * len(state.ids) + (0 if self._pool else state.pool.memory)
