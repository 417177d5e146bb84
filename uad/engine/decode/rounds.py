"""The steps of one round: propose, decode, verify, commit, for all sequences at once. No branch on the kind of drafter,
no clock in a decision but when text is passed on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from uad.base.common.logits import Outputs
from uad.base.errors import AbortedError, NoKvRoomError
from uad.base.events import Delta
from uad.base.types import Clock, Commit, Draft, Rows, StopKind
from uad.engine.decode.drafting import Drafting
from uad.engine.decode.layout import Least, longest_draft, padding, sizes_of_passes
from uad.engine.decode.scheduler import Scheduler
from uad.engine.decode.sequence import NO_DRAFT, Running
from uad.engine.decode.target import Target
from uad.engine.decode.verify import verify
from uad.engine.policy.protocol import Chosen, Wish
from uad.engine.sampling.sampler import pick_each

_PLAIN = Chosen(NO_DRAFT)
_ANY_IDS = (0, 0)
_NO_LOGITS: Outputs = ()
# A client gets text every 8 ms at most (`generation.Ticks`). An event costs 10 to 20 µs, where an id of a small
# model takes 300, so those of the ids between are one.
_PASS_ON_S = 0.002
# Where logits are computed later, clients get their text meanwhile, and the loop goes on; but policy and counts follow.
_MOST_AT_ONCE = 32
_MANY_ROWS = (
    3  # rows from which on it is cheaper to draw from them together, where more than the likeliest id is needed
)


@dataclass(slots=True)
class SequenceRows:
    """One sequence's rows in a decode: committed ids the KV lacks, then the draft.

    n_logits: of the last rows; 0 in a chunk of a prompt without probabilities. n_level: how many rows it should have at
    least, so that it shares passes with its neighbours. draws: whether an id is drawn after the last row. n_extra:
    dummy rows at the end; may_pad: whether there may be some.
    """

    running: Running
    pending: Sequence[int]
    draft: Draft
    n_logits: int
    n_level: int = 0
    draws: bool = True
    n_extra: int = 0
    may_pad: bool = True

    @classmethod
    def of(cls, running: Running, chosen: Chosen = _PLAIN) -> SequenceRows:
        """The rows that a writing sequence submits."""
        return cls(running, running.ids[running.n_past :], chosen.draft, 1 + len(chosen.draft.ids), chosen.n_rows)

    @property
    def n_rows(self) -> int:
        """Without dummies."""
        return len(self.pending) + len(self.draft.ids)

    def rows(self, least: int) -> Rows:
        """The rows with their dummies. The output layer, too, must not be alone with fewer than `least` rows."""
        ids = [*self.pending, *self.draft.ids]
        ids += ids[-1:] * self.n_extra
        n_logits = min(len(ids), max(self.n_logits + self.n_extra, least)) if self.n_logits else 0
        return Rows(self.running.slot, self.running.n_past, ids, n_logits, len(self.draft.ids) + self.n_extra)


class Rounds:
    """Makes rounds of sequences on a target, and counts them.

    least: no pass over the weights may be smaller; dummy rows fill up (see `layout.padding`).
    """

    def __init__(
        self, target: Target, drafting: Drafting | None, requests: Scheduler, least: Least, clock: Clock
    ) -> None:
        self._target = target
        self._drafting = drafting
        self._requests = requests
        self._least = least
        self._clock = clock
        self._most_sequences = least.most_sequences(target.n_ubatch)
        self._longest_draft = longest_draft(target.n_alike, target.n_batch, target.n_seq, least)
        self._planned: list[int] = []  # the requests that the policy was asked for last
        self._n_plain = 0  # ids that each of them may write before it is asked again
        self.n_decodes = self.n_busy_slots = 0
        self.n_written = self.n_rounds = self.depth = 0

    def write(self, writing: Sequence[Running], go_on: Callable[[], bool]) -> None:
        """The next round of all that write; several, as long as go_on() says so, where none of them may be drafted
        for.
        """
        drafting = self._drafting
        if drafting is None or not drafting.is_in_use:
            self._plain(writing, go_on)
            return
        requests = [running.number for running in writing]
        if requests != self._planned or self._n_plain <= 0:
            self._planned = requests
            chosen, self._n_plain = self._propose(drafting, writing)
            if chosen:
                self._n_plain = 0
                self._decode_all([SequenceRows.of(running, chosen.get(running.slot, _PLAIN)) for running in writing])
                return
        self._n_plain -= self._plain(writing, go_on, self._n_plain)

    # --- rounds without drafts

    def _plain(self, writing: Sequence[Running], go_on: Callable[[], bool], most: int = sys.maxsize) -> int:
        """One id for each, up to `most` times, until text is to be passed on, an answer ends, or go_on() ends it;
        returns how often.

        Every token pays for what this does, so it does nothing but a decode, a draw and the text of the id. Where
        logits are computed later, text is passed on while that happens.
        """
        if self._least.rows > 1 or len(writing) > self._most_sequences:
            self._decode_all([SequenceRows.of(running) for running in writing])
            return 1
        target, clock = self._target, self._clock
        self.depth = sum([running.n_past for running in writing]) // len(writing)
        ends: dict[int, StopKind | Exception] = {}
        rows: list[Rows] = []
        n_busy = len(self._requests.running)
        seconds, n, now = 0.0, 0, clock()
        until = now + _PASS_ON_S
        together = len(writing) >= _MANY_ROWS and any(running.sampler.n_needed != 1 for running in writing)
        draw = _drawn_together if together else _drawn
        later = target.computes_later
        if later:
            most = min(most, _MOST_AT_ONCE)
        try:
            while True:
                began = clock()
                rows = [Rows(running.slot, running.n_past, running.ids[running.n_past :], 1) for running in writing]
                target.decode(rows)
                failed: dict[int, StopKind | Exception] = {}
                if later and now >= until:
                    failed, until = self._deliver(writing, now), now + _PASS_ON_S
                logits = target.rows()
                now = clock()
                seconds += now - began
                n += 1
                ends = draw(writing, logits, now)
                if failed:
                    ends |= failed
                if ends or n == most or (now >= until and not later) or not go_on():
                    break
        except Exception as error:
            self.count(n, n_busy, n * len(writing))
            if left := self._finish_ended(writing, ends, now):
                self.fail_decode(left, error)
        else:
            self.count(n, n_busy, n * len(writing))
            self._report_cost([rows], seconds / n)
            self._finish_ended(writing, ends, now)
        return n

    def _finish_ended(
        self, writing: Sequence[Running], ends: Mapping[int, StopKind | Exception], now: float
    ) -> list[Running]:
        """Send the output of plain rounds to the clients, and a last event to answers that ended; returns those that go
        on.
        """
        left = []
        ends = {**ends, **self._deliver(writing, now)}
        for running in writing:
            end = ends.get(running.slot)
            try:
                if isinstance(end, Exception):
                    raise end
                if end is None:
                    left.append(running)
                else:
                    self._requests.finish(running, running.done(end))
            except Exception as error:  # of its sampler, its text or its sink
                self._requests.fail([running], error)
        return left

    def _deliver(self, writing: Sequence[Running], now: float) -> dict[int, StopKind | Exception]:
        """Send the output of plain rounds to the clients; returns errors of texts and sinks, by slot."""
        failed: dict[int, StopKind | Exception] = {}
        for running in writing:
            try:
                if running.answer.fresh:
                    self._commit(running, running.delta(now), NO_DRAFT, 0)
            except Exception as error:
                failed[running.slot] = error
        return failed

    # --- propose

    def _propose(self, drafting: Drafting, writing: Sequence[Running]) -> tuple[Mapping[int, Chosen], int]:
        """The choice for each slot; else how many ids each may write before the policy wants to be asked again."""
        began = self._clock()
        chosen, n_plain = drafting.propose([self._wish(running) for running in writing])
        seconds = self._clock() - began
        drafted = [running for running in writing if running.slot in drafting]
        for running in drafted:
            running.drafted.draft_ms += 1e3 * seconds / len(drafted)
            if (crossing := drafting.tally.crossing(running.slot)) is not None:
                running.drafted.crossing += crossing
        return chosen, n_plain

    def _wish(self, running: Running) -> Wish:
        """A draft is no longer than what can still be written. With the ids before it, which may have to be decoded
        again, it fits into one pass, and leaves every sequence its share of the batch.
        """
        matcher, request = running.sampler.matcher, running.request
        n_left = running.answer.n_most - running.answer.n
        n_pending = len(running.ids) - running.n_past
        return Wish(
            seq=running.slot,
            params=request.speculative,
            room=max(min(n_left - 1, self._longest_draft - (n_pending - 1)), 0),
            depth=running.n_past,
            n_left=n_left,
            n_pending=n_pending,
            is_forced=matcher is not None and bool(matcher.expected),
            is_predicted=bool(request.prediction),
        )

    # --- decode, verify, commit

    def _decode_all(self, parts: Sequence[SequenceRows]) -> None:
        """Decode all sequences that write, in several decodes if one may not have that many."""
        self.depth = sum([part.running.n_past for part in parts]) // len(parts)
        decodes: list[list[Rows]] = []
        total = 0.0
        for at in range(0, len(parts), self._most_sequences):
            rows, seconds = self.run(parts[at : at + self._most_sequences])
            decodes.append(rows)
            total += seconds
        self._report_cost(decodes, total)

    def run(self, parts: Sequence[SequenceRows], may_stop: bool = False) -> tuple[list[Rows], float]:
        """Decode these rows, verify the drafts and commit what was drawn: the rows and the seconds in the target; no
        rows where the decode failed, and the requests with it. Raises AbortedError where it was interrupted.
        """
        self._pad(parts)
        try:
            rows = self._target.prepare([part.rows(self._least.rows) for part in parts])
            began = self._clock()
            self._target.decode(rows, may_stop)
            logits = self._target.rows() if any(row.n_logits for row in rows) else _NO_LOGITS
        except AbortedError:
            for part in parts:
                part.running.n_past = self._target.take_back(part.running.slot, part.running.n_past)
            raise
        except Exception as error:
            self.fail_decode([part.running for part in parts], error)
            return [], 0.0
        seconds = self._clock() - began
        self.count(1, len(self._requests.running), sum([part.draws for part in parts]))
        at = 0
        for part, row in zip(parts, rows, strict=True):
            at += row.n_logits
            end = at - part.n_extra
            try:
                self._settle(part, logits[end - part.n_logits : end] if part.n_logits else _NO_LOGITS)
            except Exception as error:  # of its sampler, its text or its sink
                self._requests.fail([part.running], error)
        return rows, seconds

    def _settle(self, part: SequenceRows, logits: Outputs) -> None:
        """Verify the draft, take back what was not accepted and the dummy rows, commit, pass on the results."""
        # The text is "a b", of which the KV lacks b. With the draft c d e and a dummy row, n_past is 1 and end is 6. If
        # the target draws c d x, the text is "a b c d x" and n_past 4: e and the dummy are taken back, x is pending.
        running, draft, n_kept = part.running, part.draft, 0
        delta: Delta | None = None
        kind: StopKind | None = None
        begin, end = running.n_past, running.n_past + part.n_rows + part.n_extra
        running.n_past += len(part.pending)
        if running.is_prefilling and (running.request.progress or running.request.prompt_probs):
            running.sink(running.progress(self._clock(), running.prompt_probs(begin, logits)))
        if part.draws:
            rows, answer = logits[-(1 + len(draft.ids)) :], running.answer
            verdict = verify(
                running.sampler, rows, draft.ids, answer.position, running.vocab, answer.ends.ids, running.describe
            )
            delta, kind = running.take(verdict, draft, self._clock())
            n_kept = min(verdict.n_accepted, len(delta.ids))
            running.n_past += n_kept
        # once per decode, since some memories can go back only once; where one goes back further than asked for, the
        # ids between are decoded again with the next ones
        if running.n_past < end:
            running.n_past = self._target.take_back(running.slot, running.n_past)
        if delta is not None:
            self._commit(running, delta, draft, n_kept)
        elif running.n_past == running.n_prompt:  # max_tokens 0: only the cache was to be filled
            running.answer.first = running.last = self._clock()
            kind = StopKind.LIMIT
        if kind is not None:
            self._requests.finish(running, running.done(kind))

    def _commit(self, running: Running, delta: Delta, draft: Draft, n_kept: int) -> None:
        """Ids became part of a text: the drafters learn it, and the client."""
        self.n_written += len(delta.ids)
        if self._drafting is not None:
            self._drafting.commit(Commit(running.slot, delta.ids, len(draft.ids), n_kept), draft)
        running.sink(delta)

    def count(self, n_decodes: int, n_busy: int, n_rounds: int) -> None:
        """n_decodes more decodes while n_busy requests ran, and rounds of sequences that wrote in them."""
        self.n_decodes += n_decodes
        self.n_busy_slots += n_decodes * n_busy
        self.n_rounds += n_rounds

    def _report_cost(self, decodes: Sequence[Sequence[Rows]], seconds: float) -> None:
        """The policy learns what these decodes took together."""
        if self._drafting is not None and self._drafting.is_in_use and seconds > 0:
            counts = [{row.seq: len(row.ids) for row in rows} for rows in decodes]
            sizes = [size for count in counts for size in sizes_of_passes(count, self._target.n_ubatch)]
            self._drafting.decoded(sizes, self.depth, seconds)

    def fail_decode(self, runnings: Sequence[Running], error: Exception) -> None:
        """The requests of this decode end. Raises where the target is at fault and not they: it cannot decode anything
        else either.
        """
        self._requests.fail(runnings, error)
        if not isinstance(error, NoKvRoomError):
            seq = runnings[0].slot
            self._target.decode([Rows(seq, 0, _ANY_IDS, 1)])
            self._target.clear(seq)

    def _pad(self, parts: Sequence[SequenceRows]) -> None:
        """Dummy rows: up to the level that makes one pass, then up to the least that computes the same bits."""
        for part in parts:
            if part.n_level > part.n_rows and self._target.n_free >= part.n_level - part.n_rows:
                room = part.running.limit - part.running.n_past
                part.n_extra = max(min(part.n_level, room) - part.n_rows, 0)
        if self._least.rows > 1 and all(part.may_pad for part in parts):
            counts = {part.running.slot: part.n_rows + part.n_extra for part in parts}
            extra = padding(counts, self._target.n_ubatch, self._least)
            for part in parts:
                part.n_extra += extra.get(part.running.slot, 0)


def _drawn(writing: Sequence[Running], logits: Outputs, now: float) -> dict[int, StopKind | Exception]:
    """Each has its next id; why those answers end that do, by slot, or the error of a sampler or a text."""
    ends: dict[int, StopKind | Exception] = {}
    for running, row in zip(writing, logits, strict=True):
        try:
            id_ = running.sampler.pick(row, running.answer.position)
            if (end := running.write(id_, row, now)) is not None:
                ends[running.slot] = end
        except Exception as error:
            ends[running.slot] = error
    return ends


def _drawn_together(writing: Sequence[Running], logits: Outputs, now: float) -> dict[int, StopKind | Exception]:
    """The same, in one pass."""
    ends: dict[int, StopKind | Exception] = {}
    picked = pick_each(
        [running.sampler for running in writing], logits, [running.answer.position for running in writing]
    )
    for running, row, id_ in zip(writing, logits, picked, strict=True):
        try:
            if isinstance(id_, Exception):
                raise id_
            if (end := running.write(id_, row, now)) is not None:
                ends[running.slot] = end
        except Exception as error:
            ends[running.slot] = error
    return ends


def never() -> bool:
    """No round follows the first one."""
    return False
