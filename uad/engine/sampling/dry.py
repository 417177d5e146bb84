"""DRY: what would go on with a repetition gets less likely, the longer the repetition (p-e-w, 2024; llama.cpp's rules).

Ours, and not llama.cpp's: its constructor looks at every id of the vocabulary for every request, on the thread that
decodes. Here that is done once for a list of breakers, and a token costs one pass over the ids looked back on.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice, takewhile
from typing import Final

import numpy as np
import numpy.typing as npt

from uad.base.checkpoint import checkpoint
from uad.base.common.arrays import Floats
from uad.engine.sampling.noise import Position
from uad.engine.sampling.steps import AnyIds, Candidates

_MOST_BYTES: Final = 40  # of a breaker: llama.cpp's limits
_MOST_IDS: Final = 20  # after its first
_LOG_MAX: Final = 88.7228391  # the largest exponent of a float
_KNOWN: Final = 64  # lists of breakers that are kept


class Breakers:
    """Texts after which a repetition begins again, as ids: the first, and how a breaker may go on after it."""

    def __init__(self, heads: Mapping[int, Sequence[tuple[int, ...]]]) -> None:
        self._heads = heads

    def may_begin(self, id_: int) -> bool:
        """Whether a breaker may begin in this id."""
        return id_ in self._heads

    def is_whole(self, id_: int) -> bool:
        """Whether the id has a breaker in it."""
        return () in self._heads.get(id_, ())

    def n_after(self, ids: npt.NDArray[np.int32], at: int) -> int:
        """How many ids the longest breaker has after its first, ids[at]; -1 if no breaker begins there."""
        fitting = [
            len(tail)
            for tail in self._heads[int(ids[at])]
            if len(tail) < len(ids) - at and tuple(ids[at + 1 : at + 1 + len(tail)].tolist()) == tail
        ]
        return max(fitting, default=-1)


BreakersOf = Callable[[tuple[str, ...]], Breakers]


def breakers_of(words: Sequence[bytes], tokenize: Callable[[bytes], list[int]]) -> BreakersOf:
    """Finds the breakers of a list of texts, and keeps those of the last lists. From any thread.

    words: the bytes of each id, of a control token its name.
    """
    backwards = cache(lambda: sorted((word[::-1], id_) for id_, word in enumerate(words)))

    def ending(data: bytes) -> list[int]:
        """The ids that end with data."""
        first = bisect_left(backwards(), (data[::-1], -1))
        beginning = takewhile(lambda entry: entry[0].startswith(data[::-1]), islice(backwards(), first, None))
        return [id_ for _, id_ in beginning]

    @lru_cache(maxsize=_KNOWN)
    def find(texts: tuple[str, ...]) -> Breakers:
        heads: dict[int, list[tuple[int, ...]]] = {}
        for text in texts:
            checkpoint()
            data = text.encode()[:_MOST_BYTES]
            inside = {id_ for id_, word in enumerate(words) if data in word}
            for id_ in inside:
                heads.setdefault(id_, []).append(())
            for n in range(1, len(data)):
                tail = tuple(tokenize(data[n:])[:_MOST_IDS])
                for id_ in ending(data[:n]):
                    if id_ not in inside and tail not in heads.setdefault(id_, []):
                        heads[id_].append(tail)
        return Breakers(heads)

    return find


class Dry:
    """The penalties of one text. last_n: ids that are looked back on, at least 1."""

    def __init__(
        self, multiplier: float, base: float, allowed: int, last_n: int, breakers: Breakers, prompt: Sequence[int]
    ) -> None:
        self._multiplier = multiplier
        self._base = base
        self._allowed = allowed
        self._last_n = last_n
        self._breakers = breakers
        self._most = int(_LOG_MAX / math.log(base)) if base > 1.000001 else 0
        known = list(prompt[-last_n:])
        self._ids = np.array(known, np.int32)
        self._runs = np.array([0, *_runs(known)], np.int32)  # that of ids[i] is at i + 1
        self._n = len(known)
        self._heads: deque[int] = deque()
        self._broken: tuple[int, int] | None = None  # the last whole breaker that cannot get longer: where, ids after
        for at, id_ in enumerate(known):
            self._look_for_head(at, id_)

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """The same candidates with penalties."""
        penalties = self._penalties()
        if not penalties:
            return ids, logits
        tokens = np.array(sorted(penalties), np.intp)
        amounts = np.array([penalties[id_] for id_ in tokens.tolist()], np.float32)
        logits = logits.copy()
        if ids is None:
            logits[tokens] -= amounts
            return ids, logits
        at = np.minimum(np.searchsorted(tokens, ids), len(tokens) - 1)
        is_hit = tokens[at] == ids
        logits[is_hit] -= amounts[at[is_hit]]
        return ids, logits

    def accept(self, id_: int) -> None:
        """The text goes on with this id."""
        n = self._n
        if n == len(self._ids):
            room = np.zeros(max(64, n), np.int32)
            self._ids, self._runs = np.concatenate((self._ids, room)), np.concatenate((self._runs, room))
        start = max(n + 1 - self._last_n, 0)
        self._runs[start + 1 : n + 1] = np.where(self._ids[start:n] == id_, self._runs[start:n] + 1, 0)
        self._ids[n], self._runs[n + 1] = id_, 0
        self._n = n + 1
        self._look_for_head(n, id_)

    def close(self) -> None:
        """Nothing to free."""

    def _penalties(self) -> dict[int, float]:
        """The penalties, by id, taken off the logits of ids that would continue a repetition."""
        n, start = self._n, max(self._n - self._last_n, 0)
        limit = self._limit(start)
        if n - start <= self._allowed or limit < self._allowed:
            return {}
        runs = np.minimum(self._runs[start + 1 : n], np.arange(1, n - start))
        at = np.flatnonzero(runs >= self._allowed)
        longest: dict[int, int] = {}
        for id_, run in zip(self._ids[start + 1 : n][at].tolist(), np.minimum(runs[at], limit).tolist(), strict=True):
            longest[id_] = max(run, longest.get(id_, 0))
        return {id_: self._penalty(run) for id_, run in longest.items() if not self._breakers.is_whole(id_)}

    def _penalty(self, run: int) -> float:
        exponent = run - self._allowed
        exponent = min(exponent, self._most) if self._most else exponent
        return float(np.float32(self._multiplier * self._base**exponent))

    def _limit(self, start: int) -> int:
        """How many of the last ids may be a repetition: those after the last breaker."""
        last, ids = self._n - 1, self._ids[: self._n]
        for at in reversed(self._heads):
            n_after = self._breakers.n_after(ids, at)
            if at >= start and n_after >= 0:
                return last - at - n_after
        if self._broken is not None and self._broken[0] >= start:
            return last - self._broken[0] - self._broken[1]
        return self._n - start

    def _look_for_head(self, at: int, id_: int) -> None:
        while self._heads and self._heads[0] < at - _MOST_IDS:
            old = self._heads.popleft()
            n_after = self._breakers.n_after(self._ids[:at], old)
            if n_after >= 0:
                self._broken = old, n_after
        if self._breakers.may_begin(id_):
            self._heads.append(at)


def _runs(ids: Sequence[int]) -> list[int]:
    """For each of ids how many of the last ones end there too: the Z function of the reversed list. 0 for the last."""
    n = len(ids)
    back = ids[::-1]
    z = [0] * n
    left = right = 0
    for k in range(1, n):
        length = min(right - k, z[k - left]) if k < right else 0
        while k + length < n and back[length] == back[k + length]:
            length += 1
        z[k] = length
        if k + length > right:
            left, right = k, k + length
    return z[::-1]
