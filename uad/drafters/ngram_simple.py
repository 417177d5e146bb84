"""ngram-simple: look up the last n ids in the history and copy what followed them the last time. Knows one slot at a time."""

from __future__ import annotations

from collections.abc import Sequence

from uad.drafters.copying import CopyDrafter
from uad.drafters.history import BELIEFS, History, copy, hash_of, match_length
from uad.types import Ask, Draft, Origin

_STEP = 64
"""New ids indexed per round: all that a round can write."""


class NgramSimple(CopyDrafter[History]):
    """Drafts the size_m ids after the last earlier place of the last size_n ids, if these have at least min_hits earlier places."""

    def __init__(self, size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> None:
        super().__init__(Origin.NGRAM_SIMPLE)
        self._size_n = size_n
        self._size_m = size_m
        self._min_hits = min_hits

    def _new(self, seq: int) -> History:
        return History((self._size_n,))

    def _begin(self, state: History, prompt: Sequence[int]) -> None:
        state.begin(prompt)

    def _draft(self, state: History, ask: Ask) -> Draft:
        state.catch_up(_STEP)
        ids, n = state.ids, min(ask.n_max, self._size_m)
        if n <= 0 or len(ids) <= self._size_n:
            return self._nothing
        gram = ids[-self._size_n :]
        ends = state.indexes[0].ends(ids, gram, hash_of(gram), len(ids), self._min_hits)
        if len(ends) < self._min_hits:
            return self._nothing
        length = match_length(ids, ends[0], ids, self._size_n)
        return Draft(tuple(copy(ids, ends[0], n)), BELIEFS[length : length + n], self._origin, kind=self._origin)

    def _memory_of(self, state: History) -> int:
        return state.memory
