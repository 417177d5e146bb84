"""Which models are loaded: at most so many, the one used longest ago makes room, and none that is answering. On the
event loop's thread.

A request holds its model with `using`. Where that is not loaded the request waits, and its model stands in a queue:
first come, first loaded. Whenever something changes, `_tick` goes through the queue.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Any

from uad.http.apis.ollama import plain_name
from uad.router.child import Child, Launcher, LoadFailedError
from uad.router.folder import FolderModel
from uad.router.refusal import RoutingError, broken, later, unknown, wrong

_log = logging.getLogger("uad")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
"""Before a model is loaded again whose process failed: the first time, and at most, doubled each time between."""
_SOON_S = 5.0
"""When to come again where the queue is full or the router stops."""


class LoadState(StrEnum):
    """What a model is doing, in llama-server's words."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class Failure:
    """How a model's process ended that should not have."""

    code: int
    reason: str
    again_at: float
    """When it may be loaded again, by the pool's clock."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class RunningChild:
    """A process that is loaded, and who uses it."""

    child: Child
    model: FolderModel
    has_answered: bool = False
    """Whether it has answered a request to its end."""
    n_busy: int = 0
    """Requests that it answers."""
    is_stopping: bool = False
    is_retired: bool = False
    """Whether its model is gone or changed: the process ends after its last answer."""


@dataclass(slots=True)
class PoolCounts:
    """What a model's processes have done."""

    n_requests: int = 0
    n_loads: int = 0
    n_failed: int = 0
    n_evicted: int = 0
    load_s: float = 0.0


@dataclass(eq=False, slots=True)
class PooledModel:
    """A model and what becomes of it."""

    model: FolderModel
    running: RunningChild | None = None
    loading: asyncio.Task[None] | None = None
    is_queued: bool = False
    waiters: list[asyncio.Future[RunningChild]] = field(default_factory=list)
    last_used: int = 0
    """The number of its last request."""
    failure: Failure | None = None
    n_failures: int = 0
    """In a row."""
    counts: PoolCounts = field(default_factory=PoolCounts)

    @property
    def state(self) -> LoadState:
        """In llama-server's words."""
        if self.loading is not None:
            return LoadState.LOADING
        return LoadState.UNLOADED if self.running is None else LoadState.LOADED

    @property
    def is_ready(self) -> bool:
        """Whether a request can go there at once."""
        return self.running is not None and not self.running.is_stopping

    @property
    def is_idle(self) -> bool:
        """Whether it can make room."""
        return self.running is not None and not self.running.is_stopping and not self.running.n_busy


HasMemory = Callable[[FolderModel, Iterable[RunningChild]], bool]
Tell = Callable[[str, str, Mapping[str, object]], None]


class ModelPool:
    """All models, by name. most: how many are loaded at a time, 0: any number. most_waiting: requests that may wait for
    a load. has_memory: whether a model fits beside those that are loaded. tell: gets events, as GET /models/sse has
    them.
    """

    def __init__(
        self,
        launcher: Launcher,
        most: int,
        most_waiting: int,
        has_memory: HasMemory = lambda model, running: True,
        tell: Tell = lambda model, event, data: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.models: dict[str, PooledModel] = {}
        self._launcher, self._most, self._most_waiting = launcher, most, most_waiting
        self._has_memory, self._tell, self._clock = has_memory, tell, clock
        self._queue: list[PooledModel] = []
        self._alive: set[RunningChild] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._uses = itertools.count(1)
        self._is_closing = False

    # --- which there are

    def find(self, name: str) -> PooledModel:
        """The model of this name, in any spelling that Ollama takes for the same, or of its file. Raises
        RoutingError.
        """
        if (exact := self.models.get(name)) is not None:
            return exact
        wanted = _plain(name)
        for pooled in self.models.values():
            if name in pooled.model.aliases:
                return pooled
        for pooled in self.models.values():
            if wanted in map(_plain, pooled.model.names):
                return pooled
        raise unknown(name, [each for pooled in self.models.values() for each in pooled.model.names])

    def reload(self, models: Mapping[str, FolderModel]) -> None:
        """From now on there are these. What answers for one that is gone or changed ends after its last answer."""
        for name, pooled in list(self.models.items()):
            new = models.get(name)
            if new == pooled.model:
                pooled.model = new  # its header may be known by now
                continue
            self._retire(pooled)
            if new is None:
                self._drop(pooled, unknown(name, list(models)))
                del self.models[name]
            else:
                pooled.model, pooled.failure, pooled.n_failures = new, None, 0
        for name, new in models.items():
            if name not in self.models:
                self.models[name] = PooledModel(new)
        self.models = {name: self.models[name] for name in models}
        self._tell("*", "models_reload", {})
        self._tick()

    # --- what requests do

    @asynccontextmanager
    async def using(self, pooled: PooledModel, loads: bool = True) -> AsyncIterator[Child]:
        """The process of a model, which stays while the block runs. loads: whether it is loaded where it is not. Raises
        RoutingError.
        """
        pooled.last_used = next(self._uses)
        pooled.counts.n_requests += 1
        if pooled.running is not None and pooled.is_ready:
            running = pooled.running
            running.n_busy += 1
        elif loads:
            running = await self._wait(pooled)
        else:
            raise wrong(
                "model is not loaded; load it with POST /models/load, or start uad without --no-models-autoload"
            )
        try:
            yield running.child
            running.has_answered = True
        finally:
            self._release(running)

    def load(self, pooled: PooledModel) -> None:
        """Load it, though nobody asks, and at once after a failure, too. Raises RoutingError."""
        if pooled.loading is not None or pooled.is_ready or pooled.is_queued:
            raise wrong("model is already running")
        pooled.failure, pooled.last_used = None, next(self._uses)
        self._enqueue(pooled)
        self._tick()

    def unload(self, pooled: PooledModel) -> None:
        """End its process, or its loading. Raises RoutingError."""
        if pooled.state is LoadState.UNLOADED and not pooled.is_queued:
            raise wrong("model is not running")
        self._drop(pooled, later(f"model '{pooled.model.name}' was unloaded while this request waited", _SOON_S))
        if pooled.loading is not None:
            pooled.loading.cancel()
        if pooled.running is not None:
            self._stop(pooled.running)

    async def close(self) -> None:
        """End all processes."""
        self._is_closing = True
        for pooled in self.models.values():
            self._drop(pooled, later("the server is shutting down", _SOON_S))
            if pooled.loading is not None:
                pooled.loading.cancel()
        for running in list(self._alive):
            self._stop(running)
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a load."""
        return sum(len(pooled.waiters) for pooled in self.models.values())

    @property
    def running(self) -> list[PooledModel]:
        """The models that are loaded."""
        return [pooled for pooled in self.models.values() if pooled.is_ready]

    # --- the queue

    async def _wait(self, pooled: PooledModel) -> RunningChild:
        self._check(pooled)
        waiter: asyncio.Future[RunningChild] = asyncio.get_running_loop().create_future()
        pooled.waiters.append(waiter)
        if pooled.loading is None and not pooled.is_queued:
            self._enqueue(pooled)
        self._tick()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(waiter.result())  # it was handed over in the moment that the client left
            raise
        finally:
            if waiter in pooled.waiters:
                pooled.waiters.remove(waiter)
                if not pooled.waiters and pooled.is_queued:  # nobody wants it any more
                    self._dequeue(pooled)

    def _check(self, pooled: PooledModel) -> None:
        """Raise RoutingError where waiting makes no sense."""
        if self._is_closing:
            raise later("the server is shutting down", _SOON_S)
        if self.n_waiting >= self._most_waiting:
            raise later(
                f"{self.n_waiting} requests wait for models to be loaded, which --max-queue allows; try again later",
                _SOON_S,
            )
        failure, now = pooled.failure, self._clock()
        if failure is not None and now < failure.again_at:
            text = f"model '{pooled.model.name}' failed and is loaded again on demand in a moment: {failure.reason}"
            raise later(text, failure.again_at - now)

    def _enqueue(self, pooled: PooledModel) -> None:
        pooled.is_queued = True
        self._queue.append(pooled)

    def _dequeue(self, pooled: PooledModel) -> None:
        pooled.is_queued = False
        self._queue.remove(pooled)

    def _drop(self, pooled: PooledModel, error: RoutingError) -> None:
        """Requests that wait for the model get an error."""
        if pooled.is_queued:
            self._dequeue(pooled)
        waiters, pooled.waiters = pooled.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _tick(self) -> None:
        """Load what can be loaded, in the order of the queue, and make room for the rest."""
        while self._queue and not self._is_closing:
            first = self._queue[0]
            if self._has_room(first.model):
                self._dequeue(first)
                first.loading = self._begin(self._load(first))
            else:
                self._make_room()
                return

    @property
    def _n_processes(self) -> int:
        return len(self._alive) + sum(pooled.loading is not None for pooled in self.models.values())

    def _has_room(self, model: FolderModel) -> bool:
        if self._most and self._n_processes >= self._most:
            return False
        # where nothing else is loaded the process itself says whether it fits
        return not self._n_processes or self._has_memory(model, self._alive)

    def _make_room(self) -> None:
        """End idle processes, the one used longest ago first: until there is room for all that are queued, or one
        after the other where it is memory that lacks.
        """
        n_ending = sum(running.is_stopping for running in self._alive)
        if self._most and self._n_processes >= self._most:
            n_missing = len(self._queue) - n_ending - (self._most - self._n_processes)
        else:
            n_missing = 1 - n_ending
        idle = sorted(
            (pooled for pooled in self.models.values() if pooled.is_idle), key=lambda pooled: pooled.last_used
        )
        for victim in idle[: max(n_missing, 0)]:  # others are busy: once one is not, `_release` comes here again
            assert victim.running is not None
            _log.info("unloading %s, used longest ago, for %s", victim.model.name, self._queue[0].model.name)
            victim.counts.n_evicted += 1
            self._stop(victim.running)

    def _release(self, running: RunningChild) -> None:
        running.n_busy -= 1
        if running.n_busy:
            return
        if running.is_retired:
            self._stop(running)
        self._tick()

    def _retire(self, pooled: PooledModel) -> None:
        running, pooled.running = pooled.running, None
        if pooled.loading is not None:
            pooled.loading.cancel()
        if running is not None:
            _log.info("%s changed or is gone: its process ends after its last answer", pooled.model.name)
            running.is_retired = True
            if not running.n_busy:
                self._stop(running)

    # --- processes

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, context=Context())  # its lines in the log are of no request
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self, pooled: PooledModel) -> None:
        name, began, model = pooled.model.name, self._clock(), pooled.model
        self._tell(name, "model_status", {"status": LoadState.LOADING})
        try:
            child = await self._launcher.start(model)
        except LoadFailedError as error:
            pooled.loading = None
            self._failed(pooled, error.code, str(error))
            self._drop(pooled, broken(f"model '{name}' could not be loaded: {error}"))
        except asyncio.CancelledError:
            pooled.loading = None
            self._tell(name, "model_status", {"status": LoadState.UNLOADED})
            self._again(pooled)
            raise
        except Exception as error:
            _log.exception("the process of %s could not be started", name)
            pooled.loading = None
            self._failed(pooled, -1, str(error))
            self._drop(pooled, broken(f"the process of model '{name}' could not be started: {error}"))
        else:
            pooled.loading = None
            self._loaded(pooled, RunningChild(child, model), began)
        self._tick()

    def _again(self, pooled: PooledModel) -> None:
        """A load was given up; who waits all the same waits for the next one."""
        if pooled.waiters and not pooled.is_queued and not self._is_closing:
            self._enqueue(pooled)
        self._tick()

    def _loaded(self, pooled: PooledModel, running: RunningChild, began: float) -> None:
        name, seconds = pooled.model.name, self._clock() - began
        self._alive.add(running)
        pooled.running, pooled.failure = running, None
        pooled.counts.n_loads += 1
        pooled.counts.load_s += seconds
        _log.info("%s is loaded, in %.1f s", name, seconds)
        self._tell(name, "model_status", {"status": LoadState.LOADED})
        waiters, pooled.waiters = pooled.waiters, []
        for waiter in waiters:
            if not waiter.done():
                running.n_busy += 1  # now: until the request goes on nobody may take the process from it
                waiter.set_result(running)
        self._begin(self._watch(pooled, running))

    async def _watch(self, pooled: PooledModel, running: RunningChild) -> None:
        """Until the process ends."""
        code = await running.child.wait()
        self._alive.discard(running)
        if pooled.running is running:
            pooled.running = None
        if not running.is_stopping:
            if running.has_answered:  # it was well: this failure counts as the first
                pooled.n_failures = 0
            self._failed(pooled, code, running.child.reason or f"its process ended with code {code}")
        else:
            self._tell(running.model.name, "model_status", {"status": LoadState.UNLOADED})
        self._tick()

    def _failed(self, pooled: PooledModel, code: int, reason: str) -> None:
        pooled.counts.n_failed += 1
        pooled.n_failures += 1
        pause = min(_FIRST_PAUSE_S * 2 ** min(pooled.n_failures - 1, 16), _LONGEST_PAUSE_S)
        pooled.failure = Failure(code, reason, self._clock() + pause)
        _log.warning("%s failed with code %d, may be loaded again in %g s: %s", pooled.model.name, code, pause, reason)
        self._tell(
            pooled.model.name, "model_status", {"status": LoadState.UNLOADED, "exit_code": code, "reason": reason}
        )

    def _stop(self, running: RunningChild) -> None:
        if not running.is_stopping:
            running.is_stopping = True
            self._begin(running.child.stop(running.model.stop_seconds))


def _plain(name: str) -> str:
    """The same for all spellings of a name."""
    return plain_name(name.removesuffix(":latest").removesuffix(".gguf"))
