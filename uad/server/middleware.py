"""What happens around every handler: who may enter, browsers' cross-origin rules, and errors turned into answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from uad.config.given import did_you_mean
from uad.server.admission import check_host, check_key, check_origin, is_trusted_origin
from uad.server.problems import KINDS, Problem, problem_of
from uad.server.state import STATE
from uad.server.wire import dumps, frame

_PATH_SHOWN = 100  # characters
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PUBLIC = ("/health", "/v1/health")
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, *",  # browsers do not count Authorization as part of *
    "Access-Control-Max-Age": "600",
}


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where exceptions become answers: a status before the stream has begun, an event in it afterwards."""
    streams = request.app[STATE].streams
    try:
        return await handler(request)
    except (ConnectionError, TimeoutError):
        return _give_up(request, streams.get(id(request)))
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        return _nowhere(request, error).response()
    except Exception as error:
        return await _tell(request, streams.get(id(request)), problem_of(error))
    finally:
        streams.pop(id(request), None)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let only those in who may: with the key, or without one from this machine's own programs and pages."""
    config = request.app[STATE].config
    if not config.api_keys:
        check_host(request, config.host)
        check_origin(request)
    if request.method == "OPTIONS":
        return web.Response(headers=PREFLIGHT)
    if request.path.removeprefix(config.api_prefix) not in PUBLIC:
        check_key(request, config.api_keys)
    return await handler(request)


async def allow_origin(request: web.Request, response: web.StreamResponse) -> None:
    """Let trusted pages read the answer; with an API key in place any page may, for the key decides."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    response.headers["Vary"] = "Origin"
    if request.app[STATE].config.api_keys or is_trusted_origin(origin, request.host):
        response.headers["Access-Control-Allow-Origin"] = origin


def _nowhere(request: web.Request, error: web.HTTPNotFound | web.HTTPMethodNotAllowed) -> Problem:
    path = request.path[:_PATH_SHOWN]
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = error.headers["Allow"]
        return Problem(405, f"{path} takes {allowed.replace(',', ', ')}, not {request.method}", KINDS[400], headers={"Allow": allowed})
    paths = [resource.canonical for resource in request.app.router.resources()]
    return Problem(404, f"there is no {path} here; {did_you_mean(path, paths)}", KINDS[404])


async def _tell(request: web.Request, stream: web.StreamResponse | None, problem: Problem) -> web.StreamResponse:
    if stream is None:
        return problem.response()
    try:
        await stream.write(frame(dumps(problem.body())))
        await stream.write_eof()
    except ConnectionError:
        return _give_up(request, stream)
    return stream


def _give_up(request: web.Request, stream: web.StreamResponse | None) -> web.StreamResponse:
    """The client is gone, or has been silent for longer than --timeout."""
    if stream is None:
        return Problem(408, "the request body did not arrive within --timeout", "invalid_request_error").response()
    if request.transport is not None:
        request.transport.abort()
    return stream
