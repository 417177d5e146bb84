"""The application: its routes, and how it runs and stops."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from uad.config import ServerConfig
from uad.errors import UnavailableError
from uad.requests.engine import Backend
from uad.server import adapters, completions, info, live, messages, page, responses
from uad.server.access import allow_origin, errors, guard, name_request
from uad.server.doors import Doors, url_of
from uad.server.state import STATE, Gate, State

MAX_BODY = 32 * 1024**2  # eight megabytes of text fill a context of two million tokens
SHUTDOWN_SECONDS = 5.0

POST_ROUTES = {
    "/v1/chat/completions": completions.chat,
    "/chat/completions": completions.chat,
    "/v1/chat/completions/input_tokens": info.chat_input_tokens,
    "/chat/completions/input_tokens": info.chat_input_tokens,
    "/v1/completions": completions.completion,
    "/v1/responses": responses.create,
    "/responses": responses.create,
    "/v1/responses/input_tokens": responses.input_tokens,
    "/responses/input_tokens": responses.input_tokens,
    "/v1/messages": messages.create,
    "/v1/messages/count_tokens": messages.count_tokens,
    "/completion": completions.native,
    "/completions": completions.native,
    "/infill": completions.infill,
    "/tokenize": info.tokenize,
    "/lora-adapters": adapters.change,
    "/detokenize": info.detokenize,
    "/apply-template": info.apply_template,
    "/slots/{id}": info.slot_action,
}
GET_ROUTES = {
    "/health": info.health,
    "/v1/health": info.health,
    "/v1/models": info.models,
    "/models": info.models,
    "/v1/models/{id:.+}": info.model,
    "/props": info.props,
    "/slots": info.slots,
    "/lora-adapters": adapters.show,
    "/metrics": info.metrics,
    "/live": live.live,
}
ABSENT = (
    "/v1/embeddings",
    "/embeddings",
    "/embedding",
    "/rerank",
    "/v1/rerank",
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
    app.on_response_prepare.append(name_request)
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


async def listen(runner: web.AppRunner, config: ServerConfig) -> None:
    """Open the port for a runner that was set up, or raise ConfigError with the way out."""
    with await Doors.open(config) as doors:
        await doors.answer_with(runner)


def base_url(runner: web.AppRunner, config: ServerConfig) -> str:
    """Where the server can be reached, with the port that was really opened."""
    return url_of(config, runner.addresses[0][1])


async def _stop_streams(app: web.Application) -> None:
    state = app[STATE]
    state.gate.draining = True
    for generation in list(state.live):
        generation.abort(state.engine.error or UnavailableError("the server is shutting down"))


async def _own_workers(app: web.Application) -> AsyncIterator[None]:
    async with app[STATE].workers.closing():  # they read the model, which is freed next
        yield
