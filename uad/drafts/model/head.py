"""Drafts written by a head of the target, from the hidden rows of the target's own decodes.

A head that goes on id by id reads, at position p, the id there and the hidden row of position p - 1, and predicts the
id of p + 1. For ids that it guessed it reads its own hidden rows; once these are accepted it reads them again with the
target's. A head of blocks reads the hidden rows alone, each at its position, and then the last id with masks after it,
for which it predicts several ids at once. Neither knows bytes: the vocabulary is the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Floats, Hidden
from uad.base.common.logits import Logits
from uad.base.common.sequences import common_prefix
from uad.base.types import GREEDY, Ask, Clock, Commit, Draft, Origin, Rows, SamplingParams
from uad.drafts.model.choosing import Chooser
from uad.drafts.model.draft_work import NoPace
from uad.engine.drafter import Pace
from uad.text.vocab.table import VocabTable

Choosers = Callable[[SamplingParams, int], Chooser]
"""Makes a chooser for an answer sampled with these parameters, after a prompt of this many ids."""
_NO_PACE = NoPace()
_IDS_WORTH_CATCHING_UP = 32  # ids; fewer are left for the next draft where none is asked for


class HiddenSource(Protocol):
    """The target's hidden rows; `uad.llama.hidden.HiddenRows` is one."""

    def expect(self, seq: int, first: int) -> None:
        """From now on the rows of this sequence from position `first` on are kept."""

    def ignore(self, seq: int) -> None:
        """Rows of this sequence are no longer needed."""

    def cut(self, seq: int, pos: int) -> None:
        """Rows from position pos on are of another text."""

    def span(self, seq: int) -> tuple[int, int]:
        """The positions whose rows are held: from, and up to but without."""

    def get(self, seq: int, start: int, end: int) -> Hidden:
        """The rows of positions start to end, [n, width]."""


class Head(Protocol):
    """A head's context as drafting needs it; `uad.llama.head.HeadContext` is one."""

    n_ctx: int
    n_batch: int
    width: int
    origin: Origin
    behind: ClassVar[int]
    """Positions by which the hidden row that an id is read with lies before it: 1, or 0 for a head of blocks."""
    first: ClassVar[int]
    """The first position that is read; at 0 an id of `behind` 1 has zeros before it."""
    n_block: int
    """Ids that are guessed at once; 0: one by one."""

    @property
    def source(self) -> HiddenSource:
        """The hidden rows of its target."""

    def fused(self, hidden: Sequence[Hidden]) -> Sequence[Hidden]:
        """The target's rows as `read` takes them. Raises DecodeError."""

    def read(self, rows: Sequence[Rows], hidden: Sequence[Hidden]) -> None:
        """Decode ids, each with its hidden row. Raises NoKvRoomError or DecodeError."""

    def guess(self, places: Sequence[tuple[int, int, int]]) -> Logits:
        """A head of blocks guesses what follows the last id of some texts, given as sequence, position and id: logits
        of n_block ids for each, [texts * n_block, n_vocab], valid until the next decode. Raises what `read` does.
        """

    def logits(self) -> npt.NDArray[np.float32]:
        """[rows that wanted logits, n_vocab] in the order of the rows; valid until the next decode."""

    def outputs(self) -> Hidden:
        """[rows that wanted logits, width]: the head's own hidden rows, valid until the next decode."""

    def take_back(self, seq: int, n: int) -> int:
        """Forget positions >= n; returns how many ids are left."""

    def clear(self, seq: int) -> None:
        """Forget all positions."""


@dataclass(slots=True)
class _HeadText:
    """One sequence: its ids, and which positions the head's KV holds: ids[start:n_read] with the target's hidden rows,
    then guesses up to `end`.
    """

    ids: list[int]
    chooser: Chooser
    start: int = 0
    n_read: int = 0
    end: int = 0
    n_observed: int = 0

    def observe(self) -> None:
        """The chooser gets what was committed since the last time."""
        if self.n_observed < len(self.ids):
            self.chooser.observe(self.ids[self.n_observed :])
            self.n_observed = len(self.ids)


@dataclass(slots=True)
class _Work:
    """One ask while a round drafts for it: ids[first:end] of its text are read; then `row` and `hidden` are those of
    the next id.
    """

    ask: Ask
    text: _HeadText
    first: int = 0
    end: int = 0
    row: Floats | None = None
    hidden: Hidden | None = None
    ids: list[int] = field(default_factory=list)
    p: list[float] = field(default_factory=list)

    @property
    def n_read(self) -> int:
        return self.end - self.first

    def is_ready(self, n_last: int) -> bool:
        """Whether a draft begins after what is read, but for n_last ids that are read with the draft."""
        return self.ask.n_max > 0 and 0 < self.end == len(self.text.ids) - n_last

    def draft(self, origin: Origin) -> Draft:
        """The guesses, unless they are fewer than was asked for."""
        if len(self.ids) < max(self.ask.n_min, 1):
            return Draft(origin=origin, n_read=self.n_read)
        return Draft(tuple(self.ids), tuple(self.p), origin, n_read=self.n_read)


class HeadDrafter:
    """Drafts with a head. window: most ids that it reads to catch up with a text; if there are more, it reads the last
    ones.
    """

    def __init__(
        self, head: Head, choosers: Choosers, vocab: VocabTable, window: int, clock: Clock = perf_counter
    ) -> None:
        self._head = head
        self.origin = head.origin
        self._source = head.source
        self._n_last = 1 - head.behind  # ids at the end of a text whose hidden rows are not there before they are read
        self._choosers = choosers
        self._vocab = vocab
        self._window = window or head.n_ctx
        self._clock = clock
        self._texts: dict[int, _HeadText] = {}
        self._former: dict[int, _HeadText] = {}  # of texts that are over: the head's KV is still there
        self._nothing = np.zeros((head.behind - head.first, head.width), np.float32)  # rows of what lies before a text

    # --- lifecycle

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        self.end(seq)
        text = _HeadText(list(prompt), self._choosers(sampling, len(prompt)))
        former, n_same = self._former.pop(seq, None), 0
        if former is not None:
            n_same = common_prefix(former.ids, text.ids)
            text.end = former.end
            if (n := min(n_same, former.n_read)) > former.start:
                text.start, text.n_read = former.start, n
        self._source.cut(seq, n_same)  # a copy of another text may have taken the place of what the target decoded
        self._texts[seq] = text
        self._source.expect(seq, max(len(prompt) - self._window - 1, 0))

    def observe(self, commit: Commit) -> None:
        text = self._texts.get(commit.seq)
        if text is not None:
            text.ids += commit.ids

    def end(self, seq: int) -> None:
        text = self._texts.pop(seq, None)
        if text is not None:
            self._source.ignore(seq)
            self._former[seq] = text

    def reset(self) -> None:
        """Raises what clearing the KV does."""
        for seq in {*self._texts, *self._former}:
            self._source.ignore(seq)
            self._head.clear(seq)
        self._texts.clear()
        self._former.clear()

    # --- a round

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        pace = pace or _NO_PACE
        works = [self._work(ask) for ask in asks]
        self._catch_up([work for work in works if work is not None and work.n_read])
        if self._head.n_block:
            self._guess([work for work in works if work is not None and work.is_ready(self._n_last)])
        else:
            self._lockstep([work for work in works if work is not None and work.row is not None], pace)
        return [Draft() if work is None else work.draft(self.origin) for work in works]

    def _work(self, ask: Ask) -> _Work | None:
        """The rows to read for it in this round. Nothing if the target's rows are missing, or if a few ids can wait."""
        text = self._texts.get(ask.seq)
        if text is None:
            return None
        first, last = self._unread(ask.seq, text)
        n = min(last - first, ask.n_read or last - first)
        if n <= 0 or (not ask.n_max and n < min(ask.n_read or _IDS_WORTH_CATCHING_UP, _IDS_WORTH_CATCHING_UP)):
            return _Work(ask, text)
        return _Work(ask, text, first, first + n)

    def _unread(self, seq: int, text: _HeadText) -> tuple[int, int]:
        """The positions that can be read, from and up to but without: those whose hidden rows are held."""
        (held_from, held_to), behind = self._source.span(seq), self._head.behind
        last = min(len(text.ids) - self._n_last, held_to + behind)
        first = text.n_read
        earliest = held_from + behind if held_from else self._head.first
        if first < earliest or last - first > self._window:
            first = max(earliest, last - self._window)
        return first, last

    def _catch_up(self, works: Sequence[_Work]) -> None:
        """One batched decode of what was committed and not read. Where a new window begins, what lies before it is
        forgotten.
        """
        rows: list[Rows] = []
        hidden: list[Hidden] = []
        ready: list[_Work] = []
        room = self._head.n_batch
        for work in works:
            work.end = min(work.end, work.first + room)
            if not work.n_read:
                continue
            room -= work.n_read
            self._take_back(work)
            ids = work.text.ids[work.first : work.end]
            is_ready = not self._head.n_block and work.is_ready(self._n_last)
            rows.append(Rows(work.ask.seq, work.first, ids, int(is_ready)))
            hidden.append(self._hidden_of(work))
            work.text.n_read = work.text.end = work.end
            if is_ready:
                ready.append(work)
        self._read(rows, self._head.fused(hidden) if rows else (), ready)

    def _take_back(self, work: _Work) -> None:
        """The KV ends where reading begins."""
        text, seq = work.text, work.ask.seq
        if work.first != text.n_read or not text.n_read:
            self._head.clear(seq)
            text.start = work.first
        elif text.end > text.n_read:
            self._head.take_back(seq, text.n_read)

    def _hidden_of(self, work: _Work) -> Hidden:
        """For each id the target's hidden row that it is read with."""
        first, end = work.first - self._head.behind, work.end - self._head.behind
        rows = self._source.get(work.ask.seq, max(first, 0), end)
        return rows if first >= 0 else np.concatenate([self._nothing, rows])

    def _read(self, rows: Sequence[Rows], hidden: Sequence[Hidden], ready: Sequence[_Work]) -> None:
        """Decode; `ready` are the works of those rows that want logits, in their order."""
        if not rows:
            return
        self._head.read(rows, hidden)
        if not ready:
            return
        for work, row, own in zip(ready, self._head.logits(), self._head.outputs(), strict=True):
            work.row, work.hidden = row, own

    def _lockstep(self, live: list[_Work], pace: Pace) -> None:
        """All sequences draft together, one id each per batched decode, until each has enough or loses confidence."""
        for work in live:
            work.text.observe()
            work.text.chooser.start(b"")
        while True:
            live = [work for work in live if self._advance(work, pace)]
            worth = pace.go_on([work.ask.seq for work in live]) if live else ()
            live = [work for work, more in zip(live, worth, strict=True) if more]
            if not live:
                return
            began = self._clock()
            rows = [Rows(work.ask.seq, work.text.end, work.ids[-1:], 1) for work in live]
            own = [work.hidden[None].copy() for work in live if work.hidden is not None]
            for work in live:
                work.text.end += 1
            self._read(rows, own, live)
            pace.stepped(len(live), self._clock() - began)

    def _guess(self, works: Sequence[_Work]) -> None:
        """All sequences draft together, a block each in one decode, of which each takes what it has confidence in."""
        n = self._head.n_block
        works = [work for work in works if work.end + n < self._head.n_ctx][: self._head.n_batch // n]
        if not works:
            return
        for work in works:
            if work.text.end > work.end:  # an earlier block, with nothing read since
                self._head.take_back(work.ask.seq, work.end)
            work.text.end = work.end + n + 1
            work.text.observe()
            work.text.chooser.start(b"")
        logits = self._head.guess([(work.ask.seq, work.end, work.text.ids[work.end]) for work in works])
        for i, work in enumerate(works):
            for work.row in logits[i * n : (i + 1) * n]:
                if not self._advance(work, _NO_PACE):
                    break

    def _advance(self, work: _Work, pace: Pace) -> bool:
        """Choose one more id; False where the draft ends before or after it."""
        assert work.row is not None
        id_, p = work.text.chooser.choose(work.row)
        if p < work.ask.p_min:
            return False
        work.ids.append(id_)
        work.p.append(p)
        pace.wrote(work.ask.seq, p)
        work.text.chooser.wrote(self._vocab.texts[id_])
        return id_ not in self._vocab.eog and len(work.ids) < work.ask.n_max and work.text.end < self._head.n_ctx
