"""Drafts written by a small model of any vocabulary: mirrors of all sequences, batched lockstep decodes, guesses handed
over as target ids.

Must not know the target's context, requests, or how long a draft should be: that comes with each ask.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from uad.drafters.choosing import Chooser
from uad.drafters.coupling import Coupling
from uad.drafters.draft_work import TAIL_IDS, DraftContext, DraftedSequence, DraftWork, NoPace, shared_out, with_trust
from uad.drafters.heal import Healer
from uad.drafters.mirror import Mirror
from uad.drafters.protocol import Pace
from uad.drafters.recall import Recall
from uad.mapping.rules import CompiledRules
from uad.types import GREEDY, Ask, Clock, Commit, Draft, Origin, Rows, SamplingParams
from uad.vocab.encode import Encoder
from uad.vocab.meter import Meter
from uad.vocab.translate import Translator

_log = logging.getLogger("uad.draft")
_STEPS_PER_ID = 8
_WORTH_CATCHING_UP = 32


_NO_PACE = NoPace()


class ModelDrafter:
    """Drafts with a model through bytes. heal: re-choose the ids after the edge; salvage: keep guesses that the target
    re-cut.
    """

    origin: ClassVar[Origin] = Origin.MODEL

    def __init__(
        self,
        context: DraftContext,
        target: Encoder,
        rules: CompiledRules,
        *,
        heal: bool = True,
        salvage: bool = True,
        window: int = 0,
        clock: Clock = perf_counter,
    ) -> None:
        """window: most ids that it reads to catch up with a text; the last ones, if there are more (0: all)."""
        self._context = context
        self._encoder = Encoder(context.vocab)
        self._target = target
        self._translator = Translator(target, self._encoder)
        self._rules = rules
        self._healer = Healer(context.vocab)
        self._coupling = Coupling(target, self._encoder, rules.back)
        self._heal = heal
        self._salvage = salvage
        self._window = window or context.n_ctx
        self._bos = [context.vocab.bos] if context.vocab.add_bos and context.vocab.bos is not None else []
        self._clock = clock
        # ids of running texts that no mirror has seen: it catches up, and is made, when it is drafted with, so that a
        # draft that is left alone costs nothing
        self._backlogs: dict[int, list[int]] = {}
        self._choosers: dict[int, Chooser] = {}
        self._sequences: dict[int, DraftedSequence] = {}
        self._former: dict[int, DraftedSequence] = {}  # of texts that are over: their KV is still there

    # --- lifecycle

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        self.end(seq)
        self._backlogs[seq] = list(prompt)
        self._choosers[seq] = self._coupling.chooser(sampling, len(prompt))

    def observe(self, commit: Commit) -> None:
        backlog = self._backlogs.get(commit.seq)
        if backlog is not None:
            backlog += commit.ids

    def end(self, seq: int) -> None:
        self._backlogs.pop(seq, None)
        sequence = self._sequences.pop(seq, None)
        if sequence is not None:
            self._former[seq] = sequence

    def reset(self) -> None:
        """Raises what clearing the KV does."""
        for seq in {*self._sequences, *self._former}:
            self._context.clear(seq)
        for known in (self._backlogs, self._choosers, self._sequences, self._former):
            known.clear()

    def _sequence(self, seq: int) -> DraftedSequence:
        """That of the running text; with its first draft it takes over what the slot's KV holds."""
        sequence = self._sequences.get(seq)
        if sequence is None:
            mirror, meter = Mirror(self._encoder, heal=self._heal), Meter(self._target, self._encoder)
            sequence = DraftedSequence(
                mirror, self._rules.stream(), deque(maxlen=TAIL_IDS), meter, self._choosers[seq], Recall(mirror)
            )
            former = self._former.pop(seq, None)
            if former is not None:
                sequence.n_in_kv = former.n_in_kv
                sequence.earlier, sequence.earlier_skip = former.held
            self._sequences[seq] = sequence
        return sequence

    # --- a round

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        pace = pace or _NO_PACE
        works = [self._prepare(ask, pace) for ask in asks]
        live = self._catch_up([work for work in works if work is not None], pace)
        self._lockstep(live, pace)
        return [Draft() if work is None else self._hand_over(work) for work in works]

    def _prepare(self, ask: Ask, pace: Pace) -> DraftWork | None:
        backlog = self._backlogs.get(ask.seq)
        if backlog is None:
            return None
        sequence = self._sequence(ask.seq)
        with sequence.meter:
            sequence.catch_up(backlog)
        backlog.clear()
        mirror = sequence.mirror
        if not self._salvage:
            mirror.drop_guesses()
        work = DraftWork(ask, sequence, n_left_over=len(mirror.ahead(mirror.edge)))
        with sequence.meter:
            work.first_choice = mirror.sync()
        self._forget_far(ask.seq, sequence)
        self._choose_window(work)
        self._narrow(work)
        sequence.chooser.start(mirror.ahead(mirror.edge))
        sequence.recall.start()
        for _, p in mirror.guesses():
            pace.wrote(ask.seq, p)
            work.n_left_guesses += 1
        return work

    def _forget_far(self, seq: int, sequence: DraftedSequence) -> None:
        """Where the memory cannot stop near the place from which the text differs, what it goes back further is unread
        again: a backlog like any other.
        """
        mirror = sequence.mirror
        pos = mirror.n_kv - self._shift(mirror)
        if sequence.n_in_kv <= pos or pos - self._context.reach(seq, pos) <= _WORTH_CATCHING_UP:
            return
        sequence.n_in_kv = self._context.take_back(seq, pos)
        mirror.n_kv = max(sequence.n_in_kv + self._shift(mirror), mirror.skip)

    def _narrow(self, work: DraftWork) -> None:
        """Only ids from which a single token could go on through all the rest are worth choosing again."""
        mirror = work.sequence.mirror
        while work.first_choice < len(mirror.ids):
            work.rest = mirror.bytes_from(mirror.ends[work.first_choice - 1] if work.first_choice else 0)
            if len(self._healer.covering(work.rest)):
                return
            work.first_choice += 1
        work.rest = b""

    def _choose_window(self, work: DraftWork) -> None:
        """Where too much is unread, or the context is full, the model reads on from the last ids only."""
        mirror, n_ctx = work.sequence.mirror, self._context.n_ctx
        is_full = len(mirror.ids) - self._shift(mirror) + _STEPS_PER_ID + work.ask.n_max >= n_ctx
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

    def _shift(self, mirror: Mirror) -> int:
        """The difference between an id's place in the mirror and its position in the KV: the window begins with a
        text's usual first id.
        """
        return mirror.skip - len(self._bos) if mirror.skip else 0

    def _rows(self, seq: int, mirror: Mirror, first: int, ids: list[int], n_logits: int, n_unsure: int = 0) -> Rows:
        """Rows for ids[first:], the window's first id before them where they begin it."""
        if mirror.skip and first == mirror.skip:
            return Rows(seq, 0, [*self._bos, *ids], n_logits, n_unsure)
        return Rows(seq, first - self._shift(mirror), ids, n_logits, n_unsure)

    def _catch_up(self, works: list[DraftWork], pace: Pace) -> list[DraftWork]:
        """One batched decode of what the mirrors have and the KV has not; returns the works that are ready to draft.

        A long backlog takes several rounds, n_batch or n_read ids each, so that running sequences never wait for a
        whole prompt.
        """
        rows: list[Rows] = []
        ready: list[DraftWork] = []
        room = self._context.n_batch
        for work in works:
            mirror = work.sequence.mirror
            drafting = self._wants_more(work, pace)
            first = min(mirror.n_kv, max(work.first_choice - 1, 0) if drafting else mirror.n_kv)
            ids = mirror.ids[first : first + min(max(room - len(self._bos), 0), work.ask.n_read or room)]
            if not ids or (not drafting and len(ids) < min(work.ask.n_read or _WORTH_CATCHING_UP, _WORTH_CATCHING_UP)):
                continue
            work.n_read = len(ids)
            room -= len(ids) + len(self._bos)
            done = first + len(ids) == len(mirror.ids)
            n_logits = len(mirror.ids) - work.first_choice + 1 if drafting and done else 0
            n_logits = min(n_logits, len(ids))
            rows.append(self._rows(work.ask.seq, mirror, first, ids, n_logits, n_logits))
            if n_logits:
                ready.append(work)
        self._decode(rows)
        self._take_rows(ready, [row for row in rows if row.n_logits], pace)
        return ready

    def _wants_more(self, work: DraftWork, pace: Pace) -> bool:
        """Whether left-over guesses are too short for what was asked, can be continued, and are worth continuing."""
        mirror = work.sequence.mirror
        if work.ask.n_max <= 0 or not mirror.ids:
            return False
        last = mirror.last_guess()
        if last is not None and self._context.vocab.is_special(last):
            work.closing, work.closing_p = self._rules.back(last), mirror.p[-1]
            return False
        if self._is_long_enough(work):
            return False
        return not work.n_left_guesses or pace.go_on((work.ask.seq,))[0]

    def _is_long_enough(self, work: DraftWork) -> bool:
        """Whether the guessed bytes are as many target ids as were asked for.

        Words that are complete are encoded once, the one that is being written only where that may decide: of the
        guess " the quick bro" with 12 ids asked, " bro" is 4 at most, so that 2 + 4 ids are too few in any case.
        """
        mirror, n_max, encode = work.sequence.mirror, work.ask.n_max, self._target.encode
        ahead = mirror.ahead(mirror.edge)
        if len(ahead) < n_max:
            return False
        cut = self._target.boundaries.last(ahead, len(ahead) - 1, work.n_counted)
        if cut > work.n_counted:
            work.n_counted_ids += len(encode(ahead[work.n_counted : cut]))
            work.n_counted = cut
        n, rest = work.n_counted_ids, ahead[cut:]
        return n >= n_max or (n + len(rest) >= n_max and n + len(encode(rest)) >= n_max)

    def _take_rows(self, ready: list[DraftWork], rows: list[Rows], pace: Pace) -> None:
        if not ready:
            return
        logits = self._context.logits()
        at = 0
        for work, row in zip(ready, rows, strict=True):
            self._heal_edge(work, logits[at : at + row.n_logits], pace)
            at += row.n_logits

    def _heal_edge(self, work: DraftWork, logits: npt.NDArray[np.float32], pace: Pace) -> None:
        """Choose the ids for the bytes after the edge. Where they are the canonical ones, the row after them is already
        there.
        """
        mirror, k = work.sequence.mirror, work.first_choice
        if work.rest:
            path = self._healer.choose_path(logits[:-1], mirror.ids[k:], work.rest)
            if (k + path.n, path.id) != (len(mirror.ids) - 1, mirror.ids[-1]):
                n_covered = sum(len(mirror.piece(i)) for i in range(k, k + path.n))
                work.rest = work.rest[n_covered:]
                mirror.retract(k + path.n)
                work.n_counted = work.n_counted_ids = 0
                work.healed = True
                self._guess(work, path.id, path.p, pace)
                return
            work.edge_p = path.p
        work.rest = b""
        work.row = logits[-1]

    def _guess(self, work: DraftWork, id_: int, p: float, pace: Pace) -> None:
        work.sequence.mirror.guess(id_, p)
        pace.wrote(work.ask.seq, p)
        piece = self._context.vocab.pieces[id_]
        work.sequence.chooser.wrote(piece[len(work.rest) :])
        work.rest = work.rest[len(piece) :]

    def _lockstep(self, live: list[DraftWork], pace: Pace) -> None:
        """All sequences draft together, one id each per batched decode, until each has enough or loses confidence."""
        while True:
            live = [work for work in live if work.row is None or self._advance(work, pace)]
            if live:
                worth = pace.go_on([work.ask.seq for work in live])
                live = [work for work, more in zip(live, worth, strict=True) if more or work.rest]
            if not live:
                return
            ends = [work.sequence.mirror for work in live]
            began = self._clock()
            self._decode(
                [self._rows(w.ask.seq, m, len(m.ids) - 1, m.ids[-1:], 1) for w, m in zip(live, ends, strict=True)]
            )
            rows = self._context.logits()
            pace.stepped(len(live), self._clock() - began)
            for work, row in zip(live, rows, strict=True):
                work.row = row

    def _advance(self, work: DraftWork, pace: Pace) -> bool:
        """Choose one more id; False where the draft ends before or after it."""
        assert work.row is not None
        work.n_steps += 1
        if work.rest:
            choice = self._healer.choose(work.row, work.rest)
            if choice is None:
                return False
            self._guess(work, *choice, pace)
            return not self._is_spent(work)
        recall = work.sequence.recall
        id_, p = work.sequence.chooser.choose(work.row, recall.find())
        p = recall.believed(id_, p)
        if p < work.ask.p_min:  # not the edge's share: like trust, it is only handed on
            return False
        p, work.edge_p = p * work.edge_p, 1.0
        if self._context.vocab.is_special(id_):
            work.closing, work.closing_p = self._rules.back(id_), p
            if work.closing:
                work.sequence.mirror.guess(id_, p)
            return False
        self._guess(work, id_, p, pace)
        return not self._is_spent(work)

    def _is_spent(self, work: DraftWork) -> bool:
        mirror = work.sequence.mirror
        full = len(mirror.ids) - self._shift(mirror) >= self._context.n_ctx
        return full or work.n_steps >= _STEPS_PER_ID * work.ask.n_max or (not work.rest and self._is_long_enough(work))

    def _decode(self, rows: list[Rows]) -> None:
        if not rows:
            return
        room = self._context.n_batch - sum(len(row.ids) for row in rows)
        for i, row in enumerate(rows):
            again = self._again(row)
            if len(again) > room:  # nothing remembers a place near it
                self._read(Rows(row.seq, row.pos - len(again), again, 0))
            elif again:
                room -= len(again)
                rows[i] = Rows(row.seq, row.pos - len(again), [*again, *row.ids], row.n_logits, row.n_unsure)
            sequence = self._sequences[row.seq]
            sequence.n_in_kv = row.pos + len(row.ids)
            sequence.mirror.n_kv = sequence.n_in_kv + self._shift(sequence.mirror)
        self._context.decode(self._context.prepare(rows))

    def _again(self, row: Rows) -> list[int]:
        """Takes the KV back to where the row begins; the ids before that which the memory could not keep."""
        sequence = self._sequences[row.seq]
        if sequence.n_in_kv <= row.pos:
            return []
        n_left = self._context.take_back(row.seq, row.pos)
        mirror = sequence.mirror
        ids = [*self._bos, *mirror.ids[mirror.skip :]] if mirror.skip else mirror.ids
        return ids[n_left : row.pos]

    def _read(self, rows: Rows) -> None:
        for at in range(0, len(rows.ids), self._context.n_batch):
            self._context.decode([Rows(rows.seq, rows.pos + at, rows.ids[at : at + self._context.n_batch], 0)])

    # --- handing over

    def _hand_over(self, work: DraftWork) -> Draft:
        mirror, ask = work.sequence.mirror, work.ask
        edge = mirror.edge
        data = mirror.ahead(edge) if not work.rest else b""
        with work.sequence.meter:
            translation = self._translator.translate(tuple(work.sequence.tail), data, complete=bool(work.closing))
        crossing = work.sequence.meter.take()
        ids = list(translation.ids)
        p, ends = shared_out(mirror.guesses(), [len(self._target.vocab.pieces[id_]) for id_ in ids], edge)
        p = with_trust(p, translation.trust)
        n_salvaged = sum(end <= work.n_left_over for end in ends)
        if work.closing and sum(len(self._target.vocab.pieces[id_]) for id_ in ids) == len(data):
            ids += work.closing
            p += [work.closing_p] + [1.0] * (len(work.closing) - 1)
        ids, p = ids[: ask.n_max], p[: ask.n_max]
        if len(ids) < ask.n_min:
            return Draft(crossing=crossing, n_read=work.n_read)
        n_salvaged = min(n_salvaged, len(ids))
        healed = work.healed and bool(ids)
        return Draft(tuple(ids), tuple(p), n_salvaged=n_salvaged, healed=healed, crossing=crossing, n_read=work.n_read)
