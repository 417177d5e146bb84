"""State that all handlers of one application share: the engine, how many requests may still enter, threads for long
work. Lives on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Protocol, TypeVar

from aiohttp import web

from uad.base.checkpoint import DroppedError, checkpoint, wanted_while
from uad.base.common.json_out import chunks
from uad.base.config import ServerConfig
from uad.base.errors import UadError, UnavailableError
from uad.base.events import Totals
from uad.http.apis.dialect import Served
from uad.http.apis.problems import BusyError
from uad.http.edge.bodies import MAX_TEXT_BYTES, Bodies
from uad.http.edge.json_in import SMALL_BYTES, parse_object
from uad.http.requests.generation import Backend, Ticks
from uad.http.server.idle import IdleTimer
from uad.http.server.media import Media
from uad.http.server.quick import Quick

T = TypeVar("T")
N_THREADS = 2
_LARGE_BYTES = 1 << 20


@dataclass(slots=True)
class Admission:
    """Counts sequences that are submitted and not finished; past `limit` none enters. Lives on the event loop's
    thread.
    """

    limit: int
    """How many requests fit: as many as the slots, and --max-queue more."""
    n_inside: int = 0
    draining: bool = False
    """Nothing enters any more: the server stops."""

    @contextmanager
    def enter(self, n: int) -> Iterator[None]:
        """Hold room for `n` sequences, or raise BusyError."""
        if self.draining:
            raise BusyError("the server is shutting down")
        if self.n_inside + n > self.limit:
            raise BusyError(
                f"the queue is full ({self.n_inside} sequences of at most {self.limit}); try again later or raise "
                "--max-queue"
            )
        self.n_inside += n
        try:
            yield
        finally:
            self.n_inside -= n


class Abortable(Protocol):
    """Work for a client."""

    def abort(self, failure: UadError) -> None:
        """End it; the client gets `failure`."""


class WorkerPool:
    """A few threads, and a bounded number of requests that wait for them. All methods but `_work` belong to the loop's
    thread.
    """

    def __init__(self, name: str, n_most: int) -> None:
        self.n_inside = 0
        self._n_most = n_most
        self._is_closed = threading.Event()
        self._n_working = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(N_THREADS, thread_name_prefix=f"uad-http-{name}")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`. Where this call is cancelled, the work is, too: before it begins, or at its next
        checkpoint.
        """
        if self.n_inside >= self._n_most:
            raise BusyError(f"{self._n_most} requests of this size are being read or wait for it; try again later")
        # A future of a thread pool cannot be cancelled once it runs: the work asks at its checkpoints whether anybody
        # still waits for it.
        has_left = threading.Event()
        self.n_inside += 1
        try:
            here = copy_context()  # lines of the log name the request
            return await asyncio.get_running_loop().run_in_executor(self._threads, here.run, self._work, work, has_left)
        except DroppedError:
            raise UnavailableError("the server is shutting down") from None
        finally:
            has_left.set()
            self.n_inside -= 1

    @property
    def is_working(self) -> bool:
        """Whether a worker is busy, even for a client that has left."""
        return self._n_working > 0

    def close(self) -> None:
        """Drop what waits and what runs, and wait for the threads."""
        self._is_closed.set()
        self._threads.shutdown(cancel_futures=True)

    def _work(self, work: Callable[[], T], has_left: threading.Event) -> T:
        with self._counted(), wanted_while(lambda: not has_left.is_set() and not self._is_closed.is_set()):
            checkpoint()
            return work()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._n_working += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_working -= 1


class Workers:
    """Pools by length of body: a request waits behind others of its own size only, never a short one behind a long
    one.
    """

    def __init__(self) -> None:
        self._pools = {SMALL_BYTES: WorkerPool("small", 1024), _LARGE_BYTES: WorkerPool("middle", 256)}
        self._last = WorkerPool("large", 32)
        self.pictures = WorkerPool("pictures", 64)

    def pool(self, size: int) -> WorkerPool:
        """The pool for a body of `size` bytes."""
        return next((pool for limit, pool in self._pools.items() if size <= limit), self._last)

    @property
    def is_working(self) -> bool:
        """Whether a thread does something."""
        return any(pool.is_working for pool in (*self._pools.values(), self._last))

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[None]:
        """Close all pools at the end of the block."""
        try:
            yield
        finally:
            for pool in (*self._pools.values(), self._last, self.pictures):
                await asyncio.to_thread(pool.close)


@dataclass(slots=True)
class State:
    """One application: the runtime behind it, its settings, and everything that is running."""

    engine: Backend
    config: ServerConfig
    admission: Admission
    workers: Workers = field(default_factory=Workers)
    quick: Quick = field(default_factory=Quick)
    bodies: Bodies = field(default_factory=Bodies)
    scraped: Totals = field(default_factory=Totals)
    """At the last GET /metrics."""
    live: set[Abortable] = field(default_factory=set)
    """Work that runs for present clients."""
    started: int = field(default_factory=lambda: int(time.time()))
    """Seconds since 1970."""
    idle: IdleTimer = field(init=False)
    """When the models are unloaded."""
    media: Media = field(init=False)
    """The pictures of requests."""
    _ticks: Ticks | None = None
    _served: Served | None = None

    def __post_init__(self) -> None:
        usual = self.config.sleep_idle_seconds
        self.idle = IdleTimer(self.engine, usual if usual > 0 else inf, lambda: self.workers.is_working)
        self.media = Media(self.config, self.workers.pictures)

    @property
    def ticks(self) -> Ticks:
        """When the streams of this application's loop are read. On the loop."""
        self._ticks = self._ticks or Ticks(asyncio.get_running_loop())
        return self._ticks

    @property
    def served(self) -> Served:
        """Names of the server in answers."""
        self._served = self._served or Served(self.alias, self.fingerprint)
        return self._served

    @property
    def alias(self) -> str:
        """The model's name as clients see it."""
        return self.aliases[0]

    @property
    def aliases(self) -> tuple[str, ...]:
        """All names by which clients may call it."""
        return self.config.names or (Path(self.engine.info.target.path).name,)

    @property
    def fingerprint(self) -> str:
        """The build, with the leading b that llama-server's clients expect."""
        build = self.engine.info.build
        return build if build.startswith("b") else f"b-{build}"

    async def off_loop(self, size: int, work: Callable[[], T]) -> T:
        """Run `work` for a request with a body of `size` bytes on a thread; dropped with the request."""
        return await self.workers.pool(size).run(work)

    async def prepared(self, size: int, kind: Hashable | None, work: Callable[[], T]) -> T:
        """`off_loop`, but here where requests of this kind are quick; None: never. See `quick`."""
        if kind is None:
            return await self.off_loop(size, work)
        if kind in self.quick:
            return self.quick.timed(kind, work)
        return await self.off_loop(size, lambda: self.quick.timed(kind, work))

    async def reply(self, size: int, make: Callable[[], object], depth: int = 5) -> web.Response:
        """A JSON response of what `make` makes for a request of `size` bytes, off the loop; `depth` is as `chunks` has
        it.
        """
        data = await self.off_loop(size, lambda: chunks(make(), depth))
        return web.Response(
            body=data[0] if len(data) == 1 else _each(data), content_type="application/json", charset="utf-8"
        )

    async def body(self, request: web.Request, most: int = MAX_TEXT_BYTES) -> bytes:
        """The body of a request. Raises TimeoutError where it arrives too slowly, and as `Bodies.read` does."""
        return await self.bodies.read(request, self.config.timeout, most)

    async def read(
        self, request: web.Request, build: Callable[[dict[str, object]], T], most: int = MAX_TEXT_BYTES
    ) -> tuple[T, int]:
        """The result of `build` for the request's JSON object, and the body's size in bytes; off the loop for large
        bodies. most: bytes that the body may have.
        """
        data = await self.body(request, most)

        def made() -> T:
            return build(parse_object(data, self.engine.info.n_ctx))

        return (made() if len(data) <= SMALL_BYTES else await self.off_loop(len(data), made)), len(data)


async def _each(data: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in data:
        yield chunk


STATE = web.AppKey("STATE", State)
