"""The life of a router: it listens, follows its folder, and stops on a signal with all its processes."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from aiohttp import web

from uad.base.config.load import FolderConfig
from uad.base.errors import ConfigError
from uad.http.edge.connection import PATIENCE_S, PhasedServer
from uad.http.edge.listener import Listener
from uad.http.server.app import SHUTDOWN_SECONDS, make_runner
from uad.router.app import make_app
from uad.router.child import ProcessLauncher
from uad.router.connections import Connections
from uad.router.drafts import FolderDrafts
from uad.router.events import Broadcast
from uad.router.folder import FolderModel, read_folder
from uad.router.instances import PooledModel
from uad.router.memory import memory_left
from uad.router.pool import ModelPool
from uad.router.refusal import RoutingError
from uad.router.state import RouterState

log = logging.getLogger("uad")
_LOOK_SECONDS = 2.0
"""Between two looks at the folder."""
_PATIENCE_S = 0.5
"""For headers, before the router listens; those that take longer are read after that."""
Ready = Callable[[Sequence[str], str], None]
Models = Mapping[str, FolderModel]


def serve_folder(
    config: FolderConfig, environ: Mapping[str, str], tell: Callable[[str, str], None], ready: Ready
) -> None:
    """Serve until SIGINT or SIGTERM; what runs then has `shutdown_timeout` seconds to end, and a second signal ends the
    process at once. SIGHUP reads the folder again, unless it is that of a terminal that was closed. Main thread only.

    `tell` gets what processes of models write, `ready` the names of models and the base URL. Raises ConfigError.
    """
    asyncio.run(_serve(config, environ, tell, ready))


async def _serve(
    config: FolderConfig, environ: Mapping[str, str], tell: Callable[[str, str], None], ready: Ready
) -> None:
    events = Broadcast()
    router, drafts = config.router, FolderDrafts()
    pool = ModelPool(
        ProcessLauncher(environ, tell, drafts), router.models_max, config.server.max_queue, memory_left, events.tell
    )
    folder = FolderWatch(config, pool, drafts)
    await folder.read()
    first = _first_models(pool, router.models_max)
    stop = asyncio.Event()
    server = PhasedServer(min(config.server.timeout, PATIENCE_S))
    sockets = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await sockets.setup()
    async with Connections() as connections:
        runner = make_runner(make_app(RouterState(pool, config, connections, events, folder.reload)), server)
        with await Listener.open(config.server) as listener, _signals(stop, folder):
            watching = asyncio.create_task(folder.watch(_LOOK_SECONDS))
            try:
                await listener.answer_with(sockets)
                await runner.setup()
                for pooled in first:
                    with suppress(RoutingError):  # a client was faster
                        pool.load(pooled)
                ready(list(pool.models), listener.url)
                await stop.wait()
                if server.n_answering:
                    log.info("stopping: %d requests are being answered", server.n_answering)
                events.close()
                await server.drain(config.server.shutdown_timeout)
            finally:
                watching.cancel()
                listener.close()
                await pool.close()
                await runner.cleanup()
                await sockets.cleanup()


def _first_models(pool: ModelPool, most: int) -> list[PooledModel]:
    """The models that are to be loaded before anybody asks. Raises ConfigError where there are too many."""
    first = [pooled for pooled in pool.models.values() if pooled.model.loads_at_start]
    if most and len(first) > most:
        raise ConfigError(f"load-on-startup: {len(first)} models, of which --models-max lets {most} be loaded")
    return first


class FolderWatch:
    """Reads the folder again when something in it changes, and when it is asked to. Says each thing that is wrong with
    it once, as long as that stays so.
    """

    def __init__(self, config: FolderConfig, pool: ModelPool, drafts: FolderDrafts | None = None) -> None:
        self._config, self._pool, self._drafts = config, pool, drafts or FolderDrafts()
        self._last = pool_models(pool)
        self._logged: frozenset[str] = frozenset()
        self._lock = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Have the pool serve what is there at the start. Raises ConfigError where the preset file or the folder is
        wrong.
        """
        async with self._lock:
            await self._step(is_start=True)

    async def reload(self) -> bool:
        """Have the pool serve what is there now. Where anything is wrong the list stays as it was, the log says so, and
        it is False.
        """
        async with self._lock:
            return await self._step() is not None

    async def watch(self, pause: float) -> None:
        """Look again and again. A change counts once two looks agree: a file that is being copied
        grows.
        """
        before: Models = self._last
        while True:
            await asyncio.sleep(pause)
            async with self._lock:
                models = await self._step(before)
                before = before if models is None else models

    @property
    def _loaded(self) -> list[str]:
        return [pooled.model.name for pooled in self._pool.running]

    def _counted(self, models: Models) -> dict[str, FolderModel]:
        """The models that were read, with the numbers of their choices."""
        numbers = {name: model.n_choices for name, model in self._last.items() if model.n_choices}
        return {**models, **{name: replace(models[name], n_choices=n) for name, n in numbers.items() if name in models}}

    def _has(self, models: Mapping[str, FolderModel]) -> bool:
        """Whether they are the same as the last ones, with the same headers."""
        return models == self._last and all(model.facts is self._last[name].facts for name, model in models.items())

    def hang_up(self) -> None:
        """SIGHUP: read it now."""
        self._reading = asyncio.create_task(self._hung_up())

    async def _hung_up(self) -> None:
        if await self.reload():
            log.info("the folder was read again: %d models", len(self._last))

    async def _step(self, before: Models | None = None, is_start: bool = False) -> Models | None:
        """One look; None where it failed. Its models are taken; with those of the look before, only where they changed
        and are the same as then.
        """
        lines: list[str] = []
        try:
            patience_s = _PATIENCE_S if is_start else math.inf
            models = self._counted(
                await asyncio.to_thread(read_folder, self._config, patience_s, lines.append, is_start)
            )
            self._say(lines)
            if before is None or (before == models and not self._has(models)):
                self._take(models)
            if before is not None:
                again = await asyncio.to_thread(self._drafts.again, self._last, self._loaded)
                if again != self._last:
                    self._take(again)
            return models
        except ConfigError as error:
            if is_start:
                raise
            self._say([f"the list of models stays as it was: {error}"])
        except Exception as error:  # at the next look it may be gone
            self._say([f"the list of models stays as it was: {error!r}"])
        return None

    def _say(self, lines: Sequence[str]) -> None:
        """Log what was not said at the last look."""
        for line in lines:
            if line not in self._logged:
                log.warning("%s", line)
        self._logged = frozenset(lines)

    def _take(self, models: Models) -> None:
        for name, model in models.items():
            if (why := model.facts.problem) and (name not in self._last or self._last[name].facts.problem != why):
                log.warning("%s is listed, and cannot be loaded: %s", name, why)
        self._last = dict(models)
        self._pool.reload(models)


def has_terminal() -> bool:
    """Whether this process belongs to a terminal that is there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def pool_models(pool: ModelPool) -> dict[str, FolderModel]:
    """The models of a pool by name."""
    return {name: pooled.model for name, pooled in pool.models.items()}


@contextmanager
def _signals(stop: asyncio.Event, folder: FolderWatch) -> Iterator[None]:
    """SIGINT and SIGTERM stop the router, a second one ends it at once, and with it all processes of models. SIGHUP
    reads the folder.
    """
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def handle() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    had_terminal = has_terminal()

    def hang_up() -> None:
        """A terminal that is closed sends the same, and nobody would be left to stop the router."""
        if had_terminal and not has_terminal():
            handle()
        else:
            folder.hang_up()

    for number in numbers:
        loop.add_signal_handler(number, handle)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        for number in (*numbers, signal.SIGHUP):
            loop.remove_signal_handler(number)
