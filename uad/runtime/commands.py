"""Requests of other threads to the model thread, in order, until it is closed or stopped by a fatal error."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from uad.base.errors import UadError

ThreadCommand = Callable[[], None]


class Commands:
    """A queue of calls that the model thread makes. From any thread.

    lock: around what must happen as one. `put` adds a command at once, `post` unless it is closed. None is the end.
    """

    def __init__(self) -> None:
        waiting: queue.SimpleQueue[ThreadCommand | None] = queue.SimpleQueue()
        self.put, self.get, self.is_empty = waiting.put, waiting.get, waiting.empty
        self.lock = threading.Lock()
        self.is_closed = False
        self.hurry = threading.Event()
        """There is work for the model, not only a look at its state."""
        self.error: UadError | None = None
        """The fatal error that stopped the model thread, if one did."""
        self._when_stopped: list[Callable[[], object]] = []

    def post(self, command: ThreadCommand) -> bool:
        """Have it done; False where nothing is done any more."""
        with self.lock:
            if not self.is_closed:
                self.put(command)
            return not self.is_closed

    def when_stopped(self, tell: Callable[[], object]) -> None:
        """Call `tell`, on the model thread, when a fatal error has stopped it and all requests have their errors; at
        once if it has.
        """
        with self.lock:
            if self.error is None:
                self._when_stopped.append(tell)
                return
        tell()

    def tell_stopped(self) -> None:
        """All requests have their errors."""
        for tell in self._when_stopped:
            with suppress(Exception):  # no client listens any more
                tell()
