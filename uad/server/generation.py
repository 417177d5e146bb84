"""The sequences of one HTTP request: submitted to the engine, heard on the event loop, cancelled with the request."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from uad.apis.teller import Arrival
from uad.errors import SlowReaderError, UadError
from uad.events import Done, Event, Failed
from uad.requests.backend import Backend
from uad.types import Request

CAPACITY = 1024
log = logging.getLogger("uad.server")


class Inbox:
    """Events of one HTTP request, in order, each with the number of its sequence.

    `put` belongs to the model thread, everything else to the loop. Past `capacity` events the inbox closes: later
    events are dropped and `on_overflow` runs once on the loop.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_overflow: Callable[[], None], capacity: int = CAPACITY
    ) -> None:
        self._loop = loop
        self._on_overflow = on_overflow
        self._capacity = capacity
        self._lock = threading.Lock()
        self._events: list[tuple[int, Event]] = []
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
            if self._is_waking:
                return
            self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed: nobody is listening any more
            return

    def wake(self) -> None:
        """Make a pending `take` return what there is."""
        self._ready.set()

    async def take(self, timeout: float | None) -> list[tuple[int, Event]]:
        """All events that have arrived; waits for the first. Empty after `timeout` seconds of silence, or `wake`."""
        if not self._events:
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return []
        with self._lock:
            events, self._events = self._events, []
        return events

    def _wake(self) -> None:
        with self._lock:
            self._is_waking = False
            is_over, has_events = self._is_over, bool(self._events)
        if is_over:
            self._on_overflow()
        if has_events:  # else a `take` was quicker, and the next one is to wait for its own
            self._ready.set()


class Generation:
    """A context manager around submitted requests; `take` hands out their events, numbered by position in
    `requests`.
    """

    def __init__(self, engine: Backend, requests: Sequence[Request]) -> None:
        self._engine = engine
        self._requests = requests
        self._inbox = Inbox(asyncio.get_running_loop(), self._overflow)
        self._running: dict[int, int] = {}
        self._failure: UadError | None = None

    def __enter__(self) -> Generation:
        try:
            for index, request in enumerate(self._requests):
                self._running[index] = self._engine.submit(request, functools.partial(self._inbox.put, index))
        except BaseException:
            self.cancel()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    @property
    def is_open(self) -> bool:
        """Whether `take` has something to say still: events to come, or a failure."""
        return bool(self._running) or self._failure is not None

    def cancel(self) -> None:
        """Free the slots of all unfinished sequences."""
        running, self._running = self._running, {}
        for request in running.values():
            self._engine.cancel(request)

    def abort(self, failure: UadError) -> None:
        """Cancel, and raise `failure` from the next `take`; the first one counts."""
        self.cancel()
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


def _expected(error: Exception) -> UadError:
    if isinstance(error, UadError):
        return error
    log.error("a request failed for an unexpected reason", exc_info=error)
    return UadError("the request failed for an internal reason; the server's log has the details")
