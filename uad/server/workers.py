"""Work that is too long for the event loop, on threads. It ends early when whoever asked for it has left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from uad.checkpoint import DroppedError, checkpoint, wanted_while
from uad.errors import UnavailableError
from uad.server.problems import BusyError
from uad.server.reading import SMALL

T = TypeVar("T")
N_THREADS = 2
_LARGE = 1 << 20


class Lane:
    """A few threads, and a bounded number of requests that wait for them. All methods but `_work` belong to the loop's thread."""

    def __init__(self, name: str, n_most: int) -> None:
        self.n_inside = 0
        self._n_most = n_most
        self._is_closed = threading.Event()
        self._threads = ThreadPoolExecutor(N_THREADS, thread_name_prefix=f"uad-http-{name}")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`. Where this call is cancelled, the work is, too: before it begins, or at its next checkpoint."""
        if self.n_inside >= self._n_most:
            raise BusyError(f"{self._n_most} requests of this size are being read or wait for it; try again later")
        has_left = threading.Event()
        self.n_inside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work, has_left)
        except DroppedError:
            raise UnavailableError("the server is shutting down") from None
        finally:
            has_left.set()
            self.n_inside -= 1

    def close(self) -> None:
        """Drop what waits and what runs, and wait for the threads."""
        self._is_closed.set()
        self._threads.shutdown(cancel_futures=True)

    def _work(self, work: Callable[[], T], has_left: threading.Event) -> T:
        with wanted_while(lambda: not has_left.is_set() and not self._is_closed.is_set()):
            checkpoint()
            return work()


class Workers:
    """Lanes by length of body: a request waits behind others of its own size only, never a short one behind a long one."""

    def __init__(self) -> None:
        self._lanes = {SMALL: Lane("small", 1024), _LARGE: Lane("middle", 256)}
        self._last = Lane("large", 32)

    def lane(self, size: int) -> Lane:
        """The lane for a body of `size` bytes."""
        return next((lane for limit, lane in self._lanes.items() if size <= limit), self._last)

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close all lanes at the end of the block."""
        try:
            yield
        finally:
            for lane in (*self._lanes.values(), self._last):
                await asyncio.to_thread(lane.close)
