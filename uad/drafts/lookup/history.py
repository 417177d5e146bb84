"""Where the n-grams of a growing list of ids occurred before. Knows no drafter and no model.

An n-gram is known by its end: the place where its continuation begins. Ends whose n-grams share a slot of the hash
table form a chain, newest first, as in the window of a Lempel-Ziv compressor. So every match is compared id by id.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from uad.base.common.sequences import common_prefix

_FIRST_HEADS = 1 << 10
_DETOUR = 64
"""Ends of other n-grams, which share a slot by chance, that are passed by in one search."""
IDS_AT_ONCE = 1 << 14
"""Ids read in one round: a longer prompt takes several, so that other sequences need not wait."""
ID_BYTES = 36
"""Bytes of one id in a list: the reference and the number, which is counted even where other lists hold it too."""
MAX_MATCH_IDS = 64
"""Longer matches are not measured: they say no more."""


class GramIndex:
    """Ends of the n-grams of `ids`, of which the first `size` are indexed. 8 to 12 bytes per id; adding one is constant
    time.
    """

    def __init__(self, ids: list[int], n: int) -> None:
        self.ids = ids
        self.n = n
        self._before = array("i", [0])  # by end: the one before it in its chain; 0: none
        self._heads = array("i", bytes(4 * _FIRST_HEADS))  # by slot: the newest end

    @property
    def size(self) -> int:
        """How many ids are indexed."""
        return len(self._before) - 1

    @property
    def memory(self) -> int:
        """Bytes, without the ids."""
        return sum(table.buffer_info()[1] * table.itemsize for table in (self._before, self._heads))

    def _slot(self, gram: Sequence[int]) -> int:
        return hash(tuple(gram)) & (len(self._heads) - 1)

    def grow(self) -> None:
        """Index the new ids, at most IDS_AT_ONCE of them."""
        ids, n, before = self.ids, self.n, self._before
        stop = len(ids)
        if len(before) > stop:
            return
        if stop > len(self._heads):  # as many again may follow before the next time
            self._heads = array("i", bytes(4 << (2 * stop - 1).bit_length()))
            del before[1:]
        stop = min(stop, self.size + IDS_AT_ONCE)
        if len(before) < n:
            before.extend([0] * (min(stop + 1, n) - len(before)))
        heads, mask = self._heads, len(self._heads) - 1
        first, put = len(before), before.append
        # `_slot` without the call, and slices of one tuple, which need no second copy: most of the time goes here
        new = tuple(ids[max(first - n, 0) : stop])
        for at in range(stop + 1 - first):
            slot = hash(new[at : at + n]) & mask
            put(heads[slot])
            heads[slot] = first + at

    def shrink(self, size: int) -> None:
        """Forget all but the first `size` ids; the others must still be there."""
        # newest first: each head goes back to the end that it had before, which `_before` still has
        for end in range(self.size, max(size, self.n - 1), -1):
            self._heads[self._slot(self.ids[end - self.n : end])] = self._before.pop()
        del self._before[size + 1 :]

    def ends(self, gram: list[int], below: int, limit: int) -> list[int]:
        """The newest ends of this n-gram before `below`, at most `limit` of them, newest first."""
        return self._ends(self._heads[self._slot(gram)], gram, below, limit)

    def last_ends(self, below: int, limit: int) -> list[int]:
        """The newest ends of the text's last n ids; the text must have at least n."""
        ids = self.ids
        gram = ids[-self.n :]
        # its chain goes on from its own end, where that is indexed: no hash is needed
        end = self._before[len(ids)] if self.size == len(ids) else self._heads[self._slot(gram)]
        return self._ends(end, gram, below, limit)

    def _ends(self, end: int, gram: list[int], below: int, limit: int) -> list[int]:
        """From `end` on along its chain."""
        ids, n, before, ends = self.ids, self.n, self._before, list[int]()
        n_looked_at = 0
        while end and n_looked_at < limit + _DETOUR:
            n_looked_at += 1
            if end < below and ids[end - n : end] == gram:
                ends.append(end)
                if len(ends) == limit:
                    break
            end = before[end]
        return ends


def agreement(guess: Sequence[int], ids: list[int], start: int) -> tuple[int, bool]:
    """How many guessed ids were then written at ids[start:], and whether that is the last word (else the text ended
    before).
    """
    written = ids[start : start + len(guess)]
    n = common_prefix(guess, written)
    return n, n == len(guess) or n < len(written)


BELIEFS = tuple(match / (match + 2) for match in range(1 << 11))
"""By the length of the match before it, the copied ids included: a first guess of how likely the next id of a copy is
right. A draft's probabilities are a slice.

The policy calibrates it; as each length has a belief of its own, bins of belief are ranges of match length.
"""
