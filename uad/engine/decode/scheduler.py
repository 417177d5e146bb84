"""Which requests run: those that wait, those in slots, how they start and how they end. Decodes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from uad.base.common.numbers import duration, rounded
from uad.base.common.request_id import about
from uad.base.errors import ContextOverflowError, InvalidRequestError, UadError
from uad.base.events import Done, Failed, Sink, Totals
from uad.base.types import Clock, Finish, Request
from uad.base.types.images import n_more_cells
from uad.engine.decode.drafting import DraftedText, Drafting
from uad.engine.decode.guard import deliver, known, logged
from uad.engine.decode.sequence import Running
from uad.engine.decode.slots import Slot, Slots, SlotTexts
from uad.engine.decode.target import Target
from uad.engine.decode.verify import Picker
from uad.text.grammar.protocol import Matcher

_log = logging.getLogger("uad.request")
SamplerFactory = Callable[[Request, int], Picker]
_TELLING_MS = 50.0
"""Less is not said to be saved."""


class Waiting:
    """Requests that wait for a slot, by their numbers, the oldest first. Some also wait for texts of a disk."""

    def __init__(self, slots: Slots, texts: SlotTexts) -> None:
        self._slots = slots
        self._texts = texts
        self._arrivals = texts.arrivals
        self.all: dict[int, tuple[Request, Sink]] = {}

    def add(self, number: int, request: Request, sink: Sink) -> None:
        """The request waits for a slot; it was checked."""
        self.all[number] = request, sink

    def drop(self, number: int) -> None:
        """The request waits no more, if it did."""
        self.all.pop(number, None)
        if self._arrivals is not None:
            self._arrivals.gone(number)

    def is_coming(self, number: int) -> bool:
        """Whether a request waits for a text that is not read yet."""
        return self._arrivals is not None and self._arrivals.is_coming(number)

    def starting(self) -> Iterator[tuple[Slot, int, Request, Sink]]:
        """Requests that can start now, each with the slot that it is to take before the next one is asked for. A
        request that wants a busy slot, or waits for its text from a disk, lets others pass.
        """
        for number, (request, sink) in tuple(self.all.items()):
            if not self._slots.has_free:
                return
            slot = None if self.is_coming(number) else self._texts.choose(request)
            if slot is not None and not self._texts.waits(slot, number, request):
                yield slot, number, request, sink
                del self.all[number]


class Scheduler:
    """The requests of a target.

    limit: most ids, prompt and answer, that one sequence may have. seeds: one for a request without. matchers: of the
    running sequences that are constrained, by slot; kept here for those that draft.
    """

    def __init__(
        self,
        target: Target,
        drafting: Drafting | None,
        samplers: SamplerFactory,
        seeds: Callable[[], int],
        limit: int,
        clock: Clock,
        matchers: dict[int, Matcher],
        slots: Slots,
        texts: SlotTexts,
    ) -> None:
        self._matchers = matchers
        self._target = target
        self._drafting = drafting
        self._samplers = samplers
        self._seeds = seeds
        self._limit = limit
        self._clock = clock
        self._slots = slots
        self._texts = texts
        self.waiting = Waiting(slots, texts)
        self.totals = Totals()

    def check(self, request: Request) -> None:
        """Raises what a submission of this request would."""
        if not request.prompt:
            raise InvalidRequestError("the prompt is empty; give at least one token", "prompt")
        n_tokens = len(request.prompt) + n_more_cells(request.placed, len(request.prompt))
        if n_tokens >= self._limit:
            raise ContextOverflowError(n_tokens, self._target.n_ctx)
        if request.slot >= len(self._slots.all):
            raise InvalidRequestError(
                f"there is no slot {request.slot}; slots are 0 to {len(self._slots.all) - 1}", "id_slot"
            )

    def cancel(self, number: int, why: str = "cancelled") -> None:
        """Frees the request's slot now. No event follows."""
        if number in self.waiting.all:
            log_left(number, self.waiting.all[number][0], why)
        self.waiting.drop(number)
        for running in self.running:
            if running.number == number:
                log_left(number, running.request, why, min(running.n_past, running.n_prompt), running.answer.n)
                self.release(running)

    @property
    def running(self) -> list[Running]:
        """The running requests, in the order of slots."""
        return self._slots.running

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self.waiting.all and not self.running

    @property
    def is_stuck(self) -> bool:
        """Whether nothing runs, and all that waits waits for texts that are read from a disk, or nothing does."""
        return not self.running and all(map(self.waiting.is_coming, self.waiting.all))

    # --- starting

    def admit(self) -> None:
        """Waiting requests take free slots, in order. One that cannot start ends alone."""
        if not self.waiting.all:
            return
        for slot, number, request, sink in self.waiting.starting():
            try:
                running = self._start(slot, number, request, sink)
            except Exception as error:
                slot.cached.clear()
                self._refuse(number, request, sink, error)
            else:
                if request.progress:  # its prompt is being read now
                    try:
                        sink(running.progress(running.started))
                    except Exception as error:
                        self.fail([running], error)

    def _start(self, slot: Slot, number: int, request: Request, sink: Sink) -> Running:
        seed = self._seeds() if request.sampling.seed is None else request.sampling.seed
        n_cached, n_known = self._texts.prepare(slot, request)
        sampler = self._samplers(request, seed)
        with ExitStack() as undo:
            undo.callback(self._close, slot.id, sampler)
            running = Running(
                number=number,
                request=request,
                sink=sink,
                vocab=self._target.vocab,
                sampler=sampler,
                seed=seed,
                slot=slot.id,
                limit=self._limit - n_more_cells(request.placed, len(request.prompt)),
                n_cached=n_cached,
                ids=list(request.prompt),
                n_past=n_cached,
                started=self._clock(),
            )
            needs_all = request.prompt_probs or (request.logprobs and not request.post_sampling)
            self._target.want_likeliest(slot.id, 0 if needs_all else sampler.n_needed)
            if sampler.matcher is not None:
                self._matchers[slot.id] = sampler.matcher
            if self._drafting is not None and request.speculative.enabled:
                sampling, drafted = replace(request.sampling, seed=seed), request.drafted_prompt
                read = request.prompt if request.placed else ()
                # nothing is known of another prompt; one with images is the same after these
                n_same = max(n_known + len(drafted) - len(read), 0) if read else 0 if drafted else n_known
                prompt = drafted or request.prompt
                self._drafting.begin(DraftedText(slot.id, prompt, sampling, n_same, request.prediction, read))
            undo.pop_all()
        slot.running = running
        self._slots.use(slot)
        return running

    # --- ending

    def finish(self, running: Running, done: Done) -> None:
        """The answer is whole."""
        self.release(running)
        self.totals += Totals.of(done)
        with about(running.request.name):
            _log.info("%s", summary(done, saved_ms(done, self._drafting)))
            if done.timings.draft.n_drafts:
                _log.debug("%s", details(done))
            deliver(running.sink, done)

    def release(self, running: Running) -> None:
        """The slot is free; what its KV holds stays for the next prompt."""
        self._slots.release(running)
        self._close(running.slot, running.sampler)

    def fail(self, runnings: Sequence[Running], error: Exception) -> None:
        """These requests end with this error. Raises what forgetting them on the target raises, once
        all have the event.
        """
        for running in runnings:
            running.n_past = running.n_seen = 0
            self._slots.release(running)
            self._refuse(running.number, running.request, running.sink, error)
            self._close(running.slot, running.sampler)
        for running in runnings:
            self._target.clear(running.slot)

    def fail_all(self, error: UadError) -> None:
        """Every request, running or waiting, ends with this error."""
        for number, (request, sink) in tuple(self.waiting.all.items()):
            self.waiting.drop(number)
            self._refuse(number, request, sink, error)
        self.fail(self.running, error)

    def tell_all(self, error: UadError) -> None:
        """Every request, running or waiting, ends with this error. Nothing else happens: the target must
        not be touched any more.
        """
        for number, (request, sink) in self.waiting.all.items():
            self._refuse(number, request, sink, error)
        for running in self.running:
            self._refuse(running.number, running.request, running.sink, error)

    def _refuse(self, number: int, request: Request, sink: Sink, error: Exception) -> None:
        self.totals = replace(self.totals, n_failed=self.totals.n_failed + 1)
        with about(request.name):
            deliver(sink, Failed(number, known(error)))

    def _close(self, slot: int, sampler: Picker) -> None:
        with logged("a sampler could not be closed"):
            sampler.close()
        self._matchers.pop(slot, None)
        if self._drafting is not None:
            self._drafting.end(slot)


def saved_ms(done: Done, drafting: Drafting | None) -> float:
    """Milliseconds that the answer would have taken without drafts, less those it took; 0 where the costs are not
    known well.
    """
    t = done.timings
    if drafting is None or not t.draft.n_drafts:
        return 0.0
    policy, *_ = drafting.view(t.n_cached + t.n_prompt + t.n_predicted // 2)
    return (t.n_predicted - 1) * policy.curve[0] - t.predicted_ms if policy.plain else 0.0


def summary(done: Done, saved_ms: float = 0.0) -> str:
    """The line of a finished request: tokens read and written, how fast, what drafts did and saved."""
    t, d = done.timings, done.timings.draft
    cached = f" (and {t.n_cached:,} from the cache)" if t.n_cached else ""
    line = (
        f"request {done.request}: read {t.n_prompt:,} token{'s' * (t.n_prompt != 1)}{cached} in {duration(t.prompt_ms)}"
    )
    line += f", wrote {t.n_predicted:,} in {duration(t.predicted_ms)}"
    if t.predicted_per_second:
        line += f", {rounded(t.predicted_per_second, 3)} tokens/s"
    line += " (stopped at the token limit)" if done.finish is Finish.LENGTH else ""
    if d.n_drafts:
        line += f"; drafted {d.n_drafted:,}, accepted {d.n_accepted:,} ({100 * d.accept_rate:.0f} %)"
        line += f", saved about {duration(saved_ms)}" if saved_ms >= _TELLING_MS else ""
    return line


def details(done: Done) -> str:
    """Details, for developers, of a finished request whose drafts were used."""
    t, d = done.timings, done.timings.draft
    by = ", ".join(f"{stats.origin} {stats.n_accepted}/{stats.n_drafted}" for stats in d.by.values())
    return (
        f"request {done.request}: prompt {t.prompt_per_second:.0f} tokens/s; accepted/drafted by {by}; "
        f"accepted per draft {d.mean_accepted_run:.1f}, healed {d.n_healed}, salvaged {d.n_salvaged}, drafting "
        f"{d.draft_ms:.0f} ms, translation {d.translate_us:.0f} µs per round with {100 * d.crossing.hit_rate:.0f} % of "
        "the words known"
    )


def log_left(number: int, request: Request, why: str, n_read: int = 0, n_written: int = 0) -> None:
    """The line of a request that was cancelled."""
    with about(request.name):
        counts = f"read {n_read:,} of {len(request.prompt):,} tokens, wrote {n_written:,}"
        _log.info("request %d: %s; %s", number, why, counts)
