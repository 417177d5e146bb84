"""The models of a router: which there are, and the way of a request to the process of its model. `load_queue.py`
decides which are loaded, `processes.py` does it. On the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from time import monotonic

from uad.http.apis.ollama import plain_name
from uad.router.child import Child, Launcher, ProcessFailedError
from uad.router.folder import FolderModel
from uad.router.instances import Failure, Instance, LoadState, PooledModel
from uad.router.load_queue import SOON_S, Action, Load, LoadQueue, Refuse, Serve, Stop
from uad.router.processes import Processes
from uad.router.refusal import RoutingError, broken, later, unknown, wrong

_log = logging.getLogger("uad")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
"""Before a model is loaded again whose process failed: the first time, and at most, doubled each time between."""
EventSink = Callable[[str, str, Mapping[str, object]], None]


class ModelPool:
    """All models, by name. most: how many are loaded at a time, 0: any number. most_waiting: requests that may wait for
    a load. memory_left: bytes that are left beside loaded processes, given their pids. tell: gets events, as GET
    /models/sse has them.
    """

    def __init__(
        self,
        launcher: Launcher,
        most: int,
        most_waiting: int,
        memory_left: Callable[[Iterable[int]], float] = lambda pids: math.inf,
        tell: EventSink = lambda model, event, data: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.models: dict[str, PooledModel] = {}
        self._queue = LoadQueue(
            most,
            most_waiting,
            lambda: memory_left(each.child.pid for each in self._queue.instances if each.child is not None),
        )
        self._processes = Processes(
            launcher,
            lambda instance, n_bytes: self._do(self._queue.planned(instance, n_bytes, clock())),
            self._loaded,
            self._ended,
        )
        self._tell, self._clock = tell, clock
        self._alarm: asyncio.TimerHandle | None = None
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
        """From now on there are these models. A process of one that is gone or changed ends after its last answer."""
        for name, pooled in self.models.items():
            new = models.get(name)
            if new == pooled.model:
                pooled.model = new  # its header may be known by now
                continue
            if pooled.instance is not None:
                _log.info("%s changed or is gone: its process ends after its last answer", name)
            if new is not None:
                pooled.model, pooled.planned_bytes, pooled.failure, pooled.n_failures = new, None, None, 0
            problem = unknown(name, list(models)).problem if new is None else None
            self._do(self._queue.retire(pooled, problem, self._clock()))
        self.models = {name: self.models.get(name) or PooledModel(new) for name, new in models.items()}
        self._tell("*", "models_reload", {})

    @property
    def running(self) -> list[PooledModel]:
        """The models that are loaded."""
        return [pooled for pooled in self.models.values() if pooled.is_ready]

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a load."""
        return self._queue.n_waiting

    # --- what requests do

    @asynccontextmanager
    async def using(self, pooled: PooledModel, loads: bool = True) -> AsyncIterator[Child]:
        """The process of a model, which stays while the block runs. loads: whether it is loaded where it is not. Raises
        RoutingError.
        """
        pooled.counts.n_requests += 1
        if not pooled.is_open:
            self._check(pooled, loads)
        instance = await self._turn(pooled)
        try:
            assert instance.child is not None
            yield instance.child
            instance.has_answered = True
        finally:
            self._do(self._queue.done(instance, self._clock()))

    def load(self, pooled: PooledModel) -> None:
        """Load it now, ignoring the pause after a failure. Raises RoutingError."""
        if pooled.is_wanted or (pooled.instance is not None and not pooled.instance.is_stopping):
            raise wrong("model is already running")
        pooled.failure = None
        self._do(self._queue.ask(pooled, None, self._clock()))

    def unload(self, pooled: PooledModel) -> None:
        """End its process, or its loading. Raises RoutingError."""
        if pooled.instance is None and not pooled.is_wanted:
            raise wrong("model is not running")
        error = later(f"model '{pooled.model.name}' was unloaded while this request waited", SOON_S)
        self._do(self._queue.unload(pooled, error.problem, self._clock()))

    async def close(self) -> None:
        """End all processes."""
        self._is_closing = True
        for pooled in {*self.models.values(), *(instance.owner for instance in self._queue.instances)}:
            self._do(self._queue.unload(pooled, _closing().problem, self._clock()))
        await self._processes.all_ended()
        self._do([])

    def step(self) -> None:
        """Do what is due by the clock. Called by itself in time."""
        self._do(self._queue.step(self._clock()))

    def _check(self, pooled: PooledModel, loads: bool) -> None:
        """Raise RoutingError where waiting makes no sense."""
        if self._is_closing:
            raise _closing()
        if not loads:
            raise wrong(
                "model is not loaded; load it with POST /models/load, or start uad without --no-models-autoload"
            )
        failure, now = pooled.failure, self._clock()
        if failure is not None and now < failure.again_at:
            text = f"model '{pooled.model.name}' failed and is loaded again on demand in a moment: {failure.reason}"
            raise later(text, failure.again_at - now)

    async def _turn(self, pooled: PooledModel) -> Instance:
        """The instance that the request goes to, which counts it already."""
        waiter: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        self._do(self._queue.ask(pooled, waiter, self._clock()))
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.done() or waiter.cancelled():
                self._do(self._queue.leave(pooled, waiter, self._clock()))
            elif waiter.exception() is None:  # it was handed over in the moment that the client left
                self._do(self._queue.done(waiter.result(), self._clock()))
            raise
        finally:
            del waiter  # an error in it knows this frame, which knows the request

    # --- what the queue decides, and what becomes of processes

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Load(instance):
                    self._tell(instance.model.name, "model_status", {"status": LoadState.LOADING})
                    self._processes.start(instance)
                case Stop(instance, makes_room_for):
                    if makes_room_for is not None:
                        instance.owner.counts.n_evicted += 1
                        names = instance.model.name, makes_room_for.model.name
                        _log.info("unloading %s, used longest ago, for %s", *names)
                    self._processes.stop(instance)
                case Serve(asyncio.Future() as waiter, instance):
                    if waiter.done():  # its client left in this moment
                        self._do(self._queue.done(instance, self._clock()))
                    else:
                        waiter.set_result(instance)
                case Refuse(asyncio.Future() as waiter, problem):
                    if not waiter.done():
                        waiter.set_exception(RoutingError(problem))
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (due := self._queue.wake_at) is not None and not self._is_closing:
            wait = max(due - self._clock(), 0.0)
            self._alarm = asyncio.get_running_loop().call_later(wait, self.step, context=Context())

    def _loaded(self, instance: Instance) -> None:
        name, now, pooled = instance.model.name, self._clock(), instance.owner
        pooled.failure = None
        pooled.counts.n_loads += 1
        pooled.counts.load_s += now - instance.began_at
        _log.info("%s is loaded, in %.1f s", name, now - instance.began_at)
        self._tell(name, "model_status", {"status": LoadState.LOADED})
        self._do(self._queue.loaded(instance, now))

    def _ended(self, instance: Instance, error: ProcessFailedError | None) -> None:
        """error: why it ended, where that was not asked for."""
        pooled, name, problem = instance.owner, instance.model.name, None
        status: dict[str, object] = {"status": LoadState.UNLOADED}
        pooled.counts.n_failed += error is not None
        if error is not None and instance.is_retired:  # its successor has nothing to do with it
            _log.warning("the old process of %s ended before its last answer: %s", name, error)
        elif error is not None:
            # one that was well fails as if for the first time
            pooled.n_failures = 1 if instance.has_answered else pooled.n_failures + 1
            pause = min(_FIRST_PAUSE_S * 2 ** min(pooled.n_failures - 1, 16), _LONGEST_PAUSE_S)
            pooled.failure = Failure(error.code, str(error), self._clock() + pause)
            _log.warning("%s failed with code %d, may be loaded again in %g s: %s", name, error.code, pause, error)
            status |= {"exit_code": error.code, "reason": str(error)}
            if not instance.is_loaded:
                text = f"model '{name}' could not be loaded: {error}"
                problem = (later(text, pause) if error.stood_still else broken(text)).problem
        if pooled.instance in (instance, None):
            self._tell(name, "model_status", status)
        self._do(self._queue.ended(instance, problem, self._clock()))


def _closing() -> RoutingError:
    return later("the server is shutting down", SOON_S)


def _plain(name: str) -> str:
    """The same for all spellings of a name."""
    return plain_name(name.removesuffix(":latest").removesuffix(".gguf"))
