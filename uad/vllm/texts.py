"""Which request a row of vLLM's batch is: told by its ids alone, since rows move, and requests leave and come back.

Of two requests with the same ids so far, drafting knows the same, so it does not matter which is which.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Ints
from uad.base.types import Draft

NO_DRAFT = Draft()
GONE = 16
"""Calls without a request after which it is taken to be over; one that comes back is begun again."""


@dataclass(slots=True)
class RowText:
    """One request's text in a slot. `ids[:n]` are its ids, prompt and answer; draft: what was submitted last, n_rows:
    the rows of it, the text's last id and trials included.
    """

    seq: int
    ids: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    n: int = 0
    last_call: int = 0
    is_running: bool = False
    draft: Draft = NO_DRAFT
    n_rows: int = 1

    def matches(self, row: Ints, n: int) -> bool:
        """Whether the row's first n ids are this text."""
        return self.n == n and bool(np.array_equal(self.ids[:n], row[:n]))

    def n_common(self, row: Ints, n: int) -> int:
        """How many ids at the front are the same."""
        n = min(self.n, n)
        differs = self.ids[:n] != row[:n]
        return int(differs.argmax()) if differs.any() else n

    def take(self, row: Ints, n: int, begin: int = 0) -> None:
        """The row's first n ids are the text now; those before begin are so already."""
        if n > len(self.ids):
            grown = np.empty(max(n + n // 2, 256), np.int32)
            grown[:begin] = self.ids[:begin]
            self.ids = grown
        self.ids[begin:n] = row[begin:n]
        self.n = n


@dataclass(slots=True)
class FollowedRow:
    """A row whose request is known. new: ids that it did not have before. has_begun: it took its slot in this call.
    is_next: it was in the call before, so that one step of the engine lies between.
    """

    text: RowText
    new: tuple[int, ...] = ()
    has_begun: bool = False
    is_next: bool = False


class BatchTexts:
    """The texts of n_slots requests. eog: ids that end an answer; n_stages: of a pipeline, which takes turns."""

    def __init__(self, n_slots: int, eog: Collection[int] = (), n_stages: int = 1) -> None:
        self.texts = [RowText(seq) for seq in range(n_slots)]
        self.ended: list[int] = []
        """Slots whose text ended in the last call, before others began."""
        self._eog = eog
        self._n_stages = n_stages
        self._n_calls = 0
        self._by_row: dict[int, RowText] = {}

    def follow(
        self, sampled: Sequence[Sequence[int]], n_tokens: npt.NDArray[np.int32], ids: Ints
    ) -> list[FollowedRow | None]:
        """Which request each row is. sampled[i]: ids that were just written, none in a piece of a prompt; ids[i,
        :n_tokens[i]]: all. None for rows that are still read and unknown, and where all slots are taken.
        """
        self._n_calls += 1
        self.ended = []
        followed: list[FollowedRow | None] = [None] * len(sampled)
        free = {text.seq: text for text in self.texts if text.is_running}
        for row, new in enumerate(sampled):
            text = self._known(row, ids[row], int(n_tokens[row]) - len(new), free)
            if text is not None:
                del free[text.seq]
                followed[row] = self._goes_on(text, ids[row], new)
        for text in free.values():
            if self._is_over(text):
                self._end(text)
        for row, new in enumerate(sampled):
            if followed[row] is None and len(new):
                followed[row] = self._begin(ids[row], int(n_tokens[row]))
        self._by_row = {row: row_text.text for row, row_text in enumerate(followed) if row_text is not None}
        return followed

    def reset(self) -> None:
        """Forget all."""
        self.texts = [RowText(text.seq) for text in self.texts]
        self._by_row = {}

    def _known(self, row: int, ids: Ints, n_before: int, free: dict[int, RowText]) -> RowText | None:
        usual = self._by_row.get(row)
        if usual is not None and usual.seq in free and usual.matches(ids, n_before):
            return usual
        return next((text for text in free.values() if text.matches(ids, n_before)), None)

    def _goes_on(self, text: RowText, ids: Ints, new: Sequence[int]) -> FollowedRow:
        is_next = self._n_calls - text.last_call <= self._n_stages
        text.last_call = self._n_calls
        if len(new):
            text.take(ids, text.n + len(new), text.n)
        return FollowedRow(text, tuple(map(int, new)), is_next=is_next and bool(len(new)))

    def _is_over(self, text: RowText) -> bool:
        return self._n_calls - text.last_call > GONE or int(text.ids[text.n - 1]) in self._eog

    def _end(self, text: RowText) -> None:
        text.is_running, text.draft, text.n_rows = False, NO_DRAFT, 1
        self.ended.append(text.seq)

    def _begin(self, ids: Ints, n: int) -> FollowedRow | None:
        """In the slot that has most of it; of slots that are taken only the one that was away longest."""
        idle = [text for text in self.texts if not text.is_running]
        if idle:
            text = max(idle, key=lambda text: (text.n_common(ids, n), -text.last_call))
        else:
            away = [text for text in self.texts if self._n_calls - text.last_call > self._n_stages]
            if not away:
                return None
            text = min(away, key=lambda text: text.last_call)
            self._end(text)
        text.take(ids, n)
        text.last_call, text.is_running, text.draft = self._n_calls, True, NO_DRAFT
        return FollowedRow(text, has_begun=True)
