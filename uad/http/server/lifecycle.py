"""The life of a server: it listens from the first moment, loads, answers, and stops on a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import Any

from aiohttp import web

from uad.base.config import ServerConfig
from uad.base.log_writer import drain
from uad.http.edge.connection import PATIENCE_S, PhasedServer
from uad.http.edge.listener import Listener
from uad.http.requests.generation import Backend
from uad.http.server.app import SHUTDOWN_SECONDS, Runner, make_app, make_runner
from uad.http.server.live import stop_watch

log = logging.getLogger("uad.server")

SWITCH_SECONDS = 0.001
"""How long a thread waits for a busy one; decoding a token waits several times. Python's own value is 0.005."""
SOON_SECONDS = 3.0
"""Models that load, or fail to, within this time are not announced."""
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""Windows lacks it."""
_SHOW_CURSOR = "\x1b[?25h"
BackendOpening = AbstractContextManager[Backend]


def serve(opening: BackendOpening, config: ServerConfig, ready: Callable[[Backend, str], None] | None = None) -> None:
    """Load and serve until SIGINT, SIGTERM or SIGHUP. Requests that run then have `shutdown_timeout` seconds to end; a
    second signal ends the process at once, as one does while it loads.

    The port is open before `opening` is entered, on a thread of its own; every route answers 503 until then. `ready`
    gets the runtime and the base URL once it answers. Main thread only.

    Raises ConfigError where host or port cannot be used, what loading raises, and the fatal error that stopped the
    engine. The latter comes when all clients have their errors: a supervisor is to restart it.
    """
    with _Signals() as signals, ExitStack() as stack:
        asyncio.run(_serve(stack, opening, config, ready, signals))


async def _serve(
    stack: ExitStack,
    opening: BackendOpening,
    config: ServerConfig,
    ready: Callable[[Backend, str], None] | None,
    signals: _Signals,
) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    signals.watch(loop, stop.set)
    server = PhasedServer(min(config.timeout, PATIENCE_S))
    sockets = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await sockets.setup()
    with await Listener.open(config) as listener:
        try:
            await listener.answer_with(sockets)
            runtime = await _loaded(opening, stop, listener.url)
            stack.push(opening)
            # One thread runs at a time: the model's and the loop's want to often, workers for long.
            sys.setswitchinterval(SWITCH_SECONDS)
            # Loaded objects stay: collections of garbage, which stop all threads, need not look through it.
            gc.collect()
            gc.freeze()
            runtime.when_stopped(partial(loop.call_soon_threadsafe, stop.set))
            runner = make_runner(make_app(runtime, config), server)
            try:
                await runner.setup()
                if ready is None:
                    log.info("listening on %s", listener.url)
                else:
                    ready(runtime, listener.url)
                await stop.wait()
                await _drained(runner, server, 0.0 if runtime.error is not None else config.shutdown_timeout)
            finally:
                await runner.cleanup()
        finally:
            listener.close()
            await sockets.cleanup()
            signals.unwatch()
    if runtime.error is not None:
        raise runtime.error


async def _drained(runner: Runner, server: PhasedServer, seconds: float) -> None:
    """Nothing new begins, and what runs has so long to end."""
    await stop_watch(runner.app)  # streams without an end
    if server.n_answering and seconds:
        log.info("stopping: %d requests have %g s to end; a second signal ends at once", server.n_answering, seconds)
    n_left = await server.drain(seconds)
    if n_left and seconds:
        log.warning("stopping: %d requests had not ended after %g s (--shutdown-timeout)", n_left, seconds)


async def _loaded(opening: BackendOpening, stop: asyncio.Event, url: str) -> Backend:
    """Enter `opening` on a thread, while the loop goes on, and return its result. Raises what it raises; `stop` ends
    the process.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Backend] = loop.create_future()

    def work() -> None:
        try:
            result = opening.__enter__()
        except BaseException as error:
            tell = partial(done.set_exception, error)
        else:
            tell = partial(done.set_result, result)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell)

    threading.Thread(target=work, name="uad-load", daemon=True).start()
    stopping = asyncio.create_task(stop.wait())
    waited, _ = await asyncio.wait((done, stopping), timeout=SOON_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not waited:
        log.info("%s answers 503 until the models are loaded", url)
        await asyncio.wait((done, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not done.done():
        # A load cannot be interrupted, and destructors must not run while it goes on.
        with suppress(OSError):
            cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
            print(f"{cursor}uad: stopped while loading", file=sys.stderr, flush=True)
        with suppress(OSError):
            sys.stdout.flush()
        drain()
        os._exit(0)
    stopping.cancel()
    return await done


class _Signals:
    """Handlers of SIGINT, SIGTERM and SIGHUP while a server lives. Use with `with`: the old handlers are put back at
    the end, when all files are written.
    """

    def __init__(self) -> None:
        self._old: dict[signal.Signals, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> _Signals:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:  # `nohup` has it ignored
            numbers.append(_HANGUP)
        self._old = {number: signal.getsignal(number) for number in numbers}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def watch(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        """Call `stop` on the loop at the first signal."""
        self._loop = loop

        def handle(*_: object) -> None:
            self.unwatch()
            loop.call_soon_threadsafe(stop)

        for number in self._old:
            # A signal may arrive on the model's thread. Only handlers of the loop's own wake the loop then, and once
            # there is one, those of others run, too. SIGHUP has one of the others: it can be exchanged in one step.
            if sys.platform == "win32" or number == _HANGUP:
                signal.signal(number, handle)
            else:
                loop.add_signal_handler(number, handle)

    def unwatch(self) -> None:
        """From now on a signal ends the process at once. But a second SIGHUP does not: a terminal that is closed sends
        it more than once.
        """
        for number in self._old:
            if self._loop is not None and sys.platform != "win32":
                self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN if number == _HANGUP else signal.SIG_DFL)
