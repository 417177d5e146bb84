"""suffix: the longest suffix of the text that occurred before, in the text itself or in earlier answers, and what followed it mostly.

Suffixes of 2, 5 and 12 ids are indexed by hash; from the longest of them that is found, the newest occurrences are compared further back,
id by id. So the longest match is exact up to 64 ids, as far as it is among these occurrences, and everything is constant time per id.
A suffix automaton would be exact without that bound, but costs CPython half a kilobyte per id and can neither shrink nor forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from uad.drafters.history import BELIEFS, MAX_MATCH, History, copy, match_length, suffix_hashes
from uad.drafters.lookup import LookupDrafter
from uad.drafters.replacements import Replacements
from uad.drafters.store import Rows, StoreFile
from uad.types import Ask, Draft, Origin
from uad.vocab.prefix import common_prefix

KIND = "answers"
LEVELS = (2, 5, 12)
_N_ENDS = (8, 8, 4)
"""Occurrences that vote, of each text, by level: what is found with more ids is more certain."""
_STEP = 16
"""New ids indexed per round: three levels are too many for more, and what is copied from afar is skipped."""
_FREE = 4
"""Ids drafted beyond twice the length of the match."""
_RESUMED = 4
"""Length of match that a copy resumed behind a replaced id counts as."""
_ANCHOR = 8
"""Ids before the replaced one that must agree."""
SEPARATOR = -1
_RESUMED_KIND = "suffix/resumed"
_ANSWERS_KIND = "suffix/answers"


def store_file(path: Path, vocabulary: str) -> StoreFile:
    """A file of answers: one id per row, a separator after each answer."""
    return StoreFile(path, KIND, 1, vocabulary)


class Answers:
    """Earlier answers, at most `capacity` ids: two halves, of which the older is dropped as a whole when the newer is full."""

    def __init__(self, capacity: int, levels: Sequence[int] = LEVELS) -> None:
        self._half = max(capacity // 2, 1)
        self._levels = levels
        self.texts = [History(levels)]

    @property
    def memory(self) -> int:
        """Bytes."""
        return sum(text.memory for text in self.texts)

    def add(self, ids: Sequence[int]) -> None:
        """Remember an answer; of one that is longer than half the capacity, the end."""
        ids = ids[max(len(ids) - self._half + 1, 0) :]
        if not ids:
            return
        if len(self.texts[0].ids) + len(ids) + 1 > self._half:
            self.texts = [History(self._levels), self.texts[0]]
        text = self.texts[0]
        text.ids.extend((*ids, SEPARATOR))
        text.catch_up(len(text.ids))

    def rows(self) -> Rows:
        """All answers, oldest first, as rows for a file."""
        ids = [id_ for text in reversed(self.texts) for id_ in text.ids]
        return np.array(ids, dtype=np.int32).reshape(-1, 1)

    def load(self, rows: Rows) -> None:
        """Add the answers of a file."""
        ids = rows[:, 0]
        for answer in np.split(ids, np.flatnonzero(ids < 0)):
            self.add([id_ for id_ in answer.tolist() if id_ >= 0])


class Match(NamedTuple):
    """An earlier occurrence of the text's suffix: the text it is in, where it ends, its length, and whether that text is the own one.

    One that is `resumed` matches up to the last id only; its length is what such a match is worth.
    """

    text: list[int]
    end: int
    length: int
    own: bool
    resumed: bool = False

    def continuation(self, n: int) -> list[int]:
        """What followed, at most n ids. In the own text a copy may go on into what it writes; of an answer it ends with the answer."""
        if self.own:
            return copy(self.text, self.end, n)
        ids = self.text[self.end : self.end + n]
        return ids[: ids.index(SEPARATOR)] if SEPARATOR in ids else ids


class _Trail(NamedTuple):
    """The last draft: the match it was copied from, what the source says, the draft's ids, and where in the text they should appear."""

    match: Match
    source: tuple[int, ...]
    ids: tuple[int, ...]
    at: int


class _State:
    def __init__(self, answers: Answers | None) -> None:
        self.history = History(LEVELS)
        self.answers = answers
        self.n_prompt = 0
        self.trail: _Trail | None = None
        self.replacements = Replacements()

    @property
    def ids(self) -> list[int]:
        return self.history.ids


class SuffixDrafter(LookupDrafter[_State]):
    """Drafts what followed the longest match, by a vote of the occurrences weighed with the square of their match lengths.

    At least n_match ids must match; at most n_max are drafted, and no more than about twice the match. `share` is whose earlier
    answers are looked at: those of all slots ("server"), of the same slot ("slot") or none ("off"); `size` is how many ids of
    answers are kept, in all slots together; `file` keeps them over restarts and needs "server".
    """

    def __init__(
        self,
        n_match: int = 2,
        n_max: int = 48,
        size: int = 1 << 18,
        file: StoreFile | None = None,
        share: str = "server",
        n_slots: int = 1,
    ) -> None:
        super().__init__(Origin.SUFFIX)
        self._n_match = n_match
        self._n_max = n_max
        self._size = size if share == "server" else size // n_slots
        self._share = share if size else "off"
        self._answers = Answers(size) if self._share == "server" else None
        self._file = file if file is not None and self._answers is not None and file.fill(self._answers) else None

    @property
    def memory(self) -> int:
        return super().memory + (self._answers.memory if self._answers else 0)

    def close(self) -> None:
        """Write the file of answers, unless it was refused at start."""
        if self._file is not None and self._answers is not None:
            self._file.save(self._answers.rows())

    def end(self, seq: int) -> None:
        """The answer joins the earlier ones."""
        state = self._slots[seq]
        if state.answers is not None:
            state.answers.add(state.ids[state.n_prompt :])

    def _new(self, seq: int) -> _State:
        return _State(self._answers if self._share == "server" else Answers(self._size) if self._share == "slot" else None)

    def _begin(self, state: _State, prompt: Sequence[int]) -> None:
        state.history.begin(prompt)
        state.n_prompt = len(prompt)
        state.trail = None
        state.replacements = Replacements()

    def _draft(self, state: _State, ask: Ask) -> Draft:
        if state.trail is not None:
            self._settle(state, state.trail)
        state.history.catch_up(_STEP)
        n = min(ask.n_max, self._n_max)
        matches = self._matches(state) if n > 0 else []
        state.trail = None
        if not matches:
            return self._nothing
        n = min(n, _FREE + 2 * max(match.length for match in matches))
        source, p, winner = vote([(match, match.continuation(n)) for match in matches], n, ask.p_min)
        ids = state.replacements.apply(source)
        state.trail = _Trail(winner, source, ids, len(state.ids))
        return Draft(ids, p, self._origin, kind=_kind(winner))

    def _matches(self, state: _State) -> list[Match]:
        """Occurrences of the longest suffix that is found, in the text and in both halves of the answers."""
        ids = state.ids
        hashes = suffix_hashes(ids, LEVELS)
        found = matches_in(state.history, hashes, ids)
        if state.answers is not None:
            for text in state.answers.texts:
                if text.ids:
                    found += matches_in(text, hashes, ids)
        if state.trail is not None and (followed := follow(state.trail.match, len(ids) - state.trail.at, ids, found)) is not None:
            found.append(followed)
        return found if self._n_match <= LEVELS[0] else [match for match in found if match.length >= self._n_match]

    def _settle(self, state: _State, trail: _Trail) -> None:
        """Learn what was replaced. What continued a match longer than all levels need not be indexed now: its suffixes are found at the
        source as well."""
        written = state.ids[trail.at : trail.at + len(trail.ids) + 1]
        n = common_prefix(trail.ids, written)
        n_copied = n if trail.source is trail.ids else common_prefix(trail.source, written)
        state.replacements.learn(trail.source, written[: n + 1], min(n_copied, n + 1))
        if n_copied and trail.match.own and trail.match.length > LEVELS[-1]:
            n_copied = common_prefix(trail.match.continuation(n_copied), written)  # the vote may have gone on with another match
            state.history.skip(trail.at, trail.at + n_copied)

    def _memory_of(self, state: _State) -> int:
        return state.history.memory + (state.answers.memory if state.answers is not None and self._share == "slot" else 0)


def _kind(match: Match) -> str:
    """What drafts from such a match are calibrated as."""
    if match.resumed:
        return _RESUMED_KIND
    return Origin.SUFFIX if match.own else _ANSWERS_KIND


def longest(text: list[int], ends: Sequence[int], ids: list[int], known: int) -> list[int]:
    """Match lengths of these ends. Exact where an end beats all before it; the others keep what is known without a search."""
    best, last, lengths = known, len(ids), []
    for i, end in enumerate(ends):
        more = best + 1
        if i == 0 or (more <= min(end, MAX_MATCH, last) and text[end - more : end] == ids[last - more :]):
            best = match_length(text, end, ids, best)
            lengths.append(best)
        elif text[max(end - best, 0) : end] == ids[last - best :]:
            lengths.append(best)
        else:
            lengths.append(known)
    return lengths


def matches_in(text: History, hashes: Sequence[int], ids: list[int]) -> list[Match]:
    """The newest occurrences in a text of the longest suffix of ids that is indexed (hashes: of the suffixes, by level)."""
    for level in range(len(hashes) - 1, -1, -1):
        index = text.indexes[level]
        if ends := index.ends(text.ids, ids[-index.n :], hashes[level], len(text.ids), _N_ENDS[level]):
            own = text.ids is ids
            if len(ends) == 1:
                return [Match(text.ids, ends[0], match_length(text.ids, ends[0], ids, index.n), own)]
            return [Match(text.ids, end, n, own) for end, n in zip(ends, longest(text.ids, ends, ids, index.n), strict=True)]
    return []


def follow(match: Match, n_written: int, ids: list[int], found: Sequence[Match]) -> Match | None:
    """The source of the last draft, so many ids later: its place may be older than the occurrences that are looked at.

    Where the last id is another one than the source has, but the ids before it are the same, it may be a replaced word: the copy is
    resumed behind it, unless a good match is found elsewhere.
    """
    text, end = match.text, match.end + n_written
    if end >= len(text) or any(other.end == end and other.text is text for other in found):
        return None
    length = match_length(text, end, ids, 0)
    if length >= LEVELS[0]:
        return Match(text, end, length, match.own)
    if length or any(other.length >= _RESUMED for other in found):
        return None
    before = ids[-_ANCHOR - 1 : -1]
    return Match(text, end, _RESUMED, match.own, resumed=True) if text[max(end - _ANCHOR - 1, 0) : end - 1] == before else None


def vote(matches: list[tuple[Match, list[int]]], n: int, p_min: float) -> tuple[tuple[int, ...], tuple[float, ...], Match]:
    """The continuation that most matches agree on, id by id, with the probability of each id; and the longest match behind it.

    Each match comes with its continuation. Matches that disagree with a chosen id have no vote on the next ones. Of equal weights the
    longest match wins, then the newest.
    """
    live = sorted(matches, key=lambda match: -match[0].length)
    winner: Match | None = None
    ids: list[int] = []
    p: list[float] = []
    while len(ids) < n:
        place = len(ids)
        live = [one for one in live if len(one[1]) > place]
        if not live:
            break
        first, rest = live[0]
        if len(live) == 1 or all(other == rest for _, other in live):
            ids += rest[place:]
            p += BELIEFS[first.length + place : first.length + len(ids)]
            winner = winner or first
            break
        weights: dict[int, int] = {}
        for match, other in live:
            weights[other[place]] = weights.get(other[place], 0) + match.length * match.length
        id_ = max(weights, key=weights.__getitem__)
        live = [one for one in live if one[1][place] == id_]
        winner = winner or live[0][0]
        ids.append(id_)
        p.append(BELIEFS[live[0][0].length + place] * weights[id_] / sum(weights.values()))
    cut = next((i for i, one in enumerate(p) if one < p_min), len(p))
    return tuple(ids[:cut]), tuple(p[:cut]), winner or matches[0][0]
