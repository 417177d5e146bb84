"""ngram-mod: a constant pool that maps the hash of n ids to the id that followed, shared by slots. Knows no positions in any history.

The pool is not checked for collisions: a wrong id costs a rejected draft, never wrong text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from uad.drafters.copying import CopyDrafter
from uad.drafters.history import BELIEFS, FACTOR, HASH_BITS, HASH_MASK, ID_BYTES, MAX_MATCH, agreement, hash_of, hashes_of
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


class Pool:
    """Hash of n ids to the next id. `epoch` counts how often it was emptied."""

    def __init__(self, n: int, size: int = POOL_SIZE) -> None:
        self.n = n
        self.shift = HASH_BITS - (size.bit_length() - 1)
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
        table = self._view()
        self.n_used += len(np.unique(slots[table[slots] < 0]))
        table[slots] = words[self.n :]  # of equal slots the last one stays

    def _view(self) -> npt.NDArray[np.int32]:
        return np.frombuffer(self.table, dtype=np.int32)


@dataclass(slots=True)
class _State:
    """One slot. ids[:size] are in the pool; `value` is the hash of the n ids before `size`.

    `streak` is how many ids up to `size` the pool had foreseen. `guess` is the last draft, from `size` on, with the hash before each id;
    n_submitted: how many ids were submitted in its round, of whatever draft; None before that is known.
    """

    pool: Pool
    ids: list[int] = field(default_factory=list)
    size: int = 0
    value: int = 0
    streak: int = 0
    n_low: int = 0
    epoch: int = -1
    guess: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    n_submitted: int | None = None


class NgramMod(CopyDrafter[_State]):
    """Drafts ids as long as the pool knows the next one: at least n_min (else nothing), at most n_max.

    `share` is how far texts meet: "server" one pool for all slots; "slot" one per slot; "off" one per slot that is emptied for each
    prompt. Pools of slots share out the same memory.
    """

    def __init__(self, n_match: int = 24, n_min: int = 48, n_max: int = 64, share: str = "server", n_slots: int = 1) -> None:
        super().__init__(Origin.NGRAM_MOD)
        self._n_match = n_match
        self._n_min = n_min
        self._n_max = n_max
        self._share = share
        self._size = POOL_SIZE if share == "server" else max(POOL_SIZE >> (n_slots - 1).bit_length(), _LEAST_POOL)
        self._pool = Pool(n_match, self._size) if share == "server" else None
        self._drop = pow(FACTOR, n_match + 1, 1 << HASH_BITS)

    @property
    def memory(self) -> int:
        return super().memory + (self._pool.memory if self._pool else 0)

    def observe(self, commit: Commit) -> None:
        super().observe(commit)
        state = self._slots[commit.seq]
        if state.n_submitted is None:
            state.n_submitted = commit.n_drafted

    def _new(self, seq: int) -> _State:
        return _State(self._pool or Pool(self._n_match, self._size))

    def _begin(self, state: _State, prompt: Sequence[int]) -> None:
        kept = common_prefix(state.ids, prompt)
        state.ids[kept:] = prompt[kept:]
        pool = state.pool
        if self._share == "off" or pool.is_full:
            pool.reset()
        known = min(kept, state.size) if state.epoch == pool.epoch else 0
        state.epoch = pool.epoch
        state.guess, state.values, state.streak, state.n_low = [], [], 0, 0
        self._go_to(state, known)

    def _draft(self, state: _State, ask: Ask) -> Draft:
        self._settle(state)
        self._learn(state)
        if ask.n_max <= 0 or len(state.ids) < self._n_match:
            return self._nothing
        self._look_ahead(state, max(min(ask.n_max, self._n_max), self._n_min))
        if len(state.guess) < self._n_min:
            state.guess, state.values = [], []
            return self._nothing
        n = min(len(state.guess), ask.n_max, self._n_max)
        length = min(self._n_match + state.streak, MAX_MATCH)
        return Draft(tuple(state.guess[:n]), BELIEFS[length : length + n], self._origin, kind=self._origin)

    def _look_ahead(self, state: _State, n: int) -> None:
        """Walk the pool from the end of the text for up to n ids."""
        table, shift, drop, value = state.pool.table, state.pool.shift, self._drop, state.value
        guess: list[int] = []
        values = [value]
        leaving = state.ids[-self._n_match :]
        for _ in range(n):
            id_ = table[value >> shift]
            if id_ < 0:
                break
            value = ((value + id_) * FACTOR - leaving[len(guess)] * drop) & HASH_MASK
            guess.append(id_)
            leaving.append(id_)
            values.append(value)
        state.guess, state.values, state.n_submitted = guess, values, None

    def _settle(self, state: _State) -> None:
        """What was written as foreseen is in the pool already, and its hashes are known; the rest is left to `_learn`."""
        if not state.guess:
            return
        n, known = agreement(state.guess, state.ids, state.size)
        n_judged = min(state.n_submitted or 0, len(state.guess))
        state.size, state.value, state.streak = state.size + n, state.values[n], state.streak + n
        state.guess, state.values = [], []
        if n_judged and (known or n >= n_judged):
            state.n_low = state.n_low + 1 if n < _LOW_RATE * n_judged else 0
        if state.n_low >= _LOW_STREAK:
            state.n_low = 0
            state.pool.reset()

    def _learn(self, state: _State) -> None:
        """Put the new ids into the pool."""
        ids, pool, n = state.ids, state.pool, self._n_match
        if len(ids) - state.size >= _BULK and len(ids) > n:
            pool.learn(ids[max(state.size - n, 0) :])
            self._go_to(state, len(ids))
            return
        if state.size < n:
            self._go_to(state, min(n, len(ids)))
        table, shift, drop, value, streak = pool.table, pool.shift, self._drop, state.value, state.streak
        start = state.size
        for new, old in zip(ids[start:], ids[max(start - n, 0) :], strict=False):
            slot = value >> shift
            found = table[slot]
            if found == new:
                streak += 1
            else:
                streak = 0
                pool.n_used += found < 0
                table[slot] = new
            value = ((value + new) * FACTOR - old * drop) & HASH_MASK
        state.size, state.value, state.streak = len(ids), value, streak

    def _go_to(self, state: _State, size: int) -> None:
        state.size, state.streak = size, 0
        state.value = hash_of(state.ids[max(size - self._n_match, 0) : size])

    def _memory_of(self, state: _State) -> int:
        return ID_BYTES * len(state.ids) + (0 if self._pool else state.pool.memory)
