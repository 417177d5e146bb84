"""The life of a server: it listens from the first moment, loads, answers, and stops on a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from aiohttp import web

from uad.apis.problems import Problem
from uad.common.request_id import request_id
from uad.config import ServerConfig
from uad.requests.engine import Backend
from uad.server.app import make_app, make_runner
from uad.server.connection import Listener
from uad.server.doors import Doors
from uad.server.refusals import ID_HEADER
from uad.server.replies import refusal

log = logging.getLogger("uad.server")

SWITCH_SECONDS = 0.001
"""How long a thread waits for a busy one; decoding a token waits several times. Python's own value is 0.005."""
SOON_SECONDS = 3.0
"""What loads so quickly, or fails to, is not announced."""
LOADING = Problem(503, "Loading model", "unavailable_error", headers={"Retry-After": "5"})
"""llama-server's answer on every route until the models are loaded; clients wait for its end."""
_SHOW_CURSOR = "\x1b[?25h"
Opening = AbstractContextManager[Backend]


def serve(opening: Opening, config: ServerConfig, ready: Callable[[Backend, str], None] | None = None) -> None:
    """Load and serve until SIGINT or SIGTERM; a second signal ends the process at once, as one does while it loads.

    The port is open before `opening` is entered, on a thread of its own; every route answers 503 meanwhile. `ready`
    gets the runtime and the base URL once it answers. Main thread only.

    Raises ConfigError where host or port cannot be used, what loading raises, and the fatal error that stopped the
    engine, when all clients have been told: who started the process is to start it anew.
    """
    with ExitStack() as stack:
        asyncio.run(_serve(stack, opening, config, ready or _say_where))


def _say_where(runtime: Backend, url: str) -> None:
    log.info("listening on %s", url)


async def _serve(
    stack: ExitStack, opening: Opening, config: ServerConfig, ready: Callable[[Backend, str], None]
) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    with await Doors.open(config) as doors, _on_signals(loop, stop):
        async with _telling_to_wait(doors):
            runtime = await _loaded(opening, stop, doors.url)
        stack.push(opening)
        _keep_pauses_short()
        runtime.when_stopped(partial(loop.call_soon_threadsafe, stop.set))
        runner = make_runner(make_app(runtime, config))
        try:
            await runner.setup()
            await doors.answer_with(runner)
            ready(runtime, doors.url)
            await stop.wait()
        finally:
            doors.close()
            await runner.cleanup()
    if runtime.error is not None:
        raise runtime.error


@asynccontextmanager
async def _telling_to_wait(doors: Doors) -> AsyncIterator[None]:
    """Every request is answered with `LOADING`."""
    runner = web.ServerRunner(Listener(_loading, SOON_SECONDS))
    await runner.setup()
    try:
        await doors.answer_with(runner)
        yield
    finally:
        await runner.cleanup()


async def _loading(request: web.BaseRequest) -> web.Response:
    response = refusal(LOADING, LOADING.anthropic() if "/v1/messages" in request.path else None)
    response.headers[ID_HEADER] = request_id(request.headers.get(ID_HEADER))
    response.force_close()  # the next request meets another application
    return response


async def _loaded(opening: Opening, stop: asyncio.Event, url: str) -> Backend:
    """What `opening` opens on a thread, while the loop goes on. Raises what it raises; `stop` ends the process."""
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
        _leave()
    stopping.cancel()
    return await done


def _leave() -> None:
    """End the process at once: what loads cannot be interrupted, and must not be met by destructors."""
    with suppress(OSError):
        cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
        print(f"{cursor}uad: stopped while loading", file=sys.stderr, flush=True)
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(0)


def _keep_pauses_short() -> None:
    """Settings of the interpreter, which one thread has at a time: the model's and the loop's want it often, workers
    for long.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # what is loaded stays: collections of garbage, which stop all threads, need not look through it


@contextmanager
def _on_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on the first SIGINT or SIGTERM; the second one kills. The old handlers are put back at the end."""
    old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(*_: object) -> None:
        put(dict.fromkeys(old, signal.SIG_DFL))
        loop.call_soon_threadsafe(stop.set)

    def put(handlers: Mapping[signal.Signals, Any]) -> None:
        for number, handler in handlers.items():
            if sys.platform != "win32":
                loop.remove_signal_handler(number)
            signal.signal(number, handler)

    for number in old:
        if sys.platform == "win32":
            signal.signal(number, handle)
        else:  # a signal may arrive on the model's thread; only the loop's own handler wakes the loop then
            loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        put(old)
