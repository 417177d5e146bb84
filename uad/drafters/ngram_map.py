"""ngram-map-k and ngram-map-k4v: n-grams of the history as keys, with what followed them and how much of it was accepted.

An occurrence of a key counts once the size_m ids after it (its value) are all in the history. Knows one slot at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from uad.drafters.copying import STEP, CopyDrafter, Found, catch_up
from uad.drafters.following import TextSource
from uad.drafters.history import History, agreement, hash_of, match_length
from uad.types import Ask, Draft, Origin

_N_KEYS = 4096
"""Keys remembered per slot; the oldest go first."""
_N_VALUES = 4
_N_ENDS = 64
"""Occurrences of a key that are counted when it is met for the first time: the newest."""
_LEAD = 2
"""How many times as frequent as all others together a value must be."""


@dataclass(slots=True)
class _Value:
    """A continuation seen after a key: where it begins, how often it was seen, how much of it the target accepted the last time."""

    start: int
    count: int
    n_accepted: int


@dataclass(slots=True)
class _Key:
    """A key that was met: its values, and up to which end its occurrences are counted. `stop` is behind the last id relied on."""

    values: list[_Value] = field(default_factory=list)
    counted: int = 0
    n_hits: int = 0
    stop: int = 0


@dataclass(slots=True)
class _Tried:
    """The value last drafted, and where in the history it should appear."""

    key: _Key
    value: _Value
    at: int


class _State:
    def __init__(self, size_n: int) -> None:
        self.history = History((size_n,))
        self.keys: dict[tuple[int, ...], _Key] = {}
        self.tried: _Tried | None = None

    @property
    def ids(self) -> list[int]:
        return self.history.ids


class NgramMap(CopyDrafter[_State]):
    """The map with keys only (ngram-map-k): drafts the value after the key's last occurrence.

    Needs min_hits occurrences. Of a value no more is drafted than was accepted of it the last time; none of it, if none was.
    """

    _type: ClassVar[Origin] = Origin.NGRAM_MAP_K
    _one_value: ClassVar[bool] = True

    def __init__(self, size_n: int = 12, size_m: int = 48, min_hits: int = 1, follow: bool = True) -> None:
        super().__init__(self._type, size_n, follow)
        self._size_m = size_m
        self._min_hits = min_hits

    def _new(self, seq: int) -> _State:
        return _State(self._n_match)

    def _begin(self, state: _State, prompt: Sequence[int]) -> None:
        """Keys that rest on ids which are no longer there are forgotten, with their counts and accepted lengths."""
        self._settle(state)
        kept = state.history.begin(prompt)
        state.keys = {gram: key for gram, key in state.keys.items() if key.stop <= kept}

    def _draft(self, state: _State, ask: Ask) -> Draft:
        self._settle(state)
        catch_up(state.history, self._following[ask.seq] if self._min_hits == 1 else None, STEP)
        draft = self._copy(ask.seq, state, min(ask.n_max, self._size_m))
        return draft if state.tried is None else draft.first(state.tried.value.n_accepted)

    def _find(self, state: _State) -> Found | None:
        ids, n = state.ids, self._n_match
        if len(ids) < n + self._size_m:
            return None
        key = self._count(state, ids[-n:])
        value = self._choose(key) if key is not None and key.n_hits >= self._min_hits else None
        if key is None or value is None:
            return None
        state.tried = _Tried(key, value, len(ids))
        return Found(TextSource(ids, value.start - 1), match_length(ids, value.start, ids, n))

    def _settle(self, state: _State) -> None:
        """Remember how much of the last draft's value was written by now, by whomever it was drafted."""
        if (tried := state.tried) is None:
            return
        guess = state.ids[tried.value.start : tried.value.start + self._size_m]
        n, known = agreement(guess, state.ids, tried.at)
        if known or n > tried.value.n_accepted:
            tried.value.n_accepted = n
            tried.key.stop = max(tried.key.stop, tried.at + n + 1)
        state.tried = None

    def _count(self, state: _State, gram: list[int]) -> _Key | None:
        """The key's entry with all occurrences up to now; None if there is none."""
        ids, index = state.ids, state.history.indexes[0]
        below = len(ids) - self._size_m + 1
        name = tuple(gram)
        key = state.keys.get(name)
        ends = index.ends(ids, gram, hash_of(gram), below, _N_ENDS, above=key.counted if key else 0)
        if key is None:
            if not ends:
                return None
            key = state.keys[name] = _Key()
            if len(state.keys) > _N_KEYS:
                del state.keys[next(iter(state.keys))]
        for end in reversed(ends):
            self._hit(key, ids, end)
        return key

    def _hit(self, key: _Key, ids: list[int], end: int) -> None:
        """Count one occurrence that ends here; a further value than the fourth is counted as an occurrence only."""
        m = self._size_m
        key.n_hits += 1
        key.counted, key.stop = end, max(key.stop, end + m)
        if self._one_value:
            accepted = key.values[0].n_accepted if key.values else m
            key.values = [_Value(end, key.n_hits, accepted)]
            return
        for value in key.values:
            if ids[value.start : value.start + m] == ids[end : end + m]:
                value.count += 1
                return
        if len(key.values) < _N_VALUES:
            key.values.append(_Value(end, 1, m))

    def _choose(self, key: _Key) -> _Value | None:
        return key.values[0]

    def _memory_of(self, state: _State) -> int:
        return state.history.memory + sum(400 + 8 * self._n_match + 80 * len(key.values) for key in state.keys.values())


class NgramMap4(NgramMap):
    """The map with up to four values per key (ngram-map-k4v): drafts one that is at least twice as frequent as all others together."""

    _type: ClassVar[Origin] = Origin.NGRAM_MAP_K4V
    _one_value: ClassVar[bool] = False

    def _choose(self, key: _Key) -> _Value | None:
        best = max(key.values, key=lambda value: value.count)
        others = sum(value.count for value in key.values) - best.count
        return best if best.count >= _LEAD * others else None
