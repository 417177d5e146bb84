"""Where the thoughts of an answer begin and end, by its ids. Knows no sampler and no grammar."""

from __future__ import annotations

from uad.base.types import ThoughtBounds
from uad.text.vocab.table import VocabTable, partial_length


class ThoughtTracker:
    """Gets every id of an answer, in order.

    n: ids inside of thoughts so far, n_here: of the thought that runs; a marker that is one id is not among them.
    """

    def __init__(self, bounds: ThoughtBounds, table: VocabTable) -> None:
        self._start, self._end = bounds.start.strip().encode(), bounds.end.strip().encode()
        self._anywhere = bounds.anywhere
        self._table = table
        self._tail = self._last = b""
        self._may_begin = not bounds.in_thought
        self.is_inside = bounds.in_thought
        self.n = self.n_here = 0

    @property
    def is_cut(self) -> bool:
        """Whether the last id ends inside of a character."""
        return ends_in_character(self._last)

    def feed(self, id_: int) -> None:
        """The answer goes on with this id."""
        data = self._table.texts[id_] or self._table.special_names.get(id_, "").encode()
        was_inside = self.is_inside
        self._last = (self._last + data)[-4:]
        # One id may have several markers: "so</think>ok<think>" ends a thought, and what follows that, "ok<think>", may
        # begin another. A marker may lie across ids: of "<thi" the tail is kept, and looked at again with "nk>" after
        # it.
        rest: bytes | None = self._tail + data
        while rest is not None:
            rest = self._after_end(rest) if self.is_inside else self._after_start(rest)
        if was_inside and self.is_inside:
            self.n, self.n_here = self.n + 1, self.n_here + 1

    def _after_end(self, data: bytes) -> bytes | None:
        """The bytes after the end of the thought; None where it has not ended."""
        _, mark, rest = data.partition(self._end)
        if mark:
            self.is_inside, self._may_begin = False, self._anywhere
            return rest
        self._tail = _last(data, len(self._end) - 1)
        return None

    def _after_start(self, data: bytes) -> bytes | None:
        """The bytes after the start of a thought; None where no thought has begun."""
        self._tail = b""
        if not self._may_begin:
            return None
        if not self._anywhere:
            data = data.lstrip()
        before, mark, rest = data.partition(self._start)
        if mark and (self._anywhere or not before):
            self.is_inside, self.n_here = True, 0
            return rest
        if self._anywhere:
            self._tail = _last(data, len(self._start) - 1)
        elif self._start.startswith(data):
            self._tail = data
        else:
            self._may_begin = False
        return None


def _last(data: bytes, n: int) -> bytes:
    return data[-n:] if n else b""


def ends_in_character(data: bytes) -> bool:
    """Whether the bytes end inside of a UTF-8 character."""
    return partial_length(data) > 0
