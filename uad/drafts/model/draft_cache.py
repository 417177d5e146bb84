"""The contents of the draft's context for each slot: a text from some id on, read further as it grows. Knows no bytes,
and not what is drafted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from uad.base.types import Rows
from uad.drafts.model.draft_context import DraftContext
from uad.drafts.model.draft_work import STEPS_PER_ID, DraftedSequence, DraftWork
from uad.drafts.model.mirror import Mirror

_log = logging.getLogger("uad.draft")
IDS_WORTH_CATCHING_UP = 32
"""Ids; fewer are left for the next draft where none is asked for."""


@dataclass(frozen=True, slots=True)
class FormerText:
    """The part of a finished text that the KV still holds: ids from `skip` on, in n_in_kv positions or fewer."""

    ids: Sequence[int]
    skip: int
    n_in_kv: int


class DraftCache:
    """The KV of all slots. window: most ids that are read to catch up with a text; the last ones, if there are more
    (0: all).

    Without a window, ids[i] of a mirror has position i. A window begins with a text's usual first id: with skip = 100,
    ids[100] has position 1 after it, so that positions are 99 less than places in the mirror, or 100 where texts have
    no such id.
    """

    def __init__(self, context: DraftContext, window: int) -> None:
        self.context = context
        self.sequences: dict[int, DraftedSequence] = {}
        vocab = context.vocab
        self.bos = [vocab.bos] if vocab.add_bos and vocab.bos is not None else []
        self._window = window or context.n_ctx
        self._former: dict[int, FormerText] = {}

    def open(self, seq: int, sequence: DraftedSequence) -> DraftedSequence:
        """A slot's running text, which takes over what the slot's KV holds of its former one."""
        former = self._former.pop(seq, None)
        if former is not None:
            sequence.n_in_kv = former.n_in_kv
            sequence.earlier, sequence.earlier_skip = list(former.ids), former.skip
        self.sequences[seq] = sequence
        return sequence

    def end(self, seq: int) -> None:
        """The slot's text is over; its KV stays."""
        sequence = self.sequences.pop(seq, None)
        if sequence is not None:
            self._former[seq] = FormerText(*sequence.held, sequence.n_in_kv)

    def former(self, seq: int) -> FormerText | None:
        """The text still held by a slot in which nothing runs, with its KV taken back to exactly that; None if nothing
        is left. Raises whatever taking back raises.
        """
        former = self._former.pop(seq, None)
        if former is None:
            return None
        shift = former.skip - len(self.bos) if former.skip else 0
        n = self.context.take_back(seq, min(len(former.ids) - shift, former.n_in_kv))
        if n + shift <= former.skip:
            self.context.clear(seq)
            return None
        self._former[seq] = FormerText(former.ids[: n + shift], former.skip, n)
        return self._former[seq]

    def take_over(self, seq: int, former: FormerText | None) -> None:
        """A slot without a running text holds this, which was put into its KV; None: nothing."""
        self._former.pop(seq, None)
        if former is None:
            self.context.clear(seq)
        else:
            self._former[seq] = former

    def clear(self) -> None:
        """Forget all. Raises what clearing the KV does."""
        for seq in {*self.sequences, *self._former}:
            self.context.clear(seq)
        self.sequences.clear()
        self._former.clear()

    def _shift(self, mirror: Mirror) -> int:
        """The difference between an id's place in the mirror and its position."""
        return mirror.skip - len(self.bos) if mirror.skip else 0

    def room(self, mirror: Mirror) -> int:
        """How many ids the context still has room for after the mirror's."""
        return self.context.n_ctx - len(mirror.ids) + self._shift(mirror)

    def forget_far(self, seq: int, sequence: DraftedSequence) -> None:
        """Where the memory cannot stop near the place from which the text differs, what it goes back further is unread
        again: a backlog like any other.
        """
        mirror = sequence.mirror
        pos = mirror.n_kv - self._shift(mirror)
        if sequence.n_in_kv <= pos or pos - self.context.reach(seq, pos) <= IDS_WORTH_CATCHING_UP:
            return
        sequence.n_in_kv = self.context.take_back(seq, pos)
        mirror.n_kv = max(sequence.n_in_kv + self._shift(mirror), mirror.skip)

    def choose_window(self, work: DraftWork) -> None:
        """Where too much is unread, or the context is full, the model reads on from the last ids only."""
        mirror, n_ctx = work.sequence.mirror, self.context.n_ctx
        is_full = self.room(mirror) <= STEPS_PER_ID + work.ask.n_max
        if not is_full and mirror.n_unread <= self._window:
            return
        n = min(self._window, n_ctx // 2)
        mirror.read_last(n)
        work.first_choice = max(work.first_choice, mirror.skip + 1)
        if is_full and not work.sequence.is_cut:
            _log.info(
                "slot %d: the draft's context of %d tokens is full; it reads on from its last %d",
                work.ask.seq,
                n_ctx,
                n,
            )
            work.sequence.is_cut = True

    def rows(self, seq: int, mirror: Mirror, first: int, ids: list[int], n_logits: int, n_unsure: int = 0) -> Rows:
        """Rows for ids[first:], the window's first id before them where they begin it."""
        if mirror.skip and first == mirror.skip:
            return Rows(seq, 0, [*self.bos, *ids], n_logits, n_unsure)
        return Rows(seq, first - self._shift(mirror), ids, n_logits, n_unsure)

    def decode(self, rows: list[Rows]) -> None:
        """Read these rows, after the KV is taken back to where each begins. Raises NoKvRoomError or DecodeError."""
        if not rows:
            return
        n_batch = self.context.n_batch
        room = n_batch - sum(len(row.ids) for row in rows)
        for i, row in enumerate(rows):
            sequence = self.sequences[row.seq]
            again = self._again(row, sequence)
            if len(again) > room:  # nothing remembers a place near it
                for at in range(0, len(again), n_batch):
                    ids = again[at : at + n_batch]
                    self.context.decode([Rows(row.seq, row.pos - len(again) + at, ids, 0)])
            elif again:
                room -= len(again)
                rows[i] = Rows(row.seq, row.pos - len(again), [*again, *row.ids], row.n_logits, row.n_unsure)
            sequence.n_in_kv = row.pos + len(row.ids)
            sequence.mirror.n_kv = sequence.n_in_kv + self._shift(sequence.mirror)
        self.context.decode(self.context.prepare(rows))

    def _again(self, row: Rows, sequence: DraftedSequence) -> list[int]:
        """Takes the KV back to where the row begins; the ids before that which the memory could not keep."""
        if sequence.n_in_kv <= row.pos:
            return []
        n_left = self.context.take_back(row.seq, row.pos)
        mirror = sequence.mirror
        ids = [*self.bos, *mirror.ids[mirror.skip :]] if mirror.skip else mirror.ids
        return ids[n_left : row.pos]
