"""What drafters that copy one earlier place have in common: it is looked up once, and the copy followed from there, edits and all.

Knows no way to look up.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from uad.drafters.following import Following, Guess, Source, TextSource
from uad.drafters.history import History
from uad.drafters.lookup import LookupDrafter, S
from uad.types import GREEDY, Commit, Draft, Origin, SamplingParams

STEP = 64
"""New ids indexed per round: all that a round can write."""


class Found(NamedTuple):
    """A place to copy from: `length` ids before the next one are the answer's last ones."""

    source: Source
    length: int


def catch_up(history: History, following: Following | None, at_most: int) -> None:
    """`History.catch_up`, without what was copied word for word from the same text: its n-grams are found there. None: all of it, for who
    counts how often they occur."""
    if following is not None:
        for source, start, stop in following.copied(len(history.ids)):
            if isinstance(source, TextSource) and source.text is history.ids:
                history.skip(start, stop, source.place + 1)
    history.catch_up(at_most)


class CopyDrafter(LookupDrafter[S]):
    """A `LookupDrafter` that follows what it found until the answer leaves it, or looks every draft up as llama.cpp does (`follow` False).

    n_match: ids that a look-up needs. What is known of one answer is forgotten with the next request.
    """

    def __init__(self, origin: Origin, n_match: int, follow: bool) -> None:
        super().__init__(origin)
        self._n_match = n_match
        self._follow = follow
        self._following: dict[int, Following] = {}

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        super().begin(seq, prompt, sampling)
        self._following[seq] = Following()

    def observe(self, commit: Commit) -> None:
        self._following[commit.seq].judge(commit.ids)
        super().observe(commit)

    def reset(self) -> None:
        super().reset()
        self._following.clear()

    def _copy(self, seq: int, state: S, n: int) -> Draft:
        """n ids, or as many as there are: of the copy that is followed, else of one that is found, else of what may be a copy behind a
        difference."""
        following = self._following[seq] if self._follow else Following()
        if not following.copies and (found := self._find(state)) is not None:
            guess: Guess | None = following.start(found.source, found.length, n)
        else:
            guess = following.go_on(n)
        return self._nothing if guess is None else guess.draft(n, self._origin, self._n_match)

    @abstractmethod
    def _find(self, state: S) -> Found | None:
        """Look the last ids up."""
