"""The loop's one step: propose, decode, verify, commit, for all sequences at once. No branch on the kind of drafter, no clock in a decision
but the length of a prompt's chunk."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter

import numpy as np
import numpy.typing as npt

from uad.decode.drafting import Drafting
from uad.decode.ending import deliver, known, logged, summary
from uad.decode.layout import Least, longest_draft, padding, sizes_of_passes
from uad.decode.prefill import ROUND_S, SOON_S, Prefill
from uad.decode.sequence import Running
from uad.decode.slots import Slot, Slots
from uad.decode.target import Target
from uad.decode.verify import Picker, verify
from uad.errors import AbortedError, ContextOverflowError, InvalidRequestError, NoKvRoomError, UadError
from uad.grammar.protocol import Matcher
from uad.policy.protocol import Chosen, Wish
from uad.sampling.sampler import token_prob
from uad.types import Clock, Commit, Done, Draft, DrafterStats, Failed, Request, Rows, Sink, SlotInfo, TokenProb, Totals

_log = logging.getLogger("uad.request")
NO_DRAFT = Draft()
_PLAIN = Chosen(NO_DRAFT)
_NOTHING_CHOSEN: Mapping[int, Chosen] = {}
_ANY_IDS = (0, 0)
_NO_LOGITS = np.empty((0, 0), np.float32)


@dataclass(frozen=True, slots=True)
class _Part:
    """One sequence's rows in this round: committed ids the KV lacks, then the draft. n_logits 0: a prompt's chunk that is not its last.
    n_level: how many rows it should have at least, so that it shares passes with its neighbours.
    """

    running: Running
    pending: Sequence[int]
    draft: Draft
    n_logits: int
    n_level: int = 0

    @property
    def n_rows(self) -> int:
        return len(self.pending) + len(self.draft.ids)

    def rows(self, n_extra: int, least: int) -> Rows:
        """The rows with n_extra dummies behind them. The output layer, too, must not be alone with fewer than `least` rows."""
        ids = [*self.pending, *self.draft.ids]
        ids += ids[-1:] * n_extra
        n_logits = min(len(ids), max(self.n_logits + n_extra, least)) if self.n_logits else 0
        return Rows(self.running.slot, self.running.n_past, ids, n_logits)


SamplerFactory = Callable[[Request, int], Picker]


@dataclass(slots=True)
class _Rest:
    """Decodes of rounds that nobody planned, alike: rows by slot, positions behind them, seconds, how many."""

    counts: dict[int, int]
    depth: int
    seconds: float = 0.0
    n: int = 0


class Engine:
    """Runs requests on a target. Everything here happens on one thread; events go to each request's sink.

    least: no pass over the weights may be smaller; dummy rows fill up (see `layout.padding`). matchers: of the running sequences that are
    constrained, by slot; kept here for those that draft.
    """

    def __init__(
        self,
        target: Target,
        drafting: Drafting | None,
        samplers: SamplerFactory,
        seeds: Callable[[], int],
        *,
        least: Least | None = None,
        clock: Clock = perf_counter,
        matchers: dict[int, Matcher] | None = None,
    ) -> None:
        self._matchers: dict[int, Matcher] = {} if matchers is None else matchers
        self._target = target
        self._drafting = drafting
        self._samplers = samplers
        self._seeds = seeds
        self._least = least or Least()
        self._clock = clock
        self._slots = Slots(target.n_seq, target.can_truncate)
        self._waiting: deque[tuple[int, Request, Sink]] = deque()
        self._longest_draft = longest_draft(target.n_alike, target.n_batch, target.n_seq, self._least)
        self._n_rest = 0  # rounds in which nothing is drafted, this one included
        self._rests: list[_Rest] = []  # of which the policy has not heard
        self._prefill = Prefill(target.n_ubatch, target.n_batch - (self._least.rows - 1), clock)
        self._totals = Totals()
        self._pass_ends = inf  # when the pass is expected to end that may be interrupted

    @property
    def limit(self) -> int:
        """Most ids, prompt and answer, that one sequence may have: dummy rows need positions too."""
        return self._target.n_ctx - (self._least.rows - 1)

    # --- requests come and go

    def check(self, request: Request) -> None:
        """Raises what a submission of this request would."""
        if not request.prompt:
            raise InvalidRequestError("the prompt is empty; give at least one token", "prompt")
        if len(request.prompt) >= self.limit:
            raise ContextOverflowError(len(request.prompt), self._target.n_ctx)
        if request.slot >= len(self._slots.all):
            raise InvalidRequestError(f"there is no slot {request.slot}; slots are 0 to {len(self._slots.all) - 1}", "id_slot")

    def submit(self, number: int, request: Request, sink: Sink) -> None:
        """The request waits for a slot; it was checked."""
        self._waiting.append((number, request, sink))

    def cancel(self, number: int) -> None:
        """Frees the request's slot now. No event follows."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != number)
        for running in self._slots.running():
            if running.number == number:
                self._release(running)

    def interrupt(self, wanted: bool = True) -> None:
        """From any thread: a pass over a prompt ends soon, since somebody waits: unless it will anyway. Until it is not wanted any more."""
        if not wanted or self._pass_ends - self._clock() > SOON_S:
            self._target.interrupt(wanted)

    @property
    def has_room(self) -> bool:
        """Whether a slot is free. From any thread."""
        return self._slots.has_free

    def fail_all(self, error: UadError) -> None:
        """Every request, running or waiting, ends with this error."""
        waiting, self._waiting = self._waiting, deque()
        for number, _, sink in waiting:
            self._refuse(number, sink, error)
        self._fail(self._slots.running(), error)

    def _refuse(self, number: int, sink: Sink, error: Exception) -> None:
        self._totals = replace(self._totals, n_failed=self._totals.n_failed + 1)
        deliver(sink, Failed(number, known(error)))

    def _fail(self, runnings: Sequence[Running], error: Exception) -> None:
        """These requests end with this error. Raises what the target does while it forgets them, when all are told."""
        for running in runnings:
            running.n_past = 0
            self._slots.release(running)
            self._refuse(running.number, running.sink, error)
            self._close(running)
        for running in runnings:
            self._target.clear(running.slot)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self._waiting and not self._slots.running()

    def slots(self) -> tuple[SlotInfo, ...]:
        """What each slot does and holds."""
        return tuple(_describe(slot) for slot in self._slots.all)

    def drafters(self) -> tuple[DrafterStats, ...]:
        """What each drafter did since start."""
        return self._drafting.stats() if self._drafting is not None else ()

    def totals(self) -> Totals:
        """What was done since start."""
        n_policy_failures = self._drafting.n_policy_failures if self._drafting is not None else 0
        return replace(self._totals, n_policy_failures=n_policy_failures)

    # --- a round

    def step(self) -> None:
        """One round for all sequences: those that write share one decode; then each that still reads its prompt gets a chunk decoded.

        Apart, because llama.cpp would cut a batch of both into the same passes, and writers need not wait for their tokens. What fails
        ends the requests that it concerns; what is raised says that the engine cannot go on.
        """
        self._admit()
        runnings = self._slots.running()
        writing = [running for running in runnings if not running.is_prefilling]
        if self._is_resting(runnings, writing):
            self._write_at_rest(writing)
            return
        self._tell_of_rest()
        for running in writing:
            self._tell(running)
        began = self._clock()
        chosen, asking = self._propose(writing)
        spent = asking + self._write([self._part(running, chosen.get(running.slot, _PLAIN)) for running in writing])
        if self._drafting is not None and writing and not chosen:
            self._drafting.rested(self._clock() - began - spent)
        for reader, n in self._prefill.pieces(self._reading, bool(writing), self._target.can_truncate):
            self._read(reader, n)

    def _reading(self) -> list[Running]:
        return [running for running in self._slots.running() if running.is_prefilling]

    def _is_resting(self, runnings: Sequence[Running], writing: Sequence[Running]) -> bool:
        """Whether all that is to be done is one id for each sequence. A rest is followed by a round that is none."""
        self._n_rest -= 1
        if len(writing) < len(runnings) or not writing:
            self._n_rest = 0
        elif self._drafting is None:
            self._n_rest = 1
        elif any(self._is_forced(running.slot) for running in writing):
            self._n_rest = 0
        elif self._n_rest < 0:
            self._n_rest = self._drafting.sleeps([running.slot for running in writing])
        return self._n_rest > 0

    def _write(self, parts: Sequence[_Part]) -> float:
        """The round's decode of all sequences that write; returns the seconds that it took, and tells them to the policy."""
        if not parts:
            return 0.0
        depth = sum(part.running.n_past for part in parts) // len(parts)
        seconds, counts = self._run(parts)
        if self._drafting is not None and seconds > 0:
            self._drafting.decoded(sizes_of_passes(counts, self._target.n_ubatch), depth, seconds)
        return seconds

    def _write_at_rest(self, writing: Sequence[Running]) -> None:
        seconds, counts = self._run([self._part(running, _PLAIN) for running in writing])
        if self._drafting is not None and seconds > 0:
            if not self._rests or counts != self._rests[-1].counts:
                n_past = sum(running.n_past for running in writing) // len(writing)
                self._rests.append(_Rest(counts, n_past - 1))  # as it was before the decode
            rest = self._rests[-1]
            rest.seconds += seconds
            rest.n += 1

    def _tell_of_rest(self) -> None:
        """The policy hears what decodes took at rest."""
        if self._drafting is not None:
            for rest in self._rests:
                self._drafting.decoded(sizes_of_passes(rest.counts, self._target.n_ubatch), rest.depth, rest.seconds / rest.n, rest.n)
            self._rests.clear()

    def _run(self, parts: Sequence[_Part], may_stop: bool = False) -> tuple[float, dict[int, int]]:
        """Decode and settle; returns the seconds that the decode took (0: it failed, and its requests with it, or was interrupted) and the
        rows of each sequence."""
        counts = {part.running.slot: part.n_rows for part in parts}
        extra = self._padding(parts, counts)
        rows = [part.rows(extra.get(part.running.slot, 0), self._least.rows) for part in parts]
        began = self._clock()
        try:
            self._target.decode(rows, may_stop)
            logits = self._target.logits() if any(row.n_logits for row in rows) else _NO_LOGITS
        except AbortedError:
            self._prefill.lost(self._clock() - began)
            for part in parts:
                self._target.truncate(part.running.slot, part.running.n_past)
            return 0.0, counts
        except Exception as error:
            self._fail_decode([part.running for part in parts], error)
            return 0.0, counts
        seconds = self._clock() - began
        self._totals = replace(self._totals, n_decodes=self._totals.n_decodes + 1)
        at = 0
        for part, row in zip(parts, rows, strict=True):
            at += row.n_logits
            n_extra = extra.get(part.running.slot, 0)
            counts[part.running.slot] += n_extra
            if n_extra:
                self._target.truncate(part.running.slot, part.running.n_past + part.n_rows)
            try:
                self._settle(part, logits[at - n_extra - part.n_logits : at - n_extra] if part.n_logits else _NO_LOGITS)
            except Exception as error:  # of its sampler, its text or its sink
                self._fail([part.running], error)
        return seconds, counts

    def _fail_decode(self, runnings: Sequence[Running], error: Exception) -> None:
        """The requests of this decode end. Raises where the target is at fault and not they: it cannot decode anything else either."""
        self._fail(runnings, error)
        if not isinstance(error, NoKvRoomError):
            seq = runnings[0].slot
            self._target.decode([Rows(seq, 0, _ANY_IDS, 1)])
            self._target.clear(seq)

    def _padding(self, parts: Sequence[_Part], counts: Mapping[int, int]) -> dict[int, int]:
        """Dummy rows by sequence: up to the level that makes one pass, then up to the least that computes the same bits."""
        extra: dict[int, int] = {}
        for part in parts:
            if part.n_level > part.n_rows:
                room = self._target.n_ctx - part.running.n_past - (self._least.rows - 1)
                extra[part.running.slot] = max(min(part.n_level, room) - part.n_rows, 0)
        if self._least.rows == 1:
            return extra
        levelled = {seq: n + extra.get(seq, 0) for seq, n in counts.items()}
        for seq, n in padding(levelled, self._target.n_ubatch, self._least).items():
            extra[seq] = extra.get(seq, 0) + n
        return extra

    def _admit(self) -> None:
        """Waiting requests take free slots, in order; one that wants a busy slot lets others pass. One that cannot start ends alone."""
        for entry in tuple(self._waiting):
            if not self._slots.has_free:
                return
            number, request, sink = entry
            slot = self._slots.choose(request)
            if slot is not None:
                try:
                    self._start(slot, number, request, sink)
                except Exception as error:
                    slot.cached.clear()
                    self._refuse(number, sink, error)
                self._waiting.remove(entry)

    def _start(self, slot: Slot, number: int, request: Request, sink: Sink) -> None:
        seed = self._seeds() if request.sampling.seed is None else request.sampling.seed
        n_cached = self._slots.kept(slot, request)
        if not n_cached:
            self._target.clear(slot.id)
        elif n_cached < len(slot.cached):
            self._target.truncate(slot.id, n_cached)
        running = Running(
            number=number,
            request=request,
            sink=sink,
            vocab=self._target.vocab,
            sampler=self._samplers(request, seed),
            seed=seed,
            slot=slot.id,
            limit=self.limit,
            n_cached=n_cached,
            ids=list(request.prompt),
            n_past=n_cached,
            started=self._clock(),
            n_told=len(request.prompt),
        )
        if running.sampler.matcher is not None:
            self._matchers[slot.id] = running.sampler.matcher
        if self._drafting is not None and request.speculative.enabled:
            self._drafting.begin(slot.id, request.prompt, replace(request.sampling, seed=seed), n_cached)
        self._slots.occupy(slot, running)

    def _propose(self, writing: Sequence[Running]) -> tuple[Mapping[int, Chosen], float]:
        """What each slot submits, and the seconds that it took."""
        if self._drafting is None or not writing:
            return _NOTHING_CHOSEN, 0.0
        began = self._clock()
        chosen = self._drafting.propose(
            [Wish(one.slot, one.request.speculative, self._room(one), one.n_past, one.n_left, self._is_forced(one.slot)) for one in writing]
        )
        seconds = self._clock() - began
        drafting = [running for running in writing if running.slot in self._drafting]
        for running in drafting:
            running.tally.draft_ms += 1e3 * seconds / len(drafting)
            running.tally.crossing += self._drafting.crossing(running.slot)
        return chosen, seconds

    def _is_forced(self, seq: int) -> bool:
        """Whether a constraint forces how this sequence goes on."""
        matcher = self._matchers.get(seq)
        return matcher is not None and bool(matcher.forced)

    def _room(self, running: Running) -> int:
        """No more than can still be written, fits into one pass, and leaves every sequence its share of the batch."""
        return max(min(running.n_left - 1, self._longest_draft), 0)

    @staticmethod
    def _part(running: Running, chosen: Chosen) -> _Part:
        return _Part(running, running.pending(), chosen.draft, 1 + len(chosen.draft.ids), chosen.n_rows)

    def _read(self, running: Running, n: int) -> None:
        """Decode the next n ids of a prompt."""
        last = n == running.n_unread
        n_logits = 1 if last and running.request.max_tokens != 0 else 0
        expected = self._prefill.seconds(running, n)
        self._pass_ends = self._clock() + expected
        part = _Part(running, running.pending()[:n], NO_DRAFT, n_logits)
        seconds, _ = self._run([part], may_stop=expected > ROUND_S and self._target.can_truncate)
        self._pass_ends = inf
        self._prefill.took(running, n, seconds)

    def _settle(self, part: _Part, logits: npt.NDArray[np.float32]) -> None:
        """Verify, truncate the KV to what was accepted, commit, tell everybody."""
        running = part.running
        running.n_past += len(part.pending)
        if not part.n_logits:
            if running.n_past == running.n_prompt:  # max_tokens 0: only the cache was to be filled
                self._finish(running, running.end_with_prompt(self._clock()))
            return
        at = running.position
        verdict = verify(running.sampler, logits, part.draft.ids, at, running.vocab, running.ends.ids, self._describer(running))
        delta, done = running.take(verdict, part.draft, self._clock())
        n_kept = min(verdict.n_accepted, len(delta.ids))
        running.n_past += n_kept
        if n_kept < len(part.draft.ids):
            self._target.truncate(running.slot, running.n_past)
        if self._n_rest <= 0:  # at rest the drafters hear of it later
            self._commit(running, part.draft, delta.ids, n_kept)
        running.sink(delta)
        if done is not None:
            self._finish(running, done)

    def _describer(self, running: Running) -> Callable[[npt.NDArray[np.float32], int], TokenProb] | None:
        if not running.request.logprobs:
            return None
        n_top, pieces = running.request.n_probs, running.vocab.texts
        return lambda row, id_: token_prob(row, id_, n_top, pieces)

    def _commit(self, running: Running, draft: Draft, ids: tuple[int, ...], n_accepted: int) -> None:
        if self._drafting is not None:
            running.n_told = len(running.ids)
            self._drafting.commit(Commit(running.slot, ids, len(draft.ids), n_accepted), draft)

    def _tell(self, running: Running) -> None:
        """The drafters hear of what was written at rest."""
        if self._drafting is not None and running.n_told < len(running.ids):
            self._commit(running, NO_DRAFT, tuple(running.ids[running.n_told :]), 0)

    def _finish(self, running: Running, done: Done) -> None:
        self._release(running)
        self._totals = _add(self._totals, done)
        _log.info("%s", summary(done))
        deliver(running.sink, done)

    def _release(self, running: Running) -> None:
        self._slots.release(running)
        self._close(running)

    def _close(self, running: Running) -> None:
        with logged("a sampler could not be closed"):
            running.sampler.close()
        self._matchers.pop(running.slot, None)
        if self._drafting is not None:
            self._tell(running)
            self._drafting.end(running.slot)


def _describe(slot: Slot) -> SlotInfo:
    running = slot.running
    if running is None:
        return SlotInfo(slot.id, None, len(slot.cached), False)
    return SlotInfo(slot.id, running.number, running.n_past, True)


def _add(totals: Totals, done: Done) -> Totals:
    return replace(
        totals,
        n_requests=totals.n_requests + 1,
        n_prompt=totals.n_prompt + done.timings.n_prompt,
        n_predicted=totals.n_predicted + done.usage.n_predicted,
        draft=totals.draft + done.timings.draft,
    )
