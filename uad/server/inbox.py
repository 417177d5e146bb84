"""The door between the model thread and the event loop: bounded, never blocking the model, one wake-up per burst."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from uad.types import Event

CAPACITY = 1024


class Inbox:
    """Events of one HTTP request, in order, each with the number of its sequence.

    `put` belongs to the model thread, everything else to the loop. Past `capacity` events the inbox closes: later events are dropped and
    `on_overflow` runs once on the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_overflow: Callable[[], None], capacity: int = CAPACITY) -> None:
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
