"""The loop's one step: propose, decode, verify, commit, for all sequences at once. No branch on the kind of drafter, no clock in a decision
but the length of a prompt's chunk."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from uad.decode.layout import exact_padding
from uad.decode.sequence import Running
from uad.decode.slots import Slot, Slots, common_prefix
from uad.decode.target import Target
from uad.decode.text import TextStream
from uad.decode.verify import verify
from uad.drafters.protocol import Ask, Drafter
from uad.errors import ContextOverflowError, InvalidRequestError, NoKvRoomError, UadError
from uad.policy.protocol import Policy, Wish
from uad.sampling.sampler import Sampler, token_prob
from uad.types import Commit, Done, Draft, DraftStats, Failed, Request, Rows, Sink, SlotInfo, TokenProb, Totals

_log = logging.getLogger("uad.request")
_STALL_S = 0.25  # how long a prompt's chunk may keep running streams waiting
_MIN_CHUNK = 16


@dataclass(frozen=True, slots=True)
class _Part:
    """One sequence's rows in this round: committed ids the KV lacks, then the draft. n_logits 0: a prompt's chunk that is not its last."""

    running: Running
    pending: Sequence[int]
    draft: Draft
    n_logits: int


SamplerFactory = Callable[[Request, int], Sampler]


class Engine:
    """Runs requests on a target. Everything here happens on one thread; events go to each request's sink."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        policy: Policy,
        samplers: SamplerFactory,
        seeds: Callable[[], int],
        *,
        exact: bool = False,
    ) -> None:
        self._target = target
        self._drafter = drafter
        self._policy = policy
        self._samplers = samplers
        self._seeds = seeds
        self._exact = exact
        self._slots = Slots(target.n_seq)
        self._waiting: deque[tuple[int, Request, Sink]] = deque()
        self._prefill_rate = 0.0
        self._totals = Totals()
        self._drafting: set[int] = set()

    @property
    def limit(self) -> int:
        """Most ids, prompt and answer, that one sequence may have; `exact` keeps a position free for its dummy row."""
        return self._target.n_ctx - 1 if self._exact else self._target.n_ctx

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
        self._waiting.append((number, request, sink))

    def cancel(self, number: int) -> None:
        """Frees the request's slot now. No event follows."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != number)
        for running in self._slots.running():
            if running.number == number:
                self._release(running)

    def fail_all(self, error: UadError) -> None:
        """Every request, running or waiting, ends with this error."""
        for number, _, sink in self._waiting:
            sink(Failed(number, error))
        self._waiting.clear()
        self._fail(self._slots.running(), error)

    def _fail(self, runnings: Sequence[Running], error: UadError) -> None:
        for running in runnings:
            running.n_past = 0
            self._release(running)
            self._target.clear(running.slot)
            running.sink(Failed(running.number, error))

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._slots.running()

    def slots(self) -> tuple[SlotInfo, ...]:
        return tuple(_describe(slot) for slot in self._slots.all)

    def totals(self) -> Totals:
        return self._totals

    # --- a round

    def step(self) -> None:
        """One round for all running sequences."""
        self._admit()
        runnings = self._slots.running()
        if not runnings:
            return
        parts = self._lay_out(runnings, self._propose(runnings))
        try:
            seconds = self._decode(parts)
        except NoKvRoomError as error:
            self._fail([part.running for part in parts], error)
            return
        self._learn_rate(parts, seconds)
        logits = self._target.logits() if any(part.n_logits for part in parts) else np.empty((0, 0), np.float32)
        at = 0
        for part in parts:
            self._settle(part, logits[at : at + part.n_logits])
            at += part.n_logits

    def _admit(self) -> None:
        """Waiting requests take free slots, in order; one that wants a busy slot lets others pass."""
        passed: list[tuple[int, Request, Sink]] = []
        while self._waiting and self._slots.has_free:
            number, request, sink = entry = self._waiting.popleft()
            slot = self._slots.choose(request.prompt, request.slot)
            if slot is None:
                passed.append(entry)
            else:
                self._start(slot, number, request, sink)
        self._waiting.extendleft(reversed(passed))

    def _start(self, slot: Slot, number: int, request: Request, sink: Sink) -> None:
        seed = self._seeds() if request.sampling.seed is None else request.sampling.seed
        n_cached = min(common_prefix(slot.cached, request.prompt), len(request.prompt) - 1) if request.cache_prompt else 0
        self._target.truncate(slot.id, n_cached) if n_cached else self._target.clear(slot.id)
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
            text=TextStream(request.stop),
        )
        self._slots.occupy(slot, running)
        if self._drafter is not None and request.speculative.enabled:
            self._drafter.begin(slot.id, request.prompt)
            self._drafting.add(slot.id)

    def _propose(self, runnings: Sequence[Running]) -> dict[int, Draft]:
        """A draft per slot; sequences that are still reading their prompt ask for none, but let the drafter read along."""
        asking = [running for running in runnings if running.slot in self._drafting]
        if self._drafter is None or not asking:
            return {}
        began = perf_counter()
        budgets = self._policy.budgets([Wish(running.slot, running.request.speculative, self._room(running)) for running in asking])
        drafts = self._drafter.propose([Ask(r.slot, b.n_max, b.n_min, b.p_min) for r, b in zip(asking, budgets, strict=True)])
        spent = 1e3 * (perf_counter() - began) / len(asking)
        for running in asking:
            running.tally.draft_ms += spent
        return {running.slot: draft for running, draft in zip(asking, drafts, strict=True)}

    def _room(self, running: Running) -> int:
        """No more than can still be written, fits into one pass, and leaves every sequence its share of the batch."""
        if running.is_prefilling:
            return 0
        return min(running.n_left - 1, self._target.n_ubatch - 2, self._target.n_batch // self._target.n_seq - 2)

    def _lay_out(self, runnings: Sequence[Running], drafts: dict[int, Draft]) -> list[_Part]:
        writing = [running for running in runnings if not running.is_prefilling]
        parts = [_Part(r, r.pending(), (draft := drafts.get(r.slot, Draft())), 1 + len(draft.ids)) for r in writing]
        room = self._target.n_batch - sum(len(part.pending) + len(part.draft.ids) for part in parts) - 2 * len(runnings)
        if writing:
            room = min(room, max(_MIN_CHUNK, int(self._prefill_rate * _STALL_S)))
        for running in runnings:
            if running.is_prefilling and room >= 2:
                part = self._chunk(running, room)
                parts.append(part)
                room -= len(part.pending)
        return sorted(parts, key=lambda part: part.running.slot)

    def _chunk(self, running: Running, room: int) -> _Part:
        pending = running.pending()
        if len(pending) <= room:
            return _Part(running, pending, Draft(), 1)
        n = room - 1 if len(pending) - room == 1 and room > 2 else room  # never leave a single row for the last chunk
        return _Part(running, pending[:n], Draft(), 0)

    def _decode(self, parts: Sequence[_Part]) -> float:
        counts = {part.running.slot: len(part.pending) + len(part.draft.ids) for part in parts}
        padding = exact_padding(counts, self._target.n_ubatch) if self._exact else {}
        rows: list[Rows] = []
        for part in parts:
            ids = [*part.pending, *part.draft.ids]
            pos = part.running.n_past
            rows.append(Rows(part.running.slot, pos, ids, part.n_logits))
            if n := padding.get(part.running.slot, 0):
                rows.append(Rows(part.running.slot, pos + len(ids), ids[-1:] * n, 0))
        began = perf_counter()
        self._target.decode(rows)
        spent = perf_counter() - began
        self._totals = replace(self._totals, n_decodes=self._totals.n_decodes + 1)
        for part in parts:
            if padding.get(part.running.slot):
                self._target.truncate(part.running.slot, part.running.n_past + counts[part.running.slot])
        return spent

    def _learn_rate(self, parts: Sequence[_Part], seconds: float) -> None:
        n = sum(len(part.pending) for part in parts if part.running.is_prefilling)
        if n >= _MIN_CHUNK and seconds > 0:
            rate = n / seconds
            self._prefill_rate = rate if not self._prefill_rate else 0.7 * self._prefill_rate + 0.3 * rate

    def _settle(self, part: _Part, logits: npt.NDArray[np.float32]) -> None:
        """Verify, truncate the KV to what was accepted, commit, tell everybody."""
        running = part.running
        running.n_past += len(part.pending)
        if not part.n_logits:
            return
        verdict = verify(running.sampler, logits, part.draft.ids, running.position, running.vocab, self._describer(running))
        delta, done = running.take(verdict, part.draft, perf_counter())
        n_kept = min(verdict.n_accepted, len(delta.ids))
        running.n_past += n_kept
        if n_kept < len(part.draft.ids):
            self._target.truncate(running.slot, running.n_past)
        self._commit(running, part.draft, delta.ids, n_kept)
        running.sink(delta)
        if done is not None:
            self._finish(running, done)

    def _describer(self, running: Running) -> Callable[[npt.NDArray[np.float32], int], TokenProb] | None:
        if not running.request.logprobs:
            return None
        n_top, pieces = running.request.n_probs, running.vocab.pieces
        return lambda row, id_: token_prob(row, id_, n_top, pieces)

    def _commit(self, running: Running, draft: Draft, ids: tuple[int, ...], n_accepted: int) -> None:
        if self._drafter is not None and running.slot in self._drafting:
            commit = Commit(running.slot, ids, running.vocab.join(ids), len(draft.ids), n_accepted)
            self._drafter.observe(commit)

    def _finish(self, running: Running, done: Done) -> None:
        self._release(running)
        self._totals = _add(self._totals, done)
        _log.info("%s", summary(done))
        running.sink(done)

    def _release(self, running: Running) -> None:
        self._slots.release(running)
        running.sampler.close()
        if self._drafter is not None and running.slot in self._drafting:
            self._drafting.discard(running.slot)
            self._drafter.end(running.slot)


def _describe(slot: Slot) -> SlotInfo:
    running = slot.running
    if running is None:
        return SlotInfo(slot.id, None, len(slot.cached), False)
    return SlotInfo(slot.id, running.number, running.n_past, True)


def _add(totals: Totals, done: Done) -> Totals:
    a, b = totals.draft, done.timings.draft
    draft = DraftStats(
        a.n_rounds + b.n_rounds,
        a.n_drafts + b.n_drafts,
        a.n_drafted + b.n_drafted,
        a.n_accepted + b.n_accepted,
        a.n_healed + b.n_healed,
        a.n_salvaged + b.n_salvaged,
        a.draft_ms + b.draft_ms,
    )
    return replace(
        totals,
        n_requests=totals.n_requests + 1,
        n_prompt=totals.n_prompt + done.timings.n_prompt,
        n_predicted=totals.n_predicted + done.usage.n_predicted,
        draft=draft,
    )


def summary(done: Done) -> str:
    """The one log line of a finished request."""
    t, d = done.timings, done.timings.draft
    line = (
        f"request {done.request}: {done.finish} after {t.n_predicted} tokens, {t.predicted_per_second:.1f} tokens/s; "
        f"prompt {t.n_prompt} tokens (+{t.n_cached} cached), {t.prompt_per_second:.0f} tokens/s"
    )
    if not d.n_drafts:
        return line + "; not drafted"
    return line + (
        f"; drafted {d.n_drafted}, accepted {d.n_accepted} ({100 * d.accept_rate:.0f} %), mean accepted run {d.mean_accepted_run:.1f}, "
        f"rejected {d.n_rejected}, healed {d.n_healed}, salvaged {d.n_salvaged}, drafting {d.draft_ms:.0f} ms"
    )
