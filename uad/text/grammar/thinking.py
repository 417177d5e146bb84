"""A thought that may take a limited number of ids: at the bound it is closed by the model's own marker."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from uad.base.types import ThoughtBounds
from uad.text.grammar.protocol import Mask, Matcher
from uad.text.vocab.table import VocabTable
from uad.text.vocab.thoughts import ThoughtTracker

_LONGEST_CHARACTER_BYTES = 4  # bytes; as many ids at most are waited for until one is whole


class _Watch:
    """Which ids must follow, by the ids so far: `closing`, where a thought has taken all that it may."""

    def __init__(self, bounds: ThoughtBounds, table: VocabTable) -> None:
        self._tracker = ThoughtTracker(bounds, table)
        self._budget = bounds.budget
        self._all = bounds.closing
        self.closing: Sequence[int] = ()
        self._look()

    def twin(self) -> _Watch:
        """One that goes on by itself."""
        twin = copy(self)
        twin._tracker = copy(self._tracker)
        return twin

    def feed(self, id_: int) -> None:
        """The answer goes on with this id."""
        self._tracker.feed(id_)
        if self.closing:
            self.closing = self.closing[1:]
        else:
            self._look()

    def _look(self) -> None:
        """Between characters, or where one does not become whole."""
        # With a budget of 5 and a fifth id that ends inside of "é", the thought is closed after the id that makes it
        # whole, or four ids later at most.
        tracker, budget = self._tracker, self._budget
        if budget is None or not tracker.is_inside or tracker.n_here < budget:
            return
        if not tracker.is_cut or tracker.n_here >= budget + _LONGEST_CHARACTER_BYTES:
            self.closing = self._all


class ThinkingMatcher:
    """See `protocol.Matcher`. inner: what the answer is bound by beside the budget; it is passed all ids."""

    def __init__(self, bounds: ThoughtBounds, table: VocabTable, inner: Matcher | None = None) -> None:
        self._watch = _Watch(bounds, table)
        self._inner = inner

    @property
    def is_over(self) -> bool:
        return self._inner is not None and self._inner.is_over

    @property
    def forced(self) -> Sequence[int]:
        if self._watch.closing:
            return self._watch.closing
        return self._inner.forced if self._inner is not None else ()

    @property
    def expected(self) -> Sequence[tuple[int, float]]:
        if self._watch.closing:
            return [(id_, 1.0) for id_ in self._watch.closing]
        return self._inner.expected if self._inner is not None else ()

    def mask(self) -> Mask | None:
        if self._watch.closing:
            return Mask(np.array(self._watch.closing[:1], np.intp))
        return self._inner.mask() if self._inner is not None else None

    def accept(self, id_: int) -> None:
        self._watch.feed(id_)
        if self._inner is not None:
            self._inner.accept(id_)

    def n_valid(self, ids: Sequence[int]) -> int:
        watch, n = self._watch.twin(), 0
        for n, id_ in enumerate(ids):  # noqa: B007 (the last one counts)
            if watch.closing and id_ != watch.closing[0]:
                break
            watch.feed(id_)
        else:
            n = len(ids)
        return n if self._inner is None else self._inner.n_valid(ids[:n])
