"""The application and its life: routes, start, signals, graceful stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from uad.config import ServerConfig
from uad.errors import ConfigError, UnavailableError
from uad.server import completions, info, live, page
from uad.server.access import allow_origin, errors, guard
from uad.server.engine import Backend
from uad.server.state import STATE, Gate, State

log = logging.getLogger("uad.server")

MAX_BODY = 32 * 1024**2  # eight megabytes of text fill a context of two million tokens
SHUTDOWN_SECONDS = 5.0
SWITCH_SECONDS = 0.001
"""How long a thread waits for a busy one; decoding a token waits several times. Python's own value is 0.005."""

POST_ROUTES = {
    "/v1/chat/completions": completions.chat,
    "/chat/completions": completions.chat,
    "/v1/completions": completions.completion,
    "/completion": completions.native,
    "/completions": completions.native,
    "/tokenize": info.tokenize,
    "/detokenize": info.detokenize,
    "/apply-template": info.apply_template,
}
GET_ROUTES = {
    "/health": info.health,
    "/v1/health": info.health,
    "/v1/models": info.models,
    "/models": info.models,
    "/v1/models/{id:.+}": info.model,
    "/props": info.props,
    "/slots": info.slots,
    "/metrics": info.metrics,
    "/live": live.live,
}
ABSENT = (
    "/v1/embeddings",
    "/embeddings",
    "/embedding",
    "/infill",
    "/rerank",
    "/v1/rerank",
    "/v1/responses",
    "/v1/messages",
)


def make_app(runtime: Backend, config: ServerConfig) -> web.Application:
    """The application over `runtime`, which it neither opens nor closes."""
    app = web.Application(client_max_size=MAX_BODY, middlewares=[errors, guard])
    app[STATE] = State(runtime, config, Gate(runtime.info.n_slots + config.max_queue))
    for path, handler in POST_ROUTES.items():
        app.router.add_post(config.api_prefix + path, handler)
    for path, handler in GET_ROUTES.items():
        app.router.add_get(config.api_prefix + path, handler)
    if config.ui:
        page.add_routes(app, config.api_prefix)
    for path in ABSENT:
        app.router.add_post(config.api_prefix + path, info.absent)
    app.on_response_prepare.append(allow_origin)
    app.on_startup.append(live.start_watch)
    app.on_shutdown.append(live.stop_watch)
    app.on_shutdown.append(_stop_streams)
    app.cleanup_ctx.append(_own_workers)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """A runner with the settings that cancelling on disconnect and a bounded stop depend on."""
    logger = logging.getLogger("uad.http")
    logger.addFilter(_without_traceback)
    return web.AppRunner(
        app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, logger=logger
    )


def _without_traceback(record: logging.LogRecord) -> bool:
    """One line for a client that sent what is no HTTP, which aiohttp logs as an error of the server."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        reason = error.message.partition("\n")[0].rstrip(":")
        record.msg, record.exc_info, record.exc_text = f"{record.msg}: {reason}", None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def serve(runtime: Backend, config: ServerConfig, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends the process at once. `ready` gets the base URL once the port
    is open.

    Main thread only. Raises ConfigError where host or port cannot be used, and the fatal error that stopped the engine,
    when all clients have been told: who started the process is to start it anew.
    """
    _keep_pauses_short()
    asyncio.run(_serve(runtime, config, ready or (lambda url: log.info("listening on %s", url))))


def _keep_pauses_short() -> None:
    """Settings of the interpreter, which one thread has at a time: the model's and the loop's want it often, workers
    for long.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # what is loaded stays: collections of garbage, which stop all threads, need not look through it


async def _serve(runtime: Backend, config: ServerConfig, ready: Callable[[str], None]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    runtime.when_stopped(partial(loop.call_soon_threadsafe, stop.set))
    runner = make_runner(make_app(runtime, config))
    with _on_signals(loop, stop):
        try:
            await runner.setup()
            await listen(runner, config)
            ready(base_url(runner, config))
            await stop.wait()
        finally:
            await runner.cleanup()
    if runtime.error is not None:
        raise runtime.error


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


async def listen(runner: web.AppRunner, config: ServerConfig) -> None:
    """Open the port, or raise ConfigError with the way out."""
    if not 0 <= config.port <= 65535:
        raise ConfigError(f"port {config.port} does not exist; choose one from 1 to 65535 with --port")
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except socket.gaierror as error:
        raise ConfigError(f"host {config.host!r} is unknown ({error.strerror}); choose another with --host") from error
    except UnicodeError as error:  # names are brought into ASCII first
        raise ConfigError(f"host {config.host!r} is no name of a machine; choose another with --host") from error
    except OSError as error:
        raise ConfigError(_why_not(config, error)) from error


def _why_not(config: ServerConfig, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {config.port} on {config.host} is already in use; choose another with --port"
        case errno.EACCES:
            return f"port {config.port} needs more rights than this process has; choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return (
                f"host {config.host!r} is no address of this machine; choose another with --host (127.0.0.1, or "
                "0.0.0.0 for all)"
            )
        case _:
            return (
                f"cannot listen on {config.host} port {config.port}: {error.strerror}; choose others with --host "
                "and --port"
            )


def base_url(runner: web.AppRunner, config: ServerConfig) -> str:
    """Where the server can be reached, with the port that was really opened."""
    port = runner.addresses[0][1]
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{port}{config.api_prefix}"


async def _stop_streams(app: web.Application) -> None:
    state = app[STATE]
    state.gate.draining = True
    for generation in list(state.live):
        generation.abort(state.engine.error or UnavailableError("the server is shutting down"))


async def _own_workers(app: web.Application) -> AsyncIterator[None]:
    async with app[STATE].workers.closing():  # they read the model, which is freed next
        yield
