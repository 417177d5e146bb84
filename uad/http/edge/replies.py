"""Answers as they are sent: JSON at once, a stream of server-sent events, and errors of any layer: of a handler, of
aiohttp's routes, of its parser of HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from uad.base.common.json_out import dumps
from uad.base.common.names import misspelt_path
from uad.base.common.request_id import REQUEST_ID, request_id
from uad.http.apis.listed import api_of
from uad.http.apis.problems import KINDS, Problem, problem_of
from uad.http.edge.bodies import LEAST_BYTES_PER_S
from uad.http.edge.edge import EDGE, own_path

log = logging.getLogger("uad.http")
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
STREAM = web.RequestKey("stream", web.StreamResponse)
"""Where a request keeps the stream that answers it, once it has begun: a late error is sent there."""
FAILED: web.RequestKey[Callable[[Problem], bytes]] = web.RequestKey("failed", Callable)  # type: ignore[arg-type]
"""Where it keeps how its stream sends an error: the last frames."""
ID_HEADER = "X-Request-Id"
_ID = web.RequestKey("id", str)
_PATH_SHOWN_CHARS = 100  # characters
_PASSED_ON = (hdrs.ALLOW, hdrs.ACCEPT_ENCODING)
"""Headers of aiohttp's refusals that say what would be taken."""
_INTERNAL = Problem(500, "internal error; the server's log has the details", "server_error")
_SLOW = Problem(
    408,
    f"the request body did not arrive within --timeout, or came with less than {LEAST_BYTES_PER_S} bytes a second",
    KINDS[400],
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON response."""
    return web.Response(text=dumps(value), status=status, content_type="application/json", headers=headers)


def refusal(problem: Problem, body: Mapping[str, object] | None = None) -> web.Response:
    """A plain response with OpenAI's error body, or with the one that is given."""
    return reply(problem.body() if body is None else body, problem.status, problem.headers)


async def begin_stream(request: web.Request, content_type: str = "text/event-stream") -> web.StreamResponse:
    """The stream that answers a request, its headers sent."""
    response = request[STREAM] = web.StreamResponse(headers={"Content-Type": content_type, **HEADERS})
    await response.prepare(request)
    return response


# --- errors


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Around every handler: exceptions become answers, a status before the stream has begun, an event in it
    afterwards.
    """
    REQUEST_ID.set(id_of_request(request))
    try:
        return await handler(request)
    except (ConnectionError, TimeoutError):
        return _give_up(request)
    except Exception as error:
        problem = _problem(request, error)
        log.info("%s %s: %d, %s", request.method, request.path[:_PATH_SHOWN_CHARS], problem.status, problem.message)
        return await _tell(request, problem)
    finally:
        request.app[EDGE].bodies.release(request)


def refused(problem: Problem, path: str, name: str, headers: Mapping[str, str] = MappingProxyType({})) -> web.Response:
    """An error in the words of the API that `path` belongs to, for a request with this name and these headers."""
    response = refusal(problem, api_of(path, headers).error(problem, name))
    _name(response, path, name)
    return response


def unreadable(error: BaseException | None, head: bytes, name: str) -> tuple[web.Response, str]:
    """The answer to a request that aiohttp itself refuses, and the reason. head: how it began; name: its id."""
    problem = _INTERNAL
    if isinstance(error, LineTooLong):
        problem = Problem(431, f"the URL or a header is longer than {error.args[1]} bytes", KINDS[400])
    elif isinstance(error, HttpProcessingError):
        lines = error.message.split("\n\n")[0].splitlines()
        reason = ": ".join(line.strip().rstrip(":") for line in lines)
        status = 431 if "Too many" in reason else error.code or 400
        problem = Problem(status, f"the request cannot be read: {reason}", KINDS[400])
    path = head.partition(b" ")[2].partition(b" ")[0].decode("latin-1")
    return refused(problem, path, name), problem.message


def escaped(request: web.BaseRequest, error: web.HTTPException) -> web.Response:
    """The answer to what aiohttp refuses between its routes and all handlers: an Expect that it does not know."""
    problem = Problem(error.status, error.text or HTTPStatus(error.status).phrase, KINDS[400])
    return refused(problem, request.path, id_of_request(request), request.headers)


async def name_request(request: web.Request, response: web.StreamResponse) -> None:
    """Before any answer of the application is sent."""
    _name(response, request.path, id_of_request(request))


def id_of_request(request: web.BaseRequest) -> str:
    """The client's name for a request, or ours; the same whenever it is asked for."""
    if _ID not in request:
        request[_ID] = request_id(request.headers.get(ID_HEADER))
    return request[_ID]


def _name(response: web.StreamResponse, path: str, name: str) -> None:
    response.headers[ID_HEADER] = name
    for header in api_of(path).id_headers:
        response.headers[header] = name


def _problem(request: web.Request, error: Exception) -> Problem:
    """The error for the client: aiohttp's own are known here, all others where no HTTP is known."""
    path = (request.path or request.raw_path)[:_PATH_SHOWN_CHARS]
    match error:
        case web.HTTPNotFound():
            paths = [resource.canonical for resource in request.app.router.resources()]
            near = misspelt_path(path, paths)
            hint = f"; did you mean {near}?" if near is not None else ""
            return Problem(404, f"there is no {path} here{hint}", KINDS[404])
        case web.HTTPException():
            text = error.text or HTTPStatus(error.status).phrase
            if isinstance(error, web.HTTPMethodNotAllowed):
                text = f"{path} takes {error.headers[hdrs.ALLOW].replace(',', ', ')}, not {request.method}"
            kind = KINDS.get(error.status, KINDS[400] if error.status < 500 else _INTERNAL.kind)
            headers = {str(name): error.headers[name] for name in _PASSED_ON if name in error.headers}
            return Problem(error.status, text, kind, headers=headers)
        case web.RequestPayloadError():
            return Problem(400, "the body is not what its Transfer-Encoding says", KINDS[400])
        case _:
            return problem_of(error)


async def _tell(request: web.Request, problem: Problem) -> web.StreamResponse:
    stream: web.StreamResponse | None = request.get(STREAM)
    if stream is None:
        response = refused(problem, own_path(request), id_of_request(request), request.headers)
        if request.content.exception() is not None:
            response.force_close()  # it is not known where the next request would begin
        return response
    try:
        await stream.write(request[FAILED](problem))
        await stream.write_eof()
    except ConnectionError:
        return _give_up(request)
    return stream


def _give_up(request: web.Request) -> web.StreamResponse:
    """The client is gone, or too slow."""
    stream: web.StreamResponse | None = request.get(STREAM)
    if stream is None:
        return refused(_SLOW, own_path(request), id_of_request(request), request.headers)
    if request.transport is not None:
        request.transport.abort()
    return stream
