"""The ids of one slot and an index of their n-grams that grows, shrinks and never rescans. Knows no drafter and no model.

An n-gram is known by its end: the place where its continuation begins. All earlier ends of the same n-gram form a chain, newest first,
as in the window of a Lempel-Ziv compressor. A chain also holds what collides, so every match is compared id by id.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from operator import mul

import numpy as np
import numpy.typing as npt

from uad.vocab.prefix import common_prefix

HASH_BITS = 30
"""Width of a hash. CPython multiplies numbers below 2^30 on its fast path."""
HASH_MASK = (1 << HASH_BITS) - 1
FACTOR = 0x2C1B3C6D & HASH_MASK
_BULK = 256
"""From so many new ids on, numpy is faster than a loop."""
_ROUND = 64
"""More ids than a round writes."""
_FIRST_HEADS = 1 << 10
_DETOUR = 64
"""Ends of other n-grams, which share a slot by chance, that are passed by in one search."""
ID_BYTES = 36
"""Of one id in a list: the reference and the number, which is counted even where other lists hold it too."""
MAX_MATCH = 64
"""Longer matches are not measured: they say no more."""


class GramIndex:
    """Where each n-gram of one growing list of ids ended before. 4 to 8 bytes per id and table; adding an id is constant time.

    The ids are passed in, not held, so that several indexes share one list. `size` of them are indexed.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.size = 0
        self._value: int | None = 0
        self._drop = pow(FACTOR, n + 1, 1 << HASH_BITS)
        self._hashes = array("i", [0])
        self._before = array("i", [0])
        self._heads = array("i", bytes(4 * _FIRST_HEADS))
        self._shift = HASH_BITS - (_FIRST_HEADS.bit_length() - 1)

    @property
    def memory(self) -> int:
        """Bytes."""
        return sum(table.buffer_info()[1] * table.itemsize for table in (self._hashes, self._before, self._heads))

    def grow(self, ids: list[int], stop: int) -> None:
        """Index ids[size:stop]."""
        if stop <= self.size:
            return
        if stop > len(self._heads):
            self._rehash(2 * stop)  # as much again may follow a prompt before the next time
        start, n = self.size, self.n
        if stop - start >= _BULK or start < n:
            self._grow_bulk(ids, stop)
            return
        value = hash_of(ids[start - n : start]) if self._value is None else self._value
        drop, shift, heads = self._drop, self._shift, self._heads
        add_hash, add_before = self._hashes.append, self._before.append
        for i in range(start, stop):
            value = ((value + ids[i]) * FACTOR - ids[i - n] * drop) & HASH_MASK
            slot = value >> shift
            add_hash(value)
            add_before(heads[slot])
            heads[slot] = i + 1
        self.size, self._value = stop, value

    def skip(self, stop: int) -> None:
        """Count the ids up to `stop` without indexing them: for copies, whose n-grams are all found at their source."""
        nothing = bytes(4 * (stop - self.size))
        self._hashes.frombytes(b"\xff" * len(nothing))
        self._before.frombytes(nothing)
        self.size, self._value = stop, None

    def shrink(self, size: int) -> None:
        """Forget all but the first `size` ids."""
        if size >= self.size:
            return
        first = max(size + 1, self.n)
        hashes, before = _view(self._hashes)[first:][::-1], _view(self._before)[first:][::-1]
        linked = hashes >= 0
        # In reverse order the last word has the earliest of the forgotten ends, whose predecessor is the newest that stays.
        _view(self._heads)[hashes[linked] >> self._shift] = before[linked]
        del hashes, before
        del self._hashes[size + 1 :], self._before[size + 1 :]
        self.size, self._value = size, None

    def ends(self, text: list[int], gram: list[int], value: int, below: int, limit: int, above: int = 0) -> list[int]:
        """The newest ends (between above and below) of this n-gram in the text that is indexed here, at most `limit` of them."""
        n, hashes, before = self.n, self._hashes, self._before
        found: list[int] = []
        end = self._heads[value >> self._shift]
        for _ in range(limit + _DETOUR):
            if end <= above:
                break
            if hashes[end] == value and end < below and text[end - n : end] == gram:
                found.append(end)
                if len(found) == limit:
                    break
            end = before[end]
        return found

    def _grow_bulk(self, ids: list[int], stop: int) -> None:
        start, n = self.size, self.n
        reach = max(start - n + 1, 0)
        window = np.zeros(stop - start + n - 1, dtype=np.int64)
        window[len(window) - (stop - reach) :] = ids[reach:stop]
        hashes = hashes_of(window, n)
        self._hashes.frombytes(hashes.tobytes())
        self._before.frombytes(bytes(4 * len(hashes)))
        self._link(start + 1, hashes)
        self.size, self._value = stop, int(hashes[-1])

    def _rehash(self, wanted: int) -> None:
        """A larger table of heads, with every end linked anew."""
        bits = max(wanted - 1, _FIRST_HEADS - 1).bit_length()
        self._heads = array("i", bytes(4 << bits))
        self._shift = HASH_BITS - bits
        self._link(1, _view(self._hashes)[1:])

    def _link(self, first: int, hashes: npt.NDArray[np.int32]) -> None:
        """Put the ends first, first + 1, … with these hashes into the chains, as if one by one."""
        first, hashes = max(first, self.n), hashes[max(self.n - first, 0) :]
        linked = np.flatnonzero(hashes >= 0)
        if not len(linked):
            return
        slots, ends = hashes[linked] >> self._shift, (linked + first).astype(np.int32)
        heads = _view(self._heads)
        before = heads[slots]
        order = np.argsort(slots, kind="stable")
        again = np.flatnonzero(slots[order[1:]] == slots[order[:-1]])
        before[order[again + 1]] = ends[order[again]]
        heads[slots] = ends  # of equal slots the last one stays: the newest end
        _view(self._before)[ends] = before


@cache
def _powers(n: int) -> tuple[int, ...]:
    """What the ids of an n-gram are multiplied by, the oldest first."""
    return tuple(pow(FACTOR, i, 1 << HASH_BITS) for i in range(n, 0, -1))


def hash_of(gram: Sequence[int]) -> int:
    """The hash of one n-gram: a polynomial in FACTOR without constant term, so that the newest id reaches the upper bits too."""
    value: int = sum(map(mul, gram, _powers(len(gram))))
    return value & HASH_MASK


def suffix_hashes(ids: list[int], sizes: Sequence[int]) -> list[int]:
    """The hashes of the last ids, for each size (ascending) that ids has."""
    return [hash_of(ids[-size:]) for size in sizes if size <= len(ids)]


def hashes_of(ids: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int32]:
    """The hashes of all n-grams in ids, in order: len(ids) - n + 1 of them. Put together from n-grams of powers of two."""
    part, size = ids * FACTOR & HASH_MASK, 1
    value, done = np.zeros(len(ids) + 1, dtype=np.int64), 0
    while True:
        if n & size:
            count = len(ids) + 1 - done - size
            value = (value[:count] * pow(FACTOR, size, 1 << HASH_BITS) + part[done : done + count]) & HASH_MASK
            done += size
        if done == n:
            return value.astype(np.int32)
        part = (part[:-size] * pow(FACTOR, size, 1 << HASH_BITS) + part[size:]) & HASH_MASK
        size *= 2


class History:
    """One slot's ids with an index for each n-gram size. Ids are indexed when `catch_up` is called, not when they are written."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.ids: list[int] = []
        self.indexes = tuple(GramIndex(n) for n in sizes)
        self._longest = max(sizes)
        self._n_prompt = 0
        self._skipped = 0

    @property
    def memory(self) -> int:
        """Bytes."""
        return ID_BYTES * len(self.ids) + sum(index.memory for index in self.indexes)

    def begin(self, prompt: Sequence[int]) -> int:
        """Take over a prompt; returns how many ids of the earlier history stay."""
        kept = common_prefix(self.ids, prompt)
        for index in self.indexes:
            index.shrink(min(kept, self._skipped))
        self.ids[kept:] = prompt[kept:]
        self._n_prompt = self._skipped = len(prompt)
        return kept

    def skip(self, start: int, stop: int, end: int) -> None:
        """ids[start:stop] are a copy of those before `end`: what of them is not indexed yet is left out until the next `begin`, because all
        n-grams in it are found there."""
        ids, before, shift = self.ids, self._longest - 1, stop - end
        first = max(start + before, self.indexes[0].size)
        if first >= stop or shift <= 0 or ids[first - before : stop] != ids[first - before - shift : end]:
            return
        for index in self.indexes:
            index.grow(ids, first)
            index.skip(stop)
        self._skipped = min(self._skipped, first)

    def catch_up(self, at_most: int) -> None:
        """Index the prompt, and of what a round wrote at most so many ids; all of it where more waits, as after a sleep."""
        n = len(self.ids)
        for index in self.indexes:
            behind = n - index.size
            if behind:
                index.grow(self.ids, n if behind <= at_most or behind > _ROUND else max(index.size + at_most, self._n_prompt))


def match_length(text: list[int], end: int, ids: list[int], known: int) -> int:
    """How many ids before text[end] are the last of `ids`, up to MAX_MATCH; `known` of them are already known to be."""
    last = len(ids)
    high = min(MAX_MATCH, end, last)
    if known >= high or text[end - high : end] == ids[last - high :]:
        return high
    while high - known > 1:
        middle = (known + high) // 2
        if text[end - middle : end - known] == ids[last - middle : last - known]:
            known = middle
        else:
            high = middle
    return known


def copy(text: list[int], start: int, n: int) -> list[int]:
    """The n ids from text[start] on; a copy that reaches the end of the text goes on with what it has written itself."""
    ids = text[start : start + n]
    if len(ids) < n:
        ids = (ids * -(-n // len(ids)))[:n]
    return ids


def agreement(guess: Sequence[int], ids: list[int], start: int) -> tuple[int, bool]:
    """How many guessed ids were then written at ids[start:], and whether that is the last word (else the text ended before)."""
    written = ids[start : start + len(guess)]
    n = common_prefix(guess, written)
    return n, n == len(guess) or n < len(written)


def belief(match: int) -> float:
    """A first guess of how likely the next id of a copy is right, by the length of the match before it, the copied ids included.

    The policy calibrates it; as each length has a belief of its own, bins of belief are ranges of match length.
    """
    return match / (match + 2)


BELIEFS = tuple(belief(match) for match in range(1 << 11))
"""By match length, so that a draft's probabilities are a slice."""


def _view(table: array[int]) -> npt.NDArray[np.int32]:
    return np.frombuffer(table, dtype=np.int32)
