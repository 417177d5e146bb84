"""The loop: which requests write and which read their prompts in a step. Knows no kind of drafter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import perf_counter
from typing import Any

from uad.base.errors import AbortedError
from uad.base.events import CacheCounts, EngineView, Sink, SlotInfo, Totals
from uad.base.stats import DrafterStats
from uad.base.types import READ_AGAIN, Clock, Origin, PlacedImage, Request, Rows
from uad.engine.decode.drafting import Drafting
from uad.engine.decode.layout import Least
from uad.engine.decode.prefill import SOON_S, Prefill
from uad.engine.decode.prompt_cache import PromptCache
from uad.engine.decode.rounds import Rounds, SequenceRows, never
from uad.engine.decode.scheduler import SamplerFactory, Scheduler
from uad.engine.decode.sequence import NO_DRAFT, Running
from uad.engine.decode.slots import Slots, SlotTexts
from uad.engine.decode.target import Target
from uad.text.grammar.protocol import Matcher

PROMPT_ROWS = 64  # of a prompt at once whose probabilities are asked for: as many logits as a long draft has


class Engine:
    """Runs requests on a target. Everything here happens on one thread; events go to each request's sink. `requests`
    are those that run or wait, `texts` what its slots hold.

    least: no pass over the weights may be smaller; dummy rows fill up (see `layout.padding`). matchers: see
    `Scheduler`; cache: see `SlotTexts`.
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
        cache: PromptCache[Any] | None = None,
    ) -> None:
        self._target = target
        self._drafting = drafting
        self._least = least or Least()
        # most ids, prompt and answer, that one sequence may have: dummy rows need positions too
        self.limit = target.n_ctx - (self._least.rows - 1)
        matchers = {} if matchers is None else matchers
        self._slots = slots = Slots(target)
        self.texts = texts = SlotTexts(slots, target, cache, lambda: self._reader.prefill.rate)
        self.requests = requests = Scheduler(
            target, drafting, samplers, seeds, self.limit, clock, matchers, slots, texts
        )
        self._rounds = Rounds(target, drafting, requests, self._least, clock)
        self._reader = PromptReader(target, requests, self._rounds, self._least, clock)
        self._cache = cache

    # --- requests

    def submit(self, number: int, request: Request, sink: Sink) -> None:
        """The request, which was checked, waits for a slot. The sink gets its events."""
        self.requests.waiting.add(number, request, sink)

    def cancel(self, number: int, why: str = "cancelled") -> None:
        """The slot of the request is free now. No event follows; the log says why."""
        self.requests.cancel(number, why)

    def interrupt(self, wanted: bool = True) -> None:
        """See `PromptReader.interrupt`. From any thread."""
        self._reader.interrupt(wanted)

    # --- what others ask

    def slots(self) -> tuple[SlotInfo, ...]:
        """The activity and contents of each slot."""
        return self._slots.describe()

    @property
    def has_room(self) -> bool:
        """Whether a slot is free. From any thread."""
        return self._slots.has_free

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return self.requests.is_idle

    def leave(self) -> None:
        """The models are about to be unloaded, for sleep or at the end: what slots and the prompt cache hold goes to a
        disk, where the cache has a level there. Only while idle.
        """
        self.texts.store()
        self.texts.forget()
        if self._drafting is not None:
            self._drafting.leave()

    def hold(self, origin: Origin, is_held: bool) -> None:
        """Draft without this drafter, or with it again: see `Drafting.hold`."""
        if self._drafting is not None:
            self._drafting.hold(origin, is_held)

    def learn(self, seq: int, ids: Sequence[int], n_held: Mapping[Origin, int]) -> None:
        """A text came back into a free slot: see `Drafting.restored`."""
        if self._drafting is not None:
            self._drafting.restored(seq, n_held, ids)

    def drafters(self) -> tuple[DrafterStats, ...]:
        """Statistics of each drafter since start."""
        return self._drafting.tally.stats() if self._drafting is not None else ()

    def totals(self) -> Totals:
        """Totals of the work done since start."""
        rounds = self._rounds
        n_policy_failures = self._drafting.policy.n_failures if self._drafting is not None else 0
        cache = self._cache.counts if self._cache is not None else CacheCounts()
        totals = replace(self.requests.totals, n_decodes=rounds.n_decodes, n_busy_slots=rounds.n_busy_slots)
        return replace(totals, n_policy_failures=n_policy_failures, cache=cache)

    def view(self) -> EngineView:
        """The current activity, for display. On the model thread."""
        rounds = self._rounds
        if self._drafting is None:
            return EngineView(rounds.n_written, rounds.n_rounds, rounds.depth)
        policy, lengths, drafters = self._drafting.view(rounds.depth)
        return EngineView(
            rounds.n_written, rounds.n_rounds, rounds.depth, policy.curve, policy.plain, lengths, drafters
        )

    def step(self, go_on: Callable[[], bool] = lambda: False) -> None:
        """One round for all sequences: those that write share one decode; then each that still reads its prompt gets a
        chunk decoded. Where nothing else is to be done, rounds without drafts go on for milliseconds, as long as
        go_on() says so.

        Apart, because llama.cpp would cut a batch of both into the same passes, and writers need not wait for their
        tokens. A failure ends the requests that it concerns; an exception raised from here says that the engine cannot
        go on.
        """
        self.requests.admit()
        if self._least.rows > 1:
            self._catch_up()
        writing = _writing(self.requests)
        reads = len(writing) < len(self.requests.running)
        if writing:
            self._rounds.write(writing, never if reads else go_on)
        if reads:
            self._reader.read(bool(writing))

    def _catch_up(self) -> None:
        """Ids of texts that must be decoded again are decoded before the passes of the round are laid out, where they
        are many: all but the last one, and what would make a pass too small.

        `Target.prepare` would decode them, too, but after the layout: without their rows passes could be smaller than
        `exact` allows.
        """
        for running in _writing(self.requests):
            waiting = running.ids[running.n_past :]
            n = n_at_once(len(waiting) - 1, self._target.n_ubatch, self._least.rows)
            if n <= READ_AGAIN:
                continue
            try:
                self._target.decode([Rows(running.slot, running.n_past, waiting[:n], 0)])
            except Exception as error:
                self._rounds.fail_decode([running], error)
            else:
                running.n_past += n


def _writing(requests: Scheduler) -> list[Running]:
    """Requests whose prompts are read, in the order of slots."""
    return [running for running in requests.running if not running.is_prefilling]


class PromptReader:
    """Reads the prompts of the requests that run: whose turn it is, and how far, says `prefill`."""

    def __init__(self, target: Target, requests: Scheduler, rounds: Rounds, least: Least, clock: Clock) -> None:
        self._target = target
        self._requests = requests
        self._rounds = rounds
        self._least = least.rows
        self._clock = clock
        self._pass_ends = inf  # when the pass is expected to end that may be interrupted
        self.prefill = Prefill(target.n_ubatch, target.n_batch - (least.rows - 1), clock)

    def interrupt(self, wanted: bool = True) -> None:
        """From any thread: a pass over a prompt ends soon, since a request waits, unless it will anyway. Until it is
        not wanted any more.
        """
        if not wanted or self._pass_ends - self._clock() > SOON_S:
            self._target.interrupt(wanted)

    def read(self, others_write: bool) -> None:
        """The reading of one round: text, images, one after another."""
        for running, n in self.prefill.pieces(self._readers, others_write, self._target.can_stop):
            image = running.next_image
            if image is not None and image.start == running.n_past:
                is_read = self._see(running, image)
            else:
                is_read = self._text(running, n, image.start if image is not None else running.n_prompt)
            if not is_read:
                break  # the request that interrupted it waits for the end of the round

    def _readers(self) -> list[Running]:
        return [running for running in self._requests.running if running.is_prefilling]

    def _see(self, running: Running, image: PlacedImage) -> bool:
        """Decode rows of the image that is next in a prompt: a pass of them, or all. False: that failed, and the
        request with it.
        """
        try:
            running.n_seen = self._target.see(running.slot, image, running.n_seen)
        except Exception as error:
            self._rounds.fail_decode([running], error)
            return False
        self._rounds.count(1, len(self._requests.running), 0)
        if running.n_seen == image.n_rows:
            running.n_past, running.n_seen = image.end, 0
            if running.request.progress:
                try:
                    running.sink(running.progress(self._clock()))
                except Exception as error:
                    self._requests.fail([running], error)
                    return False
        return True

    def _text(self, running: Running, n: int, end: int) -> bool:
        """Decode the next n ids of a prompt, up to `end`, where an image begins or the prompt ends. False: that was
        interrupted, or failed.
        """
        n_until, wants_probs = end - running.n_past, running.request.prompt_probs
        n = self._whole(running, before_image(min(n, PROMPT_ROWS) if wants_probs else n, n_until))
        # dummy rows that cannot be taken back would take the few ids before an image with them, for ever
        is_short = n < self._least and n_until < running.n_unread
        may_pad = not is_short or self._target.n_free >= self._least
        is_last = n == running.n_unread
        draws = is_last and running.request.max_tokens != 0
        pending, n_logits = running.ids[running.n_past : running.n_past + n], n if wants_probs else int(draws)
        began = self._clock()
        self._pass_ends = began + self.prefill.seconds(running, n)
        part = SequenceRows(running, pending, NO_DRAFT, n_logits, draws=draws, may_pad=may_pad)
        try:
            rows, seconds = self._rounds.run([part], self._target.can_stop and self.prefill.may_stop(running, n))
        except AbortedError:
            self.prefill.lost(self._clock() - began)
            return False
        finally:
            self._pass_ends = inf
        if rows:
            self.prefill.took(running, n, seconds)
            if is_last:
                running.request.prompt_is_read()
        return bool(rows)

    def _whole(self, running: Running, n: int) -> int:
        """How many of a prompt's next n ids are best decoded at once. Where marks help later prompts, the last ones
        come apart, after a mark. Where dummy rows cannot be taken back, no pass but the last is so small that it needs
        some.
        """
        # With a tail of 8 the last 300 ids of a prompt are decoded as 292, a mark, and 8. The next turn of a chat often
        # has other ids than the last few of these: it goes on from the mark.
        tail = self._target.tail
        if tail and n == running.n_unread > 2 * tail:
            n -= tail
        elif tail:
            self._target.mark(running.slot, is_last=n == running.n_unread)
        may_wait = self._target.n_free < self._least and n < running.n_unread
        return n_at_once(n, self._target.n_ubatch, self._least) if may_wait else n


def before_image(n: int, n_until: int) -> int:
    """How many of a prompt's n ids are read now, where an image or the end follows after n_until: no row is left by
    itself before it.
    """
    return n - 1 if 2 < n == n_until - 1 else min(n, n_until)


def n_at_once(n: int, n_ubatch: int, least: int) -> int:
    """How many of n ids passes of n_ubatch rows take without one that is too small."""
    rest = n % n_ubatch
    return n - rest if rest < least < n else n
