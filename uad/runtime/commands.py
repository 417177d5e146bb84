"""Requests of other threads to the model thread, in order, until it is closed or stopped by a fatal error."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from uad.base.errors import UadError
from uad.engine.decode.guard import logged

_log = logging.getLogger("uad")
_LAST_WORDS_S = 10.0  # for clients to get their errors, once llama.cpp has given up
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
        self._gave_up, self._is_over = threading.Event(), threading.Event()

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

    def refuse(self, error: Exception, fail_all: Callable[[UadError], None]) -> None:
        """Remember the fatal error, end all requests with it, and go on refusing until closed. On the model thread."""
        _log.error("the model thread stopped: %s", error, exc_info=not isinstance(error, UadError))
        fatal = error if isinstance(error, UadError) else UadError(f"internal error: {type(error).__name__}: {error}")
        with self.lock:
            self.error = fatal
        with logged("what the fatal error left could not be cleared away"):  # what broke may break again
            fail_all(fatal)
        self.tell_stopped()
        while (command := self.get()) is not None:
            with suppress(Exception):
                command()
                fail_all(fatal)

    def give_up(
        self, message: str, tell_all: Callable[[UadError], None], begin: Callable[[UadError], None] = lambda error: None
    ) -> None:
        """End all requests by `tell_all`, and wait until the owner of the models has closed them: the process ends
        after this. begin: called before requests that wait here are looked at. On the thread that failed; the model's
        waits for llama.cpp, for ever.
        """
        error = UadError(message)
        with self.lock:
            self.error = self.error or error
            is_closing = self.is_closed
        self._gave_up.set()
        begin(error)
        with suppress(Exception):
            with suppress(queue.Empty):
                while True:  # requests that were submitted and not yet seen get the error, too
                    if (command := self.get(block=False)) is not None:
                        command()
            tell_all(error)
        self.tell_stopped()
        if not is_closing:
            self._is_over.wait(_LAST_WORDS_S)

    def gave_up(self) -> bool:
        """Whether `give_up` was called: then the model thread never ends, and the one that failed, for which this
        waits, ends the process. For whoever closes the models.
        """
        if not self._gave_up.is_set():
            return False
        self._is_over.set()
        threading.Event().wait(_LAST_WORDS_S)
        return True

    def tell_stopped(self) -> None:
        """All requests have their errors."""
        for tell in self._when_stopped:
            with suppress(Exception):  # no client listens any more
                tell()
