"""ngram-cache: drafts from statistics of short n-grams: of the context, of earlier answers (dynamic) and of a corpus
(static).

The thresholds are llama.cpp's: the context needs less evidence than earlier answers, and a static file weighs the
candidates of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from uad.base.types import Draft, Origin
from uad.drafts.lookup.counts import (
    LONGER,
    LONGEST,
    SIZES,
    WIDTH,
    Known,
    NgramCounts,
    Several,
    best,
    counts_of,
    longer_key,
)
from uad.drafts.lookup.lookup_drafter import LookupDrafter, SlotText
from uad.drafts.lookup.sources import Located, TableWalk, WalkSource
from uad.drafts.lookup.store import StoreFile

KIND = f"statistics of n-grams of {SIZES} ids"
N_DRAFT = 16
"""Short contexts say little about what comes later."""
_N_MATCH = SIZES[-2]
"""Ids that must be known for the way on from there to be followed."""
N_COPIED = 24
"""Ids of a copy that is followed. More take longer to find than other drafters need."""
_STEP_IDS = 512
"""New ids counted per round: a long prompt is spread over several, so that other sequences need not wait."""
_TAKE_BACK_IDS = 1 << 13
"""Ids that are taken back when a prompt leaves them out; where there are more, or fewer are left, all are counted
again.
"""
_LIMIT = 1 << 18
"""Dynamic n-grams kept; from there on counts are halved."""
_N_STATIC = 8
"""Followers of a static pair of ids that are kept: the most frequent."""
_STATIC_WEIGHT = 100
_PAIR = SIZES[1]
"""The size that static statistics use."""


def drafter(static: StoreFile | None = None, dynamic: StoreFile | None = None, share: str = "server") -> LookupDrafter:
    """Drafts id by id what most often followed the last 12, 6, 2 or 1 ids in the context, else in earlier answers, else
    in a corpus. Where at least 6 were known the way on from there is followed, edits and all.

    `static` and `dynamic` are files; a file that cannot be used is left alone. `share`: earlier answers of all slots
    ("server"), of the same slot ("slot") or none ("off"); the dynamic file needs "server".
    """
    shared = Statistics(NgramCounts() if share == "server" else None, _static(static))
    earlier = shared.earlier
    file = dynamic if dynamic is not None and earlier is not None and dynamic.fill(earlier) else None

    def save() -> None:
        if file is not None and earlier is not None:
            file.save(earlier.rows())

    return LookupDrafter(
        Origin.NGRAM_CACHE,
        lambda text: NgramCache(text, shared if share != "slot" else Statistics(NgramCounts(), shared.pairs)),
        shared if share != "slot" else None,
        save,
    )


def store_file(path: Path, vocabulary: str) -> StoreFile:
    """A file of n-gram statistics, static or dynamic: both have one format."""
    return StoreFile(path, KIND, WIDTH, vocabulary)


class Evidence(NamedTuple):
    """The evidence for drafting a follower of `size` ids: the least count of all followers, and its percentage of them;
    and the kind of the draft.
    """

    size: int
    least: int
    percent: int
    kind: str

    def is_enough(self, count: int, total: int) -> bool:
        """Whether `count` of `total` followers are."""
        return total >= self.least and 100 * count >= self.percent * total


def _evidence(name: str, *needed: tuple[int, int, int]) -> tuple[Evidence, ...]:
    return tuple(Evidence(*evidence, f"{Origin.NGRAM_CACHE}/{name}-{evidence[0]}") for evidence in needed)


LAX = _evidence("context", (12, 1, 50), (6, 1, 50), (2, 2, 50), (1, 2, 66))
STRICT = _evidence("dynamic", (12, 2, 66), (6, 2, 66), (2, 3, 66), (1, 4, 75))
_STATIC = Evidence(0, 2, 50, f"{Origin.NGRAM_CACHE}/static")


class Pick(NamedTuple):
    """A follower, its share, the size of the n-gram that it followed, and the kind of a draft that begins with it."""

    id: int
    share: float
    size: int
    kind: str


class StaticPair(NamedTuple):
    """The count of all followers of a pair of ids, and the most frequent of them with theirs."""

    total: int
    followers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics from outside the context: counts of earlier answers (None: they are not remembered), and pairs of a
    corpus.
    """

    earlier: NgramCounts | None
    pairs: dict[tuple[int, ...], StaticPair]

    @property
    def memory(self) -> int:
        """Bytes."""
        return (self.earlier.memory if self.earlier is not None else 0) + 400 * len(self.pairs)


class NgramCache:
    """One slot: counts of its first `size` ids, and what all slots know."""

    def __init__(self, text: SlotText, known: Statistics) -> None:
        self._text = text
        self._known = known
        self.context = NgramCounts(longer=True)
        self.size = 0

    @property
    def memory(self) -> int:
        return self.context.memory + self._known.memory

    def begin(self, n_kept: int) -> None:
        if self.size - n_kept > min(n_kept, _TAKE_BACK_IDS):
            self.context, self.size = NgramCounts(longer=True), 0
        elif n_kept < self.size:
            self.context.take(self._text.ids[: self.size], n_kept)
            self.size = n_kept

    def end(self) -> None:
        """The answer becomes part of the dynamic statistics."""
        ids, n_prompt, earlier = self._text.ids, self._text.n_prompt, self._known.earlier
        if earlier is not None and len(ids) > n_prompt:
            start = max(n_prompt - LONGEST, 0)
            earlier.add(ids[start:], n_prompt - start)
            if len(earlier) > _LIMIT:
                earlier.age()

    def draft(self, n: int) -> Draft | None:
        ids, size = self._text.ids, self.size  # of the new ids as many as a round may take
        start, self.size = max(size - LONGER, 0), min(len(ids), size + _STEP_IDS)
        self.context.add(ids[start : self.size], size - start)
        if n <= 0 or not self._text.ids:
            return None
        pick = None if self._text.aligner.is_copying else self._pick(self._text.ids[-LONGEST:])
        draft = self._text.copy(min(n, N_COPIED), _N_MATCH, lambda: self._find(pick))
        return draft if draft is not None and draft.ids else self._picked(min(n, N_DRAFT), pick)

    def _find(self, pick: Pick | None) -> Located | None:
        ids = self._text.ids[-LONGER:]
        if len(ids) < LONGEST or self.size < len(self._text.ids) or pick is None or pick.size < _N_MATCH:
            return None
        return Located(WalkSource(TableWalk(ids, self._step), len(ids) - 1), pick.size)

    def _step(self, ids: list[int]) -> tuple[int, float] | None:
        """The next id of a walk, and how far it is believed: an id that alone followed such a long n-gram in the
        context is beyond doubt.
        """
        known = self.context.table.get(tuple(ids[-LONGEST:]))
        if known is not None:
            if len(counts := counts_of(known)) == 1:
                return next(iter(counts)), 1.0
            if self.context.longer is not None and len(ids) >= LONGER:
                id_ = self.context.longer.get(longer_key(ids, len(ids)))
                if id_ is not None:
                    return id_, 1.0
        pick = self._pick(ids)
        return None if pick is None else (pick.id, pick.share)

    def _picked(self, n: int, pick: Pick | None = None) -> Draft | None:
        """Without following; pick: the first one, if it is known already."""
        ids, picks = self._text.ids[-LONGEST:], list[Pick]()
        while len(picks) < n:
            pick = pick or self._pick(ids)
            if pick is None:
                break
            picks.append(pick)
            ids.append(pick.id)
            pick = None
        if not picks:
            return None
        return Draft(
            tuple([pick.id for pick in picks]),
            tuple([pick.share for pick in picks]),
            self._text.origin,
            kind=picks[0].kind,
        )

    def _pick(self, ids: list[int]) -> Pick | None:
        """The next id after these."""
        static = self._known.pairs.get(tuple(ids[-_PAIR:]))
        pick = _look_up(self.context, ids, LAX, static)
        if pick is None and self._known.earlier is not None:
            pick = _look_up(self._known.earlier, ids, STRICT, static)
        if pick is None and static is not None:
            id_, count = static.followers[0]
            if _STATIC.is_enough(count, static.total):
                return Pick(id_, count / (static.total + 1), 0, _STATIC.kind)
        return pick


def _look_up(
    counts: NgramCounts, ids: Sequence[int], evidence: Sequence[Evidence], static: StaticPair | None
) -> Pick | None:
    """The follower of the longest n-gram that has enough evidence."""
    table = counts.table
    for size, least, percent, kind in evidence:
        known = table.get(tuple(ids[-size:])) if size <= len(ids) else None
        if known is None:
            continue
        if static is not None:
            id_, count, total = _weighed(known, static)
        else:
            id_, count, total = known.best() if isinstance(known, Several) else best(known)
        if total >= least and 100 * count >= percent * total:
            return Pick(id_, count / (total + 1), size, kind)
    return None


def _weighed(known_here: Known, static: StaticPair) -> tuple[int, int, int]:
    """The counts that `best` returns, where followers that the static statistics know too count many times."""
    counts = counts_of(known_here)
    usual, _, total = best(counts)
    known = dict(static.followers)
    id_ = max((usual, *known), key=lambda follower: counts.get(follower, 0) * known.get(follower, 1 / _STATIC_WEIGHT))
    return id_, counts[id_], total


def _static(file: StoreFile | None) -> dict[tuple[int, ...], StaticPair]:
    counts = NgramCounts()
    if file is None or not file.fill(counts):
        return {}
    return {
        gram: StaticPair(
            sum(followers.values()), tuple(sorted(followers.items(), key=lambda item: -item[1])[:_N_STATIC])
        )
        for gram, followers in counts.followers.items()
        if len(gram) == _PAIR
    }
