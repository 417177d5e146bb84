"""One thread for all work on the draft model: what is asked for, and between that what may be of use later."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from uad.engine.decode.guard import reason, warn

T = TypeVar("T")
_log = logging.getLogger("uad.draft")


class DraftThread:
    """Runs work in order. `between` runs once after each, with what says whether it may go on: it must look soon and
    often, since work waits for it. Where it fails it is not run again.

    everywhere: on all processors, whichever the caller is bound to: vLLM binds its worker to one of them on a CPU, and
    the threads of llama.cpp would share it.
    """

    def __init__(
        self, between: Callable[[Callable[[], bool]], None] | None = None, *, everywhere: bool = False
    ) -> None:
        self._between = between
        self._everywhere = everywhere
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="uad drafts", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], T]) -> T:
        """The result of work(). Raises what it raises."""
        done: Future[T] = Future()
        self._work.put((work, done))
        return done.result()

    def between(self, work: Callable[[Callable[[], bool]], None]) -> None:
        """From now on this runs after all other work."""
        self._between = work

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Work that waits is done first, then `last`; nothing runs after that. Raises what `last` raises."""

        def end() -> None:
            self._between = None
            if last is not None:
                last()

        try:
            self.do(end)
        finally:
            self._work.put(None)
            self._thread.join()

    def _run(self) -> None:
        if self._everywhere:
            with suppress(OSError, AttributeError):
                os.sched_setaffinity(0, range(os.cpu_count() or 1))
        while (item := self._work.get()) is not None:
            work, done = item
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
            del item, work, done
            if self._between is not None:
                try:
                    self._between(self._work.empty)
                except Exception as error:
                    self._between = None
                    warn(_log, error, "drafting ahead failed (%s) and is left alone", reason(error))
