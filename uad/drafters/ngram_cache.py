"""ngram-cache: drafts from statistics of short n-grams: of the context, of earlier answers (dynamic) and of a corpus (static).

The thresholds are llama.cpp's: the context needs less evidence than earlier answers, and a static file weighs the candidates of both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from uad.drafters.copying import CopyDrafter, Found
from uad.drafters.counts import ID_BITS, ID_MASK, LONGER, LONGEST, SIZES, WIDTH, Entry, NgramCounts, best, items, key_of, longer_key
from uad.drafters.following import Following
from uad.drafters.history import ID_BYTES
from uad.drafters.store import StoreFile
from uad.drafters.ways import Walk, Way
from uad.types import Ask, Draft, Origin
from uad.vocab.prefix import common_prefix

KIND = f"statistics of n-grams of {SIZES} ids"
N_DRAFT = 16
"""Short contexts say little about what comes later."""
_N_MATCH = SIZES[-2]
"""Ids that must be known for the way on from there to be followed."""
N_COPIED = 24
"""Ids of a copy that is followed. More take longer to find than other drafters need."""
_STEP = 512
"""New ids counted per round: a long prompt is spread over several, so that other sequences need not wait."""
_TAKE_BACK = 1 << 13
"""Ids that are taken back when a prompt leaves them out; where there are more, or fewer are left, counting starts anew."""
_LIMIT = 1 << 18
"""Dynamic n-grams kept; from there on counts are halved."""
_N_STATIC = 8
"""Followers of a static pair of ids that are kept: the most frequent."""
_STATIC_WEIGHT = 100
_PAIR = 1
"""Place of the tables of pairs, the size that static statistics use."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a follower needs to be drafted, by n-gram size: so many counts of all followers, and this percentage of them."""

    counts: tuple[int, ...]
    percent: tuple[int, ...]


LAX = Evidence((2, 2, 1, 1), (66, 50, 50, 50))
STRICT = Evidence((4, 3, 2, 2), (75, 66, 66, 66))

_Top: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""The count of all followers, and the most frequent of them with theirs."""
_Pick: TypeAlias = tuple[int, float, str]
"""A follower, its share, and the kind of a draft that begins with it."""


def store_file(path: Path, vocabulary: str) -> StoreFile:
    """A file of n-gram statistics, static or dynamic: both have one format."""
    return StoreFile(path, KIND, WIDTH, vocabulary)


@dataclass(slots=True)
class _State:
    """One slot: counts of ids[:size], without the stretches that were `copied`; the answer starts at n_prompt."""

    dynamic: NgramCounts | None
    ids: list[int] = field(default_factory=list)
    size: int = 0
    copied: list[tuple[int, int]] = field(default_factory=list)
    n_prompt: int = 0
    context: NgramCounts = field(default_factory=lambda: NgramCounts(longer=True))


class _Way(Way):
    """Through the counts of a slot. `guessed`: places of ids that the context does not have after the LONGEST ids before them."""

    def __init__(self, cache: NgramCache, state: _State) -> None:
        super().__init__(state.ids[-LONGER:])
        self.guessed: list[int] = []
        self._cache = cache
        self._state = state
        self._key = key_of(self.ids[-LONGEST:])

    def extend(self, size: int) -> None:
        ids, key, known = self.ids, self._key, self._state.context.tables[-1].get
        longer = self._state.context.longer
        for n in range(len(ids), size):
            entry = known(key)
            if isinstance(entry, int):  # all that is known to follow so many ids
                id_ = entry & ID_MASK
            elif longer is not None and n >= LONGER and entry is not None and (one := longer.get(longer_key(ids, n))) is not None:
                id_ = one
            elif (pick := self._cache.pick(self._state, key, n)) is not None:
                id_, share, kind = pick
                self.doubt(share)
                if kind != _LONGEST_KIND:
                    self.guessed.append(n)
            else:
                break
            ids.append(id_)
            key = (key << ID_BITS | id_) & _KEY_MASK
        self._key = key


class NgramCache(CopyDrafter[_State]):
    """Drafts id by id what most often followed the last 12, 6, 2 or 1 ids in the context, else in earlier answers, else in a corpus. Where
    at least 6 were known the way on from there is followed, edits and all.

    `static` and `dynamic` are files; a file that cannot be used is left alone. `share`: earlier answers of all slots ("server"), of the
    same slot ("slot") or none ("off"); the dynamic file needs "server".
    """

    def __init__(
        self, static: StoreFile | None = None, dynamic: StoreFile | None = None, share: str = "server", follow: bool = True
    ) -> None:
        super().__init__(Origin.NGRAM_CACHE, _N_MATCH, follow)
        self._share = share
        self._static = _static(static)
        self._shared = NgramCounts() if share == "server" else None
        self._file = dynamic if dynamic is not None and self._shared is not None and dynamic.fill(self._shared) else None

    @property
    def memory(self) -> int:
        return super().memory + (self._shared.memory if self._shared else 0) + 400 * len(self._static)

    def close(self) -> None:
        """Write the dynamic file, unless it was refused at start."""
        if self._file is not None and self._shared is not None:
            self._file.save(self._shared.rows())

    def end(self, seq: int) -> None:
        """The answer becomes part of the dynamic statistics."""
        state = self._slots[seq]
        if state.dynamic is not None and len(state.ids) > state.n_prompt:
            start = max(state.n_prompt - LONGEST, 0)
            state.dynamic.add(state.ids[start:], state.n_prompt - start)
            if len(state.dynamic) > _LIMIT:
                state.dynamic.age()

    def _new(self, seq: int) -> _State:
        return _State(self._shared if self._share == "server" else NgramCounts() if self._share == "slot" else None)

    def _begin(self, state: _State, prompt: Sequence[int]) -> None:
        kept = common_prefix(state.ids, prompt)
        size = min(kept, state.copied[0][0]) if state.copied else kept
        if state.size - size > min(size, _TAKE_BACK):
            state.context, state.size = NgramCounts(longer=True), 0
        elif size < state.size:
            stop = state.size
            for start, end in reversed(state.copied):
                state.context.take(state.ids[:stop], max(end, size))
                stop = start
            if stop > size:
                state.context.take(state.ids[:stop], size)
            state.size = size
        state.copied = []
        state.ids[kept:] = prompt[kept:]
        state.n_prompt = len(prompt)

    def _draft(self, state: _State, ask: Ask) -> Draft:
        self._count(state, self._following[ask.seq])
        if ask.n_max <= 0 or not state.ids:
            return self._nothing
        draft = self._copy(ask.seq, state, min(ask.n_max, N_COPIED)) if self._follow else self._nothing
        return draft if draft.ids else self._picked(state, min(ask.n_max, N_DRAFT))

    def _count(self, state: _State, following: Following) -> None:
        """The new ids, but for what was copied word for word: it is counted where it came from."""
        for source, start, stop in following.copied(len(state.ids)):
            if not isinstance(source, Walk) or not isinstance(source.way, _Way):
                continue
            start = max(start + LONGEST, state.size)
            if i := bisect_right(source.way.guessed, source.place):
                start = max(start, stop - source.place + source.way.guessed[i - 1])
            if stop - start > LONGEST:
                self._count_to(state, start)
                if state.size == start:
                    state.copied.append((start, stop))
                    state.size = stop
        self._count_to(state, len(state.ids))

    @staticmethod
    def _count_to(state: _State, stop: int) -> None:
        start, stop = max(state.size - LONGER, 0), min(stop, state.size + _STEP)
        if stop > state.size:
            state.context.add(state.ids[start:stop], state.size - start)
            state.size = stop

    def _find(self, state: _State) -> Found | None:
        if len(state.ids) < LONGEST or state.size < len(state.ids):
            return None
        pick = self.pick(state, key_of(state.ids[-LONGEST:]), LONGEST)
        length = 0 if pick is None else _LENGTHS.get(pick[2], 0)
        way = _Way(self, state)
        return Found(Walk(way, len(way.ids) - 1), length) if length >= _N_MATCH else None

    def _picked(self, state: _State, n: int) -> Draft:
        """Without following."""
        ids = state.ids
        guess: list[int] = []
        p: list[float] = []
        kind, key, n_known = "", key_of(ids[-LONGEST:]), len(ids)
        while len(guess) < n and (pick := self.pick(state, key, n_known)) is not None:
            id_, share, source = pick
            kind = kind or source
            guess.append(id_)
            p.append(share)
            key = (key << ID_BITS | id_) & _KEY_MASK
            n_known += 1
        return Draft(tuple(guess), tuple(p), self._origin, kind=kind) if guess else self._nothing

    def pick(self, state: _State, key: int, n_known: int) -> _Pick | None:
        """The next id after the n-gram `key`, of which n_known ids are there."""
        static = self._static.get(key & _MASKS[_PAIR]) if self._static and n_known > _PAIR else None
        if (pick := _look_up(state.context, key, n_known, _CONTEXT, static)) is not None:
            return pick
        if state.dynamic is not None and (pick := _look_up(state.dynamic, key, n_known, _DYNAMIC, static)) is not None:
            return pick
        if static is not None:
            total, ((id_, count), *_) = static
            if total >= LAX.counts[_PAIR] and 100 * count >= LAX.percent[_PAIR] * total:
                return id_, count / (total + 1), _STATIC_KIND
        return None

    def _memory_of(self, state: _State) -> int:
        own = state.dynamic.memory if state.dynamic is not None and self._share == "slot" else 0
        return ID_BYTES * len(state.ids) + state.context.memory + own


_MASKS = tuple((1 << ID_BITS * size) - 1 for size in SIZES)
_KEY_MASK = _MASKS[-1]
_STATIC_KIND = f"{Origin.NGRAM_CACHE}/static"


def _levels(name: str, evidence: Evidence) -> tuple[_Level, ...]:
    """What to look up, for the longest n-gram first."""
    levels = zip(range(len(SIZES)), SIZES, _MASKS, evidence.counts, evidence.percent, strict=True)
    return tuple((place, size, mask, n, percent, f"{Origin.NGRAM_CACHE}/{name}-{size}") for place, size, mask, n, percent in levels)[::-1]


_Level: TypeAlias = tuple[int, int, int, int, int, str]
"""Place of the table, size and mask of the n-gram, counts and percentage needed, and the kind of drafts that begin here."""
_CONTEXT = _levels("context", LAX)
_DYNAMIC = _levels("dynamic", STRICT)
_LONGEST_KIND = _CONTEXT[0][-1]
_LENGTHS = {kind: size for _, size, _, _, _, kind in (*_CONTEXT, *_DYNAMIC)}


def _look_up(counts: NgramCounts, key: int, n_known: int, levels: tuple[_Level, ...], static: _Top | None) -> _Pick | None:
    """The follower of the longest n-gram that has enough evidence."""
    for place, size, mask, needed, percent, kind in levels:
        entry = counts.tables[place].get(key & mask)
        if entry is None or size > n_known:
            continue
        id_, count, total = best(entry) if static is None else _weighed(entry, static[1])
        if total >= needed and 100 * count >= percent * total:
            return id_, count / (total + 1), kind
    return None


def _weighed(entry: Entry, static: tuple[tuple[int, int], ...]) -> tuple[int, int, int]:
    """As `best`, where followers that the static statistics know too count many times."""
    id_, count, total = best(entry)
    if isinstance(entry, int):
        return id_, count, total
    known = dict(static)
    weight = count * known[id_] * _STATIC_WEIGHT if id_ in known else count
    for other, n_static in static:
        n = entry.counts.get(other, 0)
        if n * n_static * _STATIC_WEIGHT > weight:
            id_, count, weight = other, n, n * n_static * _STATIC_WEIGHT
    return id_, count, total


def _static(file: StoreFile | None) -> dict[int, _Top]:
    counts = NgramCounts()
    if file is None or not file.fill(counts):
        return {}
    return {
        key: (best(entry)[2], tuple(sorted(items(entry), key=lambda item: -item[1])[:_N_STATIC]))
        for key, entry in counts.tables[_PAIR].items()
    }
