"""ngram-simple: look up the last n ids in the text and copy what followed them the last time. ngram-map-k and
ngram-map-k4v: n-grams of the text as keys, with what followed them and how much of it was accepted.

An occurrence of a key counts once the size_m ids after it (its value) are all in the text.
"""

from __future__ import annotations

from typing import NamedTuple

from uad.base.common.sequences import common_suffix
from uad.base.types import Draft, Origin
from uad.drafts.lookup.history import MAX_MATCH_IDS, GramIndex, agreement
from uad.drafts.lookup.lookup_drafter import LookupDrafter, SlotText
from uad.drafts.lookup.sources import Located, TextSource

_N_KEYS = 4096
"""Keys of which it is remembered how much was accepted, per slot; the oldest go first."""
_N_ENDS = 64
"""Occurrences of a key that are counted: the newest."""
_LEAD = 2
"""How many times as frequent as all others together a value must be."""


def simple_drafter(size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> LookupDrafter:
    """Drafts the size_m ids after the last earlier place of the last size_n ids, if these have at least min_hits
    earlier places.
    """
    return LookupDrafter(Origin.NGRAM_SIMPLE, lambda text: NgramSimple(text, size_n, size_m, min_hits))


def drafter(size_n: int = 12, size_m: int = 48, min_hits: int = 1, n_values: int = 1) -> LookupDrafter:
    """Drafts the value after the key's last occurrence (n_values 1, ngram-map-k), or one of the first n_values that is
    at least twice as frequent as all others together (4, ngram-map-k4v).

    Needs min_hits occurrences. Of a value no more is drafted than was accepted of it the last time; none of it, if none
    was.
    """
    origin = Origin.NGRAM_MAP_K if n_values == 1 else Origin.NGRAM_MAP_K4V
    return LookupDrafter(origin, lambda text: NgramMap(text, size_n, size_m, min_hits, n_values))


class NgramSimple:
    """One slot of ngram-simple: an index of its n-grams. Other ways to choose among their ends are subclasses."""

    def __init__(self, text: SlotText, size_n: int, size_m: int, min_hits: int) -> None:
        self._text = text
        self._size_m = size_m
        self._min_hits = min_hits
        self.index = GramIndex(text.ids, size_n)

    @property
    def memory(self) -> int:
        return self.index.memory

    def begin(self, n_kept: int) -> None:
        self.index.shrink(n_kept)

    def draft(self, n: int) -> Draft | None:
        self.index.grow()
        return self._text.copy(min(n, self._size_m), self.index.n, self._find)

    def _find(self) -> Located | None:
        """The place to copy from, if there is one."""
        ids, n = self._text.ids, self.index.n
        ends = self.index.last_ends(len(ids), self._min_hits) if len(ids) > n else []
        return (
            Located(TextSource(ids, ends[0] - 1), common_suffix(ids, ends[0], ids, MAX_MATCH_IDS, n))
            if len(ends) >= self._min_hits
            else None
        )

    def end(self) -> None:
        """Nothing more is known then."""


class _Tried(NamedTuple):
    """The last draft: its name among the accepted lengths, where it begins, and where in the text it should appear."""

    name: tuple[int, ...]
    start: int
    at: int


class NgramMap(NgramSimple):
    """One slot of the others. `accepted`: by key (and value, where there are several) how many ids were accepted, and
    the last id that this rests on.
    """

    def __init__(self, text: SlotText, size_n: int, size_m: int, min_hits: int, n_values: int) -> None:
        super().__init__(text, size_n, size_m, min_hits)
        self._n_values = n_values
        self.accepted: dict[tuple[int, ...], tuple[int, int]] = {}
        self.tried: _Tried | None = None

    @property
    def memory(self) -> int:
        return super().memory + (240 + 8 * self.index.n) * len(self.accepted)

    def begin(self, n_kept: int) -> None:
        """Forget whatever rests on ids that are no longer there."""
        self._settle()
        super().begin(n_kept)
        self.accepted = {name: known for name, known in self.accepted.items() if known[1] <= n_kept}

    def draft(self, n: int) -> Draft | None:
        self._settle()
        draft = super().draft(n)
        return draft if draft is None or self.tried is None else draft.first(self._n_accepted(self.tried.name))

    def _n_accepted(self, name: tuple[int, ...]) -> int:
        return self.accepted.get(name, (self._size_m, 0))[0]

    def _find(self) -> Located | None:
        ids, n, m = self._text.ids, self.index.n, self._size_m
        if len(ids) < n + m:
            return None
        ends = self.index.last_ends(len(ids) - m + 1, max(_N_ENDS, self._min_hits))
        start = self._choose(ends) if len(ends) >= self._min_hits else None
        if start is None:
            return None
        name = ids[-n:] if self._n_values == 1 else ids[-n:] + ids[start : start + m]
        self.tried = _Tried(tuple(name), start, len(ids))
        return Located(TextSource(ids, start - 1), common_suffix(ids, start, ids, MAX_MATCH_IDS, n))

    def _choose(self, ends: list[int]) -> int | None:
        """Where the value begins that is to be drafted. A further value than n_values is not counted."""
        if self._n_values == 1:
            return ends[0]
        places: dict[tuple[int, ...], list[int]] = {}
        for end in reversed(ends):
            value = tuple(self._text.ids[end : end + self._size_m])
            if value in places or len(places) < self._n_values:
                places.setdefault(value, []).append(end)
        best = max(places.values(), key=len)
        n_others = sum(map(len, places.values())) - len(best)
        return best[0] if len(best) >= _LEAD * n_others else None

    def _settle(self) -> None:
        """Remember how much of the last draft's value was written by now, whichever drafter drafted it."""
        if (tried := self.tried) is None:
            return
        self.tried = None
        ids = self._text.ids
        n, known = agreement(ids[tried.start : tried.start + self._size_m], ids, tried.at)
        if known or n > self._n_accepted(tried.name):
            self.accepted[tried.name] = n, tried.at + n + 1
            if len(self.accepted) > _N_KEYS:
                del self.accepted[next(iter(self.accepted))]
