"""ngram-simple: look up the last n ids in the history and copy what followed them the last time. Knows one slot at a time."""

from __future__ import annotations

from collections.abc import Sequence

from uad.drafters.copying import STEP, CopyDrafter, Found, catch_up
from uad.drafters.following import TextSource
from uad.drafters.history import History, hash_of, match_length
from uad.types import Ask, Draft, Origin


class NgramSimple(CopyDrafter[History]):
    """Drafts the size_m ids after the last earlier place of the last size_n ids, if these have at least min_hits earlier places."""

    def __init__(self, size_n: int = 12, size_m: int = 48, min_hits: int = 1, follow: bool = True) -> None:
        super().__init__(Origin.NGRAM_SIMPLE, size_n, follow)
        self._size_m = size_m
        self._min_hits = min_hits

    def _new(self, seq: int) -> History:
        return History((self._n_match,))

    def _begin(self, state: History, prompt: Sequence[int]) -> None:
        state.begin(prompt)

    def _draft(self, state: History, ask: Ask) -> Draft:
        catch_up(state, self._following[ask.seq] if self._min_hits == 1 else None, STEP)
        return self._copy(ask.seq, state, min(ask.n_max, self._size_m))

    def _find(self, state: History) -> Found | None:
        ids = state.ids
        if len(ids) <= self._n_match:
            return None
        gram = ids[-self._n_match :]
        ends = state.indexes[0].ends(ids, gram, hash_of(gram), len(ids), self._min_hits)
        if len(ends) < self._min_hits:
            return None
        return Found(TextSource(ids, ends[0] - 1), match_length(ids, ends[0], ids, self._n_match))

    def _memory_of(self, state: History) -> int:
        return state.memory
