"""suffix: the longest suffix of the text that occurred before, in the text itself or in earlier answers, and what
followed it mostly.

Suffixes of 2, 5 and 12 ids are indexed by hash; from the longest of them that is found, the newest occurrences are
compared further back, id by id. So the longest match is exact up to 64 ids, as far as it is among these occurrences,
and everything is constant time per id. A suffix automaton would be exact without that bound, but costs CPython half a
kilobyte per id and can neither shrink nor forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from uad.base.common.arrays import Ints
from uad.base.common.sequences import common_suffix
from uad.base.types import Draft, Origin
from uad.drafts.lookup.aligner import MARGIN
from uad.drafts.lookup.history import BELIEFS, ID_BYTES, MAX_MATCH_IDS, GramIndex
from uad.drafts.lookup.lookup_drafter import LookupDrafter, SlotText
from uad.drafts.lookup.sources import TextSource
from uad.drafts.lookup.store import StoreFile

KIND = "answers"
LEVELS = (2, 5, 12)
_N_ENDS = (8, 8, 4)
"""Occurrences that vote, of each text, by level: what is found with more ids is more certain."""
_FREE_IDS = 4
"""Ids drafted beyond twice the length of the match."""
_FOLLOWED_IDS = 32
"""Ids in a row that agree with one source, from which on nothing else is looked at."""
_GOOD = 4
"""Length of match from which on one elsewhere is preferred to a source that was followed less far, or may be
resumed.
"""
SEPARATOR = -1
_ANSWERS_KIND = "suffix/answers"


def drafter(
    n_match: int = 2,
    n_max: int = 48,
    size: int = 1 << 18,
    file: StoreFile | None = None,
    share: str = "server",
    n_slots: int = 1,
) -> LookupDrafter:
    """Drafts what followed the longest match, by a vote of the occurrences weighed with the square of their match
    lengths.

    At least n_match ids must match; at most n_max are drafted, and no more than about twice the match. `share` is whose
    earlier answers are looked at: those of all slots ("server"), of the same slot ("slot") or none ("off"); `size` is
    how many ids of answers are kept, in all slots together; `file` keeps them over restarts and needs "server".
    """
    shared = Answers(size) if share == "server" and size else None
    of_slot = size // n_slots if share == "slot" else 0
    file = file if file is not None and shared is not None and file.fill(shared) else None

    def save() -> None:
        if file is not None and shared is not None:
            file.save(shared.rows())

    def lookup(text: SlotText) -> SuffixLookup:
        return SuffixLookup(text, shared or (Answers(of_slot) if of_slot else None), n_match, n_max)

    return SuffixDrafter(Origin.SUFFIX, lookup, shared, save)


def store_file(path: Path, vocabulary: str) -> StoreFile:
    """A file of answers: one id per row, a separator after each answer."""
    return StoreFile(path, KIND, 1, vocabulary)


class SuffixDrafter(LookupDrafter):
    """The drafter of all slots; it goes on after the guesses of others, too."""

    def after(self, seq: int, ids: Sequence[int], n: int) -> Draft:
        lookup = self._slots[seq][1] if seq in self._slots else None
        return lookup.after(ids, n) if isinstance(lookup, SuffixLookup) else self._nothing


class SuffixIndex:
    """A growing text and where its n-grams of all LEVELS end."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.levels = [GramIndex(ids, n) for n in LEVELS]
        self._longest_first = [*zip(self.levels, _N_ENDS, strict=True)][::-1]

    @property
    def memory(self) -> int:
        """Bytes, without the ids."""
        return sum(level.memory for level in self.levels)

    def grow(self) -> None:
        """Index new ids."""
        if self.levels[0].size < len(self.ids):
            for level in self.levels:
                level.grow()

    def shrink(self, size: int) -> None:
        """Forget all but the first `size` ids; the others must still be there."""
        for level in self.levels:
            level.shrink(size)

    def matches(self, ids: list[int], is_own: bool = False) -> list[SuffixMatch]:
        """The newest occurrences of the longest suffix of ids that is indexed; the end of the text does not count.
        is_own: ids are those of the text, or go on from it.
        """
        text, is_end = self.ids, self.ids is ids
        if not text:
            return []
        self.grow()
        for index, most in self._longest_first:
            n = index.n
            if len(ids) < n:
                continue
            ends = index.last_ends(len(text), most) if is_end else index.ends(ids[-n:], len(text), most)
            if ends:
                own = is_own or is_end
                return [SuffixMatch(text, end, common_suffix(text, end, ids, MAX_MATCH_IDS, n), own) for end in ends]
        return []


class Answers:
    """Earlier answers, at most `capacity` ids: two halves, of which the older is dropped as a whole when the newer is
    full.
    """

    def __init__(self, capacity: int) -> None:
        self._half = max(capacity // 2, 1)
        self.texts = [SuffixIndex([])]

    @property
    def memory(self) -> int:
        """Bytes."""
        return sum(text.memory + ID_BYTES * len(text.ids) for text in self.texts)

    def add(self, ids: Sequence[int]) -> None:
        """Remember an answer; of one that is longer than half the capacity, the end."""
        ids = ids[max(len(ids) - self._half + 1, 0) :]
        if not ids:
            return
        if len(self.texts[0].ids) + len(ids) + 1 > self._half:
            self.texts = [SuffixIndex([]), self.texts[0]]
        self.texts[0].ids.extend((*ids, SEPARATOR))

    def rows(self) -> Ints:
        """All answers, oldest first, as rows for a file."""
        ids = [id_ for text in reversed(self.texts) for id_ in text.ids]
        return np.array(ids, dtype=np.int32).reshape(-1, 1)

    def load(self, rows: Ints) -> None:
        """Add the answers of a file."""
        ids = rows[:, 0]
        for answer in np.split(ids, np.flatnonzero(ids < 0)):
            self.add([id_ for id_ in answer.tolist() if id_ >= 0])


class AnswerSource(NamedTuple):
    """A place in an earlier answer, with which a copy ends."""

    text: list[int]
    place: int

    def trust(self, n: int) -> Sequence[float]:
        return ()

    def moved(self, n: int) -> AnswerSource:
        return AnswerSource(self.text, self.place + n)

    def ahead(self, n: int) -> list[int]:
        ids = self.text[self.place : self.place + n + 1]
        return ids[: ids.index(SEPARATOR)] if SEPARATOR in ids else ids


class SuffixMatch(NamedTuple):
    """An earlier occurrence of the text's suffix: the text it is in, where it ends, its length, and whether that text
    is the own one.
    """

    text: list[int]
    end: int
    length: int
    own: bool

    @property
    def source(self) -> TextSource | AnswerSource:
        """The place of its last id."""
        return (TextSource if self.own else AnswerSource)(self.text, self.end - 1)

    def continuation(self, n: int) -> list[int]:
        """The ids that followed, at most n. In its own text a copy may go on into what it writes; in another answer it
        ends with that answer.
        """
        rest = self.text[self.end : self.end + n]
        if not self.own:
            return rest[: rest.index(SEPARATOR)] if SEPARATOR in rest else rest
        return (rest * -(-n // len(rest)))[:n] if 0 < len(rest) < n else rest


class SuffixLookup:
    """One slot: an index of its text, and the answers that it may look at."""

    def __init__(self, text: SlotText, answers: Answers | None, n_match: int, n_max: int) -> None:
        self._text = text
        self._answers = answers
        self._n_match = n_match
        self._n_max = n_max
        self.index = SuffixIndex(text.ids)

    @property
    def memory(self) -> int:
        return self.index.memory + (self._answers.memory if self._answers is not None else 0)

    def begin(self, n_kept: int) -> None:
        self.index.shrink(n_kept)

    def end(self) -> None:
        """The answer joins the earlier ones."""
        if self._answers is not None:
            self._answers.add(self._text.ids[self._text.n_prompt :])

    def draft(self, n: int) -> Draft | None:
        aligner, n = self._text.aligner, min(n, self._n_max)
        self.index.grow()
        if n <= 0:
            return None
        matches = self._matches() if aligner.length < _FOLLOWED_IDS and not aligner.is_in_edit else []
        goes_on = aligner.resumed or not aligner.is_copying or not matches
        if goes_on and not any(match.length >= _GOOD for match in matches) and (guess := aligner.guess(n)) is not None:
            return guess.draft(min(n, _most(max(guess.length, _GOOD))), Origin.SUFFIX, LEVELS[1])
        return self._voted(matches, min(n, _most(max(match.length for match in matches)))) if matches else None

    def after(self, ids: Sequence[int], n: int) -> Draft:
        """At most n ids that may follow the text and these ids; neither the text nor the copy at hand changes."""
        ahead, n = [*self._text.ids[-MAX_MATCH_IDS:], *ids], min(n, self._n_max)
        matches = self._longest(ahead)
        if n <= 0 or not matches:
            return Draft(origin=Origin.SUFFIX, kind=Origin.SUFFIX)
        n = min(n, _most(max(match.length for match in matches)))
        source, p, winner = vote([(match, match.continuation(n)) for match in matches], n)
        return Draft(source, p, Origin.SUFFIX, kind=Origin.SUFFIX if winner.own else _ANSWERS_KIND)

    def _longest(self, ids: list[int]) -> list[SuffixMatch]:
        """Occurrences of the longest suffix of ids that is found, in the text and in both halves of the answers."""
        texts = self._answers.texts if self._answers is not None else ()
        matches = [*self.index.matches(ids, is_own=True), *(match for text in texts for match in text.matches(ids))]
        return [match for match in matches if match.length >= self._n_match]

    def _voted(self, matches: list[SuffixMatch], n: int) -> Draft:
        n_ahead, aligner = n + MARGIN, self._text.aligner
        source, p, winner = vote([(match, match.continuation(n_ahead)) for match in matches], n_ahead)
        aligner.start(winner.source, winner.length, n)
        ids, p = aligner.with_edits(self._text.ids[-1], source, p)
        return Draft(ids[:n], p[:n], Origin.SUFFIX, kind=Origin.SUFFIX if winner.own else _ANSWERS_KIND)

    def _matches(self) -> list[SuffixMatch]:
        """Occurrences of the longest suffix that is found, in the text and in both halves of the answers; and the
        source of the last draft, whose place may be older than the occurrences that are looked at.
        """
        matches, followed = self._longest(self._text.ids), self._followed()
        if followed is None or followed.length < self._n_match:
            return matches
        is_known = any(match.end == followed.end and match.text is followed.text for match in matches)
        return matches if is_known else [*matches, followed]

    def _followed(self) -> SuffixMatch | None:
        """The source that is followed, as a match; None within an edit, and where it ends."""
        source = self._text.aligner.source
        if not isinstance(source, TextSource | AnswerSource) or source.place + 1 >= len(source.text):
            return None
        return SuffixMatch(
            source.text, source.place + 1, min(self._text.aligner.length, MAX_MATCH_IDS), isinstance(source, TextSource)
        )


def _most(length: int) -> int:
    """Ids drafted after a match of this length."""
    return _FREE_IDS + 2 * length


def vote(
    matches: list[tuple[SuffixMatch, list[int]]], n: int
) -> tuple[tuple[int, ...], tuple[float, ...], SuffixMatch]:
    """The continuation that most matches agree on, id by id, with the probability of each id; and the longest match
    after it.

    Each match comes with its continuation. Matches that disagree with a chosen id have no vote on the next ones. Of
    equal weights the longest match wins, then the newest.

    Three ids that match go on with "a b", two others that match with two ids each with "c d" and "c e". For the first
    id 3 * 3 = 9 stands against 2 * 2 + 2 * 2 = 8: "a" is chosen, and "b" follows without a vote, as only one is left.
    """
    live = sorted(matches, key=lambda match: -match[0].length)
    winner: SuffixMatch | None = None
    ids: list[int] = []
    p: list[float] = []
    while len(ids) < n:
        place = len(ids)
        live = [guess for guess in live if len(guess[1]) > place]
        if not live:
            break
        n_agreed = _n_agreed([rest[place:] for _, rest in live])
        if not n_agreed:
            weights: dict[int, int] = {}
            for match, rest in live:
                weights[rest[place]] = weights.get(rest[place], 0) + match.length * match.length
            id_ = max(weights, key=weights.__getitem__)
            live = [guess for guess in live if guess[1][place] == id_]
        first, rest = live[0]
        winner = winner or first
        if n_agreed:
            ids += rest[place : place + n_agreed]
            p += BELIEFS[first.length + place : first.length + len(ids)]
        else:
            ids.append(id_)
            p.append(BELIEFS[first.length + place] * weights[id_] / sum(weights.values()))
    return tuple(ids), tuple(p), winner or matches[0][0]


def _n_agreed(continuations: list[list[int]]) -> int:
    """How many ids they all begin with."""
    n, n_all = 0, len(continuations)
    if continuations.count(continuations[0]) == n_all:
        return len(continuations[0])
    for ids in zip(*continuations, strict=False):
        if ids.count(ids[0]) < n_all:
            break
        n += 1
    return n
