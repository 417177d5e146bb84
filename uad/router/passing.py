"""One request on its way to the process of its model, and the answer on its way back: bytes, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from http import HTTPStatus

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict

from uad.base.common.json_out import PING
from uad.base.errors import InvalidRequestError
from uad.http.apis.listed import api_of
from uad.http.apis.problems import KINDS, Problem
from uad.http.edge.access import KEY_HEADERS
from uad.http.edge.edge import own_path
from uad.http.edge.json_in import parse_object
from uad.http.edge.replies import FAILED, HEADERS, ID_HEADER, STREAM, id_of_request
from uad.router.child import Child
from uad.router.connections import ChildAnswer, Connections, PassedBody
from uad.router.refusal import RoutingError, broken

_HOPS = ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade")
_OURS = ("host", "transfer-encoding", "content-length", "content-encoding", "expect", "origin", "referer", "cookie")
_NOT_THERE = frozenset((*_HOPS, *_OURS, *map(str.lower, KEY_HEADERS), ID_HEADER.lower()))
"""Headers of clients that a process does not get: of the connection, of the body before it was read, and keys."""
_NOT_BACK = frozenset((*_HOPS, "transfer-encoding", "date", "server", "vary", ID_HEADER.lower(), "request-id"))
_EVENTS = "text/event-stream"
_LINES = "application/x-ndjson"


class PassedStream(web.StreamResponse):
    """An answer whose bytes come from elsewhere. Pings go between its events only."""

    _is_between = True
    _send_headers_immediately = False  # as of a whole answer: with the first bytes, which come soon

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send more of it."""
        if data is PING:
            if self.content_type != _EVENTS or not self._is_between:
                return
        else:
            self._is_between = bytes(data[-2:]) == b"\n\n"
        await super().write(data)


class LoadPings:
    """Pings for a client whose model is not loaded yet, once it has waited for `pause` seconds; None: never. Use with
    `with`.
    """

    def __init__(self, request: web.Request, pause: float | None) -> None:
        self._request, self._pause = request, pause
        self._pinging: asyncio.Task[None] | None = None

    def __enter__(self) -> LoadPings:
        if self._pause is not None:
            self._pinging = asyncio.create_task(self._ping(self._pause))
        return self

    def __exit__(self, *error: object) -> None:
        if self._pinging is not None:
            self._pinging.cancel()

    async def end(self) -> None:
        """The model is there."""
        if self._pinging is not None:
            self._pinging.cancel()
            await asyncio.wait((self._pinging,))

    async def _ping(self, pause: float) -> None:
        await asyncio.sleep(pause)
        response = PassedStream(headers={hdrs.CONTENT_TYPE: _EVENTS, **HEADERS})
        await response.prepare(self._request)
        _begun(self._request, response)
        while True:
            await response.write(PING)
            await asyncio.sleep(pause)


async def pass_on(
    request: web.Request, connections: Connections, child: Child, path: str, body: PassedBody | None = None
) -> web.StreamResponse:
    """The answer of a model's process to a request at `path`, sent already. Where the client leaves, this is cancelled,
    and the connection to the process is closed. Raises RoutingError where the process fails.
    """
    headers = _kept(request.headers, _NOT_THERE)
    headers[ID_HEADER] = id_of_request(request)
    try:
        async with connections.ask(child, path, request.method, headers, body) as answer:
            return await _pass_back(request, answer)
    except (aiohttp.ClientError, ConnectionError) as error:
        if request.transport is None or request.transport.is_closing():
            raise ConnectionError("the client is gone") from error
        raise broken(f"the process of the model ended while it answered: {child.reason or error}") from error


async def _pass_back(request: web.Request, answer: ChildAnswer) -> web.StreamResponse:
    begun = request.get(STREAM)
    if begun is not None and answer.status != HTTPStatus.OK:  # too late for a status
        raise RoutingError(_problem_in(answer.status, await answer.content.read()))
    response = begun
    if response is None:
        response = request[STREAM] = PassedStream(status=answer.status, headers=_kept(answer.headers, _NOT_BACK))
        await response.prepare(request)
        if hdrs.CONTENT_LENGTH not in answer.headers and response.content_type in (_EVENTS, _LINES):
            _begun(request, response)
    while data := await answer.content.readany():
        await response.write(data)
    await response.write_eof()
    return response


def _begun(request: web.Request, response: PassedStream) -> None:
    """From now on errors are the last words of this stream."""
    request[STREAM] = response
    request[FAILED] = api_of(own_path(request)).last_words


def _problem_in(status: int, body: bytes) -> Problem:
    """The error of an answer, in whatever API's form."""
    try:
        error = parse_object(body)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (InvalidRequestError, KeyError):
        message = f"the model's process answered {status}"
    return Problem(status, str(message), KINDS.get(status, "server_error"))


def _kept(headers: Mapping[str, str], but: Set[str]) -> CIMultiDict[str]:
    """Headers to be sent on, without these."""
    return CIMultiDict(
        [
            (name, value)
            for name, value in headers.items()
            if (low := name.lower()) not in but and not low.startswith("access-control-")
        ]
    )
