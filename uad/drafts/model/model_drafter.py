"""Drafts written by a small model of any vocabulary: mirrors of all sequences, batched lockstep decodes, guesses handed
over as target ids.

Must not know the target's context, requests, or how long a draft should be: that comes with each ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt

from uad.base.types import GREEDY, Ask, Clock, Commit, Draft, Origin, Rows, SamplingParams
from uad.drafts.model.choosing import Chooser
from uad.drafts.model.coupling import Coupling
from uad.drafts.model.draft_cache import IDS_WORTH_CATCHING_UP, DraftCache
from uad.drafts.model.draft_context import DraftContext
from uad.drafts.model.draft_work import (
    STEPS_PER_ID,
    TAIL_IDS,
    DraftedSequence,
    DraftWork,
    NoPace,
    shared_out,
    with_trust,
)
from uad.drafts.model.heal import Healer
from uad.drafts.model.mirror import Mirror
from uad.drafts.model.recall import Recall
from uad.engine.drafter import Pace
from uad.text.mapping.rules import CompiledRules
from uad.text.vocab.encode import Encoder, Meter
from uad.text.vocab.translate import Translator

_NO_PACE = NoPace()


class ModelDrafter:
    """Drafts with a model through bytes. heal: re-choose the ids after the edge; salvage: keep guesses that the target
    re-cut. lab/translation.md has what each of the two gains.
    """

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
        origin: Origin = Origin.MODEL,
    ) -> None:
        """window: most ids that it reads to catch up with a text; the last ones, if there are more (0: all)."""
        self.origin = origin
        self._cache = DraftCache(context, window)
        self._vocab = context.vocab
        self._encoder = Encoder(context.vocab)
        self._target = target
        self._translator = Translator(target, self._encoder)
        self._rules = rules
        self._healer = Healer(context.vocab)
        self._coupling = Coupling(target, self._encoder, rules.back)
        self._heal = heal
        self._salvage = salvage
        self._clock = clock
        self.former, self.take_over = self._cache.former, self._cache.take_over
        # ids of running texts that no mirror has seen: it catches up, and is made, when it is drafted with, so that a
        # draft that is left alone costs nothing
        self._backlogs: dict[int, list[int]] = {}
        self._choosers: dict[int, Chooser] = {}

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
        self._cache.end(seq)

    def reset(self) -> None:
        """Raises what clearing the KV does."""
        self._cache.clear()
        self._backlogs.clear()
        self._choosers.clear()

    def _sequence(self, seq: int) -> DraftedSequence:
        """The sequence of the running text, made with its first draft."""
        sequence = self._cache.sequences.get(seq)
        if sequence is not None:
            return sequence
        mirror, meter = Mirror(self._encoder, heal=self._heal), Meter(self._target, self._encoder)
        tail, chooser = deque[int](maxlen=TAIL_IDS), self._choosers[seq]
        return self._cache.open(
            seq, DraftedSequence(mirror, self._rules.stream(), tail, meter, chooser, Recall(mirror))
        )

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
            mirror.retract(mirror.n_within())
        work = DraftWork(ask, sequence, n_left_over=len(mirror.ahead(mirror.edge)))
        with sequence.meter:
            work.first_choice = mirror.sync()
        self._cache.forget_far(ask.seq, sequence)
        self._cache.choose_window(work)
        work.narrow(self._healer)
        sequence.chooser.start(mirror.ahead(mirror.edge))
        sequence.recall.start()
        for _, p in mirror.guesses():
            pace.wrote(ask.seq, p)
            work.n_left_guesses += 1
        return work

    def _catch_up(self, works: list[DraftWork], pace: Pace) -> list[DraftWork]:
        """One batched decode of what the mirrors have and the KV has not; returns the works that are ready to draft.

        A long backlog takes several rounds, n_batch or n_read ids each, so that running sequences never wait for a
        whole prompt.
        """
        rows: list[Rows] = []
        ready: list[DraftWork] = []
        n_bos, room = len(self._cache.bos), self._cache.context.n_batch
        for work in works:
            mirror = work.sequence.mirror
            drafting = self._wants_more(work, pace)
            first = min(mirror.n_kv, max(work.first_choice - 1, 0) if drafting else mirror.n_kv)
            ids = mirror.ids[first : first + min(max(room - n_bos, 0), work.ask.n_read or room)]
            if not ids or (
                not drafting and len(ids) < min(work.ask.n_read or IDS_WORTH_CATCHING_UP, IDS_WORTH_CATCHING_UP)
            ):
                continue
            work.n_read = len(ids)
            room -= len(ids) + n_bos
            done = first + len(ids) == len(mirror.ids)
            n_logits = len(mirror.ids) - work.first_choice + 1 if drafting and done else 0
            n_logits = min(n_logits, len(ids))
            rows.append(self._cache.rows(work.ask.seq, mirror, first, ids, n_logits, n_logits))
            if n_logits:
                ready.append(work)
        self._cache.decode(rows)
        logits, at = self._cache.context.logits() if ready else None, 0
        for work, row in zip(ready, [row for row in rows if row.n_logits], strict=True):
            assert logits is not None
            self._heal_edge(work, logits[at : at + row.n_logits], pace)
            at += row.n_logits
        return ready

    def _wants_more(self, work: DraftWork, pace: Pace) -> bool:
        """Whether left-over guesses are too short for what was asked, can be continued, and are worth continuing."""
        mirror = work.sequence.mirror
        if work.ask.n_max <= 0 or not mirror.ids:
            return False
        if len(mirror.ids) > mirror.n_within() and self._vocab.is_special(mirror.ids[-1]):
            work.closing, work.closing_p = self._rules.back(mirror.ids[-1]), mirror.p[-1]
            return False
        if work.is_long_enough(self._target):
            return False
        return not work.n_left_guesses or pace.go_on((work.ask.seq,))[0]

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

    def _guess(self, work: DraftWork, id_: int, p: float, pace: Pace) -> bool:
        """The draft goes on with this id; whether it may go on after it."""
        mirror = work.sequence.mirror
        mirror.guess(id_, p)
        pace.wrote(work.ask.seq, p)
        piece = self._vocab.pieces[id_]
        work.sequence.chooser.wrote(piece[len(work.rest) :])
        work.rest = work.rest[len(piece) :]
        if self._cache.room(mirror) <= 0 or work.n_steps >= STEPS_PER_ID * work.ask.n_max:
            return False
        return bool(work.rest) or not work.is_long_enough(self._target)

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
            self._cache.decode(
                [self._cache.rows(w.ask.seq, m, len(m.ids) - 1, m.ids[-1:], 1) for w, m in zip(live, ends, strict=True)]
            )
            rows = self._cache.context.logits()
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
            return self._guess(work, *choice, pace)
        recall = work.sequence.recall
        id_, p = work.sequence.chooser.choose(work.row, recall.find())
        p = recall.believed(id_, p)
        if p < work.ask.p_min:  # not the edge's share: like trust, it is only handed on
            return False
        p, work.edge_p = p * work.edge_p, 1.0
        if self._vocab.is_special(id_):
            work.closing, work.closing_p = self._rules.back(id_), p
            if work.closing:
                work.sequence.mirror.guess(id_, p)
            return False
        return self._guess(work, id_, p, pace)

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
            return Draft(origin=self.origin, crossing=crossing, n_read=work.n_read)
        n_salvaged = min(n_salvaged, len(ids))
        healed = work.healed and bool(ids)
        return Draft(tuple(ids), tuple(p), self.origin, n_salvaged, healed, crossing=crossing, n_read=work.n_read)
