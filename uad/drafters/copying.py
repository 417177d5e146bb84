"""What drafters that copy one earlier place have in common: doubt about ids at which copies of this answer were wrong.

A copy knows no alternatives, and a long match makes it sure of every id. But where a text is edited, what was changed once is mostly
changed again (a renamed name): a draft that is cut before it saves the rows behind it. Only beliefs change, never the ids.

Knows no way to look up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from uad.drafters.lookup import LookupDrafter, S
from uad.drafters.protocol import Pace
from uad.types import Ask, Commit, Draft, Origin
from uad.vocab.prefix import common_prefix

_PRIOR = 0.5  # acceptances that every id begins with


class Doubts:
    """Of one answer: how often which ids were wrong where they were drafted, and how often right since."""

    def __init__(self) -> None:
        self._wrong: Counter[int] = Counter()
        self._right: Counter[int] = Counter()
        self._guess: tuple[int, ...] = ()

    def weigh(self, draft: Draft) -> Draft:
        """The draft with beliefs lowered at doubted ids; it is judged by what is written next, submitted or not."""
        self._guess = draft.ids
        if not self._wrong or self._wrong.keys().isdisjoint(draft.ids):
            return draft
        return replace(draft, p=tuple([p * self._odds(id_) for id_, p in zip(draft.ids, draft.p, strict=True)]))

    def _odds(self, id_: int) -> float:
        n_right = self._right[id_] + _PRIOR
        return n_right / (n_right + self._wrong[id_])

    def judge(self, ids: Sequence[int]) -> None:
        """The text goes on with ids."""
        guess, self._guess = self._guess, ()
        n = common_prefix(guess, ids)
        self._right.update([id_ for id_ in guess[:n] if id_ in self._wrong])
        if n < min(len(guess), len(ids)):
            self._wrong[guess[n]] += 1


class CopyDrafter(LookupDrafter[S]):
    """A `LookupDrafter` that doubts. What is known of one answer is forgotten with the next request."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin)
        self._doubts: dict[int, Doubts] = {}

    def begin(self, seq: int, prompt: Sequence[int]) -> None:
        super().begin(seq, prompt)
        self._doubts[seq] = Doubts()

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        return [self._doubts[ask.seq].weigh(draft) for ask, draft in zip(asks, super().propose(asks, pace), strict=True)]

    def observe(self, commit: Commit) -> None:
        super().observe(commit)
        self._doubts[commit.seq].judge(commit.ids)
