"""The part of a runtime that requests need, and the sequences of one request that run on it.

`uad.runtime.Runtime` satisfies the protocol; tests bring a scripted one.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Protocol

from uad.base.common.embedding import Embeds
from uad.base.config import Config
from uad.base.errors import SlowReaderError, UadError
from uad.base.events import (
    Delta,
    Done,
    EngineSnapshot,
    EngineView,
    Event,
    Failed,
    Progress,
    RuntimeInfo,
    Sink,
    SleepState,
    SlotAction,
    SlotOutcome,
)
from uad.base.types import Request
from uad.text.prompts import Text

CAPACITY_EVENTS = 1024
_TICK_S = 0.008  # how often inboxes are read while events come fast
_FAST_EVENTS = 2  # events in a tick, of all requests
log = logging.getLogger("uad.server")
Arrival = tuple[int, Delta | Progress | Done]


class Backend(Protocol):
    """Generation as the HTTP side sees it: seven facts, nine methods. Every method may be called from any thread, and
    returns at once.
    """

    embeds: Embeds | None
    """The model that embeds or ranks texts, in place of writing them; None: the server writes."""

    @property
    def config(self) -> Config:
        """The configuration that the server was started with."""

    @property
    def info(self) -> RuntimeInfo:
        """The models, the context of a slot in ids, the drafters, and the lines printed at start."""

    @property
    def sees_images(self) -> bool:
        """Whether prompts may have pictures."""

    @property
    def error(self) -> UadError | None:
        """The fatal error that stopped the engine; None while it runs."""

    @property
    def text(self) -> Text:
        """Texts to ids and back; not while the models are unloaded, but for what needs no ids."""

    @property
    def sleep(self) -> SleepState:
        """Whether the models are unloaded, or about to be."""

    def fall_asleep(self) -> None:
        """Unload the models soon, unless they are needed before that. `sleep` says so at once."""

    def wake(self) -> Future[None]:
        """Load them again, unless they are: done then. The future has UnavailableError where that fails; another call
        tries again."""

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request, whose events sink gets on another thread; returns its number. Raises InvalidRequestError,
        ContextOverflowError or UnavailableError."""

    def cancel(self, request: int, why: str = "cancelled") -> None:
        """Free the slot of the request with this number within one round; no event follows. The log says why."""

    def snapshot(self) -> EngineSnapshot:
        """Counts and present state of slots, drafters and adapters."""

    def set_adapters(self, scales: tuple[float, ...]) -> None:
        """How much of each adapter is added for later requests that do not say; one number for each."""

    def slot_action(self, action: SlotAction, slot: int, name: str = "") -> Future[SlotOutcome]:
        """Save a slot to the file of this name, restore it from there, or erase it, as soon as it is free. Raises
        InvalidRequestError, UnavailableError or NotSupportedError; the future has these and UadError."""

    def look(self, show: Callable[[EngineView], None]) -> None:
        """Call `show`, on another thread and soon, with what the loop does; never once the engine has stopped."""

    def when_stopped(self, call: Callable[[], object]) -> None:
        """Call `call`, on any thread, when a fatal error has stopped the engine and all requests have their errors."""


class Ticks:
    """When the inboxes of a loop are read: all at once every `_TICK_S` seconds, while events come fast."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._at = 0  # the present tick, and how many events were taken in it and in the one before
        self._n = self._n_before = 0
        self._waiting: list[Callable[[], None]] = []

    def took(self, n: int) -> bool:
        """An inbox has read n events; returns whether events come fast."""
        at = int(self._loop.time() / _TICK_S)
        if at != self._at:
            self._n_before, self._n = self._n if at == self._at + 1 else 0, 0
            self._at = at
        self._n += n
        return max(self._n, self._n_before) >= _FAST_EVENTS

    def call(self, read: Callable[[], None]) -> None:
        """Call `read` when the next tick begins."""
        if not self._waiting:
            self._loop.call_at((self._at + 1) * _TICK_S, self._run)
        self._waiting.append(read)

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        for read in waiting:
            read()


class Inbox:
    """Events of one HTTP request, in order, each with the number of its sequence.

    `put` belongs to the model thread, everything else to the loop. Past `capacity` events the inbox closes: later
    events are dropped and `on_overflow` runs once on the loop.

    An event wakes the loop, which costs the model thread a system call and, on few cores, its core. So while events
    come fast they are read in `ticks`, until one finds none. The first event of a request and the last one of a
    sequence always wake the loop. is_whole: nothing is read before the end, so only last events do, and there is no
    capacity.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_overflow: Callable[[], None],
        capacity: int = CAPACITY_EVENTS,
        is_whole: bool = False,
        ticks: Ticks | None = None,
    ) -> None:
        self._loop = loop
        self._ticks = ticks or Ticks(loop)
        self._on_overflow = on_overflow
        self._capacity = sys.maxsize if is_whole else capacity
        self._is_whole = is_whole
        self._lock = threading.Lock()
        self._events: list[tuple[int, Event]] = []
        self._is_awaited = is_whole  # by a tick, or by the end: events need not wake the loop
        self._is_waking = False
        self._is_over = False
        self._ready = asyncio.Event()

    def put(self, index: int, event: Event) -> None:
        """Hand over one event; returns at once and never raises."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = len(self._events) >= self._capacity
            if not self._is_over:
                self._events.append((index, event))
            if self._is_waking or (self._is_awaited and not self._is_over and not isinstance(event, Done | Failed)):
                return
            self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed: no client is listening any more
            return

    def wake(self) -> None:
        """Make a pending `take` return what there is."""
        self._ready.set()

    async def take(self, timeout: float | None) -> list[tuple[int, Event]]:
        """All events that have arrived; waits for the first. Empty after `timeout` seconds of silence, or `wake`."""
        if not self._ready.is_set() and (self._is_awaited or not self._events):
            timer = self._loop.call_later(timeout, self.wake) if timeout is not None else None
            try:
                await self._ready.wait()
            finally:
                if timer is not None:  # a timer of its own costs a fifth of what asyncio.timeout does
                    timer.cancel()
        self._ready.clear()
        with self._lock:
            events, self._events = self._events, []
            is_fast = not self._is_whole and self._ticks.took(len(events)) and bool(events)
            self._is_awaited = self._is_whole or is_fast
        if is_fast:
            self._ticks.call(self._tick)
        return events

    def _wake(self) -> None:
        with self._lock:
            self._is_waking = False
            is_over, has_events = self._is_over, bool(self._events)
        if is_over:
            self._on_overflow()
        if has_events:  # else a `take` was quicker, and the next one is to wait for its own
            self._ready.set()

    def _tick(self) -> None:
        with self._lock:
            self._is_awaited = False
            has_events = bool(self._events)
        if has_events:
            self._ready.set()


class Generation:
    """A context manager around submitted requests; `take` hands out their events, numbered by position in
    `requests`. on_overflow: called once they were cancelled because the events are not taken. is_whole: nothing is sent
    before all of them have ended. ticks: of all requests on this loop.
    """

    def __init__(
        self,
        engine: Backend,
        requests: Sequence[Request],
        on_overflow: Callable[[], None] = lambda: None,
        is_whole: bool = False,
        ticks: Ticks | None = None,
    ) -> None:
        self._engine = engine
        self._on_overflow = on_overflow
        self._requests = requests
        self._inbox = Inbox(asyncio.get_running_loop(), self._overflow, is_whole=is_whole, ticks=ticks)
        self._running: dict[int, int] = {}
        self._failure: UadError | None = None

    def __enter__(self) -> Generation:
        try:
            for index, request in enumerate(self._requests):
                self._running[index] = self._engine.submit(request, functools.partial(self._inbox.put, index))
        except BaseException as error:
            self.cancel(f"cancelled ({error})")
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        has_left = isinstance(error, asyncio.CancelledError | ConnectionError | TimeoutError)
        self.cancel("client left" if has_left else f"cancelled ({error})")

    @property
    def is_open(self) -> bool:
        """Whether `take` has something to say still: events to come, or a failure."""
        return bool(self._running) or self._failure is not None

    def cancel(self, why: str) -> None:
        """Free the slots of all unfinished sequences; why: for the log."""
        running, self._running = self._running, {}
        for request in running.values():
            self._engine.cancel(request, why)

    def abort(self, failure: UadError) -> None:
        """Cancel, and raise `failure` from the next `take`; the first one counts."""
        self.cancel(f"cancelled ({failure})")
        self._failure = self._failure or failure
        self._inbox.wake()

    async def take(self, timeout: float | None) -> list[Arrival]:
        """The events that have arrived, at least one; empty after `timeout` seconds of silence. Raises what a sequence
        failed with.
        """
        if self._failure is None:
            arrivals = self._sort(await self._inbox.take(timeout))
            if arrivals:
                return arrivals
        if self._failure is not None:
            raise self._failure
        return []

    def _sort(self, events: list[tuple[int, Event]]) -> list[Arrival]:
        arrivals: list[Arrival] = []
        for index, event in events:
            if isinstance(event, Failed):
                self._running.pop(index, None)
                self.abort(_expected(event.error))
                break
            if isinstance(event, Done):
                self._running.pop(index, None)
            arrivals.append((index, event))
        return arrivals

    def _overflow(self) -> None:
        self.abort(SlowReaderError("the client reads its stream too slowly; the request was cancelled"))
        self._on_overflow()


def _expected(error: Exception) -> UadError:
    if isinstance(error, UadError):
        return error
    log.error("a request failed for an unexpected reason", exc_info=error)
    return UadError("the request failed for an internal reason; the server's log has the details")


def merge(arrivals: list[Arrival]) -> list[Arrival]:
    """The same events with neighbouring deltas of one sequence joined: a slow reader gets fewer, larger
    pieces.
    """
    if len(arrivals) < 2:
        return arrivals
    # (0, a) (1, b) (0, c) (0, Done) (1, d) -> (0, ac) (1, bd) (0, Done): each choice keeps its own order
    runs: list[tuple[int, list[Delta | Progress | Done]]] = []
    last: dict[int, list[Delta | Progress | Done]] = {}
    for index, event in arrivals:
        run = last.get(index)
        if run is not None and isinstance(event, Delta) and isinstance(run[-1], Delta):
            run.append(event)
        else:
            last[index] = [event]
            runs.append((index, last[index]))
    return [(index, run[0] if len(run) == 1 else _joined(run)) for index, run in runs]


def _joined(run: Sequence[object]) -> Delta:
    """Many deltas as one, each part of them put together once."""
    deltas = [event for event in run if isinstance(event, Delta)]
    return Delta(
        deltas[0].request,
        tuple(chain.from_iterable(delta.ids for delta in deltas)),
        tuple(chain.from_iterable(delta.origins for delta in deltas)),
        "".join(delta.text for delta in deltas),
        tuple(chain.from_iterable(delta.probs for delta in deltas)),
        tuple(chain.from_iterable(delta.pieces for delta in deltas)),
        deltas[-1].timings,
        tuple(chain.from_iterable(delta.tokens for delta in deltas)),
    )
