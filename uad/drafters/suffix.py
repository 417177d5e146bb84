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

from uad.drafters.copying import catch_up
from uad.drafters.following import MARGIN, Following, TextSource
from uad.drafters.history import BELIEFS, MAX_MATCH, History, match_length, suffix_hashes
from uad.drafters.lookup import LookupDrafter
from uad.drafters.store import Rows, StoreFile
from uad.types import Ask, Commit, Draft, Origin

KIND = "answers"
LEVELS = (2, 5, 12)
_N_ENDS = (8, 8, 4)
"""Occurrences that vote, of each text, by level: what is found with more ids is more certain."""
_STEP = 16
"""New ids indexed per round: three levels are too many for more, and what is copied from afar is skipped."""
_FREE = 4
"""Ids drafted beyond twice the length of the match."""
_FOLLOWED = 32
"""Ids in a row that agree with one source, from which on nothing else is looked at."""
_GOOD = 4
"""Length of match from which on one elsewhere is preferred to a source that was followed less far, or may be resumed."""
SEPARATOR = -1
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


class Match(NamedTuple):
    """An earlier occurrence of the text's suffix: the text it is in, where it ends, its length, and whether that text is the own one."""

    text: list[int]
    end: int
    length: int
    own: bool

    @property
    def source(self) -> TextSource | AnswerSource:
        """The place of its last id."""
        return (TextSource if self.own else AnswerSource)(self.text, self.end - 1)

    def continuation(self, n: int) -> list[int]:
        """What followed, at most n ids. In the own text a copy may go on into what it writes; of an answer it ends with the answer."""
        return self.source.ahead(n)[1:]


class _State:
    def __init__(self, answers: Answers | None) -> None:
        self.history = History(LEVELS)
        self.answers = answers
        self.n_prompt = 0
        self.following = Following()

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
        state.following = Following()

    def observe(self, commit: Commit) -> None:
        self._slots[commit.seq].following.judge(commit.ids)
        super().observe(commit)

    def _draft(self, state: _State, ask: Ask) -> Draft:
        n, following = min(ask.n_max, self._n_max), state.following
        catch_up(state.history, following, _STEP)
        if n <= 0:
            return self._nothing
        matches = self._matches(state) if following.length < _FOLLOWED and not following.amid else []
        draft = None
        goes_on = following.resumed or not following.copies or not matches
        if goes_on and not any(match.length >= _GOOD for match in matches) and (guess := following.go_on(n)) is not None:
            draft = guess.draft(min(n, _most(max(guess.length, _GOOD))), self._origin, LEVELS[1])
        elif matches:
            draft = self._voted(state, matches, min(n, _most(max(match.length for match in matches))))
        if draft is None:
            return self._nothing
        return draft

    def _voted(self, state: _State, matches: list[Match], n: int) -> Draft:
        n_ahead = n + MARGIN
        source, p, winner = vote([(match, match.continuation(n_ahead)) for match in matches], n_ahead)
        state.following.start(winner.source, winner.length, n)
        ids, p = state.following.edited(state.ids[-1], source, p)
        return Draft(ids[:n], p[:n], self._origin, kind=self._origin if winner.own else _ANSWERS_KIND)

    def _matches(self, state: _State) -> list[Match]:
        """Occurrences of the longest suffix that is found, in the text and in both halves of the answers; and the source of the last draft,
        whose place may be older than the occurrences that are looked at."""
        ids = state.ids
        hashes = suffix_hashes(ids, LEVELS)
        found = matches_in(state.history, hashes, ids)
        if state.answers is not None:
            for text in state.answers.texts:
                if text.ids:
                    found += matches_in(text, hashes, ids)
        if (followed := _followed(state.following)) is not None and not any(
            match.end == followed.end and match.text is followed.text for match in found
        ):
            found.append(followed)
        return found if self._n_match <= LEVELS[0] else [match for match in found if match.length >= self._n_match]

    def _memory_of(self, state: _State) -> int:
        return state.history.memory + (state.answers.memory if state.answers is not None and self._share == "slot" else 0)


def _followed(following: Following) -> Match | None:
    """The source that is followed, as a match; None amid an edit, and where it ends."""
    source = following.source
    if not isinstance(source, TextSource | AnswerSource) or source.place + 1 >= len(source.text):
        return None
    return Match(source.text, source.place + 1, min(following.length, MAX_MATCH), not isinstance(source, AnswerSource))


def _most(length: int) -> int:
    """Ids drafted behind a match of this length."""
    return _FREE + 2 * length


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


def vote(matches: list[tuple[Match, list[int]]], n: int) -> tuple[tuple[int, ...], tuple[float, ...], Match]:
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
    return tuple(ids), tuple(p), winner or matches[0][0]
