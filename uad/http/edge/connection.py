"""Connections, and the server that makes them: what aiohttp decides by itself below the application, in our words and
within our bounds.

A server answers in the phases of its life on the same sockets and connections: loading, then the application's answers,
then shutting down.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo

from uad.base.common.json_out import PING
from uad.base.common.request_id import REQUEST_ID, request_id
from uad.http.apis.problems import Problem
from uad.http.edge.replies import STREAM, escaped, id_of_request, refused, unreadable

log = logging.getLogger("uad.http")
PATIENCE_S = 60.0
"""Seconds that a client may read nothing, while it is sent something."""
HEAD_S = 60.0
"""Seconds that the head of a request may take to arrive, and a new connection to send anything."""
_HEAD_BYTES = 200
_READ_AHEAD_BYTES = 1 << 16
"""Bytes of a body that wait for the handler to read it; the client is stopped at twice as many."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.05
"""How often a client that ended its side is looked at: soon after that, and then more seldom."""
_LAST_BYTES_S = 1.0
"""How long a server that ends waits for a client to read the end of its answer."""
_PROBE_S = 1.0
"""How often it is sent something, which a client that is gone answers with a reset."""
LOADING = Problem(503, "Loading model", "unavailable_error", headers={"Retry-After": "5"})
"""llama-server's answer on every route until the models are loaded; clients wait for its end."""
STOPPING = Problem(503, "the server is shutting down", "unavailable_error", headers={"Retry-After": "5"})


class Connection(web.RequestHandler):
    """One connection. Refusals have the form of all errors; a client that reads nothing is closed after a time."""

    __slots__ = ("_arriving", "_head", "_is_hurried", "_patience", "_stalled")

    def __init__(self, manager: web.Server, patience: float) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            logger=log,
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,  # uad.http.edge.bodies does, within bounds
            read_bufsize=_READ_AHEAD_BYTES,
        )
        self._patience, self._is_hurried = patience, False
        self._stalled, self._arriving = _Deadline(self._loop), _Deadline(self._loop)
        self._head = b""  # how the request that is arriving begins

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        super().connection_made(transport)
        self._arriving.set(HEAD_S, self._give_up)

    def limit_write_time(self, seconds: float) -> None:
        """From now on the client has so long to take what it is sent, whether it takes some of it or not."""
        self._patience, self._is_hurried = seconds, True
        if self._stalled.is_set:
            self._wait_for_reader()

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """It takes it again."""
        super().resume_writing()
        self._stalled.forget()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone."""
        self._stalled.forget()
        self._arriving.forget()
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:
        """End: requests that run have `timeout` seconds, and the bytes to send then a second at most. A client
        that reads nothing is not waited for any longer: its connection would outlive the loop.
        """
        transport = self.transport
        await super().shutdown(timeout)
        if transport is None:
            return
        end = self._loop.time() + min(timeout or _LAST_BYTES_S, _LAST_BYTES_S)
        while transport.get_write_buffer_size() and self._loop.time() < end:
            await asyncio.sleep(0.01)
        if transport.get_write_buffer_size():
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """A part of a request."""
        self._head += data[: _HEAD_BYTES - len(self._head)]
        super().data_received(data)
        reading = self._current_request
        # aiohttp queues a request only once the body before it is whole; what it queues sooner is that this one is
        # broken, and a handler that reads it would wait for ever
        if self._messages and reading is not None and not reading.content.is_eof():
            reading.content.set_exception(web.RequestPayloadError())
            reading.content.feed_eof()
        if not self._is_waiting():
            self._arriving.forget()
        elif not self._arriving.is_set:
            self._arriving.set(HEAD_S, self._give_up)

    def _is_waiting(self) -> bool:
        """Whether no head of a request is whole that is not answered yet."""
        return not self._messages and self._current_request is None

    def _give_up(self) -> None:
        """The head is late: a part of one is answered, and a connection that never sent anything is closed."""
        if not self._is_waiting():
            return
        if self._head and self._waiter is not None and not self._waiter.done():
            late = HttpProcessingError(code=408, message=f"its head did not arrive within {HEAD_S:g} s")
            self._messages.append((_ErrInfo(late.code, late, late.message), EMPTY_PAYLOAD))
            self._waiter.set_result(None)
        elif not self._request_count:
            self.force_close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; the next request begins after it."""
        self._head = b""
        if isinstance(resp, web.HTTPException):
            resp = escaped(request, resp)
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer in place of aiohttp: to data that is not HTTP, and to errors that got past everything."""
        name = request_id(None)
        REQUEST_ID.set(name)
        response, reason = unreadable(exc, self._head, name)
        if isinstance(exc, HttpProcessingError):
            is_noise = isinstance(exc, BadHttpMethod) and self._request_count == 1  # scanners of the open network
            log.log(logging.DEBUG if is_noise else logging.WARNING, "from %s: %s", request.remote, reason)
        else:
            log.error("an answer failed", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun")
        response.force_close()
        return response

    def _wait_for_reader(self) -> None:
        self._stalled.set(self._patience, self._look, _n_unread(self.transport))

    def _look(self, n_before: int) -> None:
        """Close the connection unless the client has read since it had `n_before` bytes to read."""
        # A phone on a slow line takes little, but some: only one that took nothing at all is gone.
        if _n_unread(self.transport) < n_before and not self._is_hurried:
            self._wait_for_reader()
        elif self.transport is not None:
            log.info(
                "%s does not read what it asked for; its connection is closed",
                self.transport.get_extra_info("peername"),
            )
            self.transport.abort()


class _Deadline:
    """A call that is made once, unless it is put off or forgotten before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether the call is still to be made."""
        return self._timer is not None

    def set(self, seconds: float, work: Callable[..., None], *args: object) -> None:
        """Call `work` with these arguments so long from now, in place of what was set before."""
        self.forget()

        def due() -> None:
            self._timer = None
            work(*args)

        self._timer = self._loop.call_later(seconds, due)

    def forget(self) -> None:
        """Make no call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _n_unread(transport: asyncio.Transport | None) -> int:
    return 0 if transport is None else transport.get_write_buffer_size()


def limit_write_time(request: web.Request, seconds: float) -> None:
    """The client has so long to take what it is sent, from now on."""
    if isinstance(request.protocol, Connection):
        request.protocol.limit_write_time(seconds)


class HalfClosing(Connection):
    """Where the end of what a client sends is not the end of the client.

    A client that closes its socket sends the same: only what is sent to that one comes back with a reset. So it is sent
    something without a meaning: an interim response, or a comment where a stream has begun.
    """

    __slots__ = ("_tell", "_watch", "request")

    def __init__(self, server: web.Server, patience: float, tell: Callable[[HalfClosing], None]) -> None:
        """patience: see `Connection`. tell: called at the end of each answer."""
        super().__init__(server, patience)
        self._tell = tell
        self._watch: asyncio.Task[None] | None = None
        self.request: web.BaseRequest | None = None
        """The request being answered, until the answer is sent; set where requests are made."""

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. False: asyncio closes the connection, as aiohttp has it for all clients."""
        request = self.request
        if request is None or not request.content.is_eof() or self.ssl_context is not None:
            return False  # no answer is due, or TLS ends both sides together
        if request.version < HttpVersion11 and STREAM not in request:
            return False  # HTTP/1.0 has no interim responses
        self.close()  # with the answer
        self._watch = asyncio.get_running_loop().create_task(self._watch_client(request))
        return True

    async def _watch_client(self, request: web.BaseRequest) -> None:
        """Close the connection once the client turns out to be gone: asyncio, which reads no more here, would not see
        its reset.
        """
        clock, pause, probe_at = asyncio.get_running_loop().time, _FIRST_LOOK_S, 0.0
        while self.transport is not None:
            if clock() >= probe_at:
                probe_at = clock() + _PROBE_S
                await self._probe(request)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_S)
            if self.transport is not None and _has_failed(self.transport):
                self.transport.abort()
                return

    async def _probe(self, request: web.BaseRequest) -> None:
        stream = request.get(STREAM)
        with suppress(ConnectionError, RuntimeError):  # the latter where the stream has just ended
            if stream is not None:
                await stream.write(PING)
            elif self.transport is not None:
                self.transport.write(_CONTINUE)

    def stop_watching(self) -> None:
        """The answer is ready: sending it shows whether the client is there."""
        if self._watch is not None:
            self._watch.cancel()

    def log_access(self, request: web.BaseRequest, response: web.StreamResponse, time: float | None) -> None:
        """aiohttp calls this when an answer was sent, or could not be."""
        super().log_access(request, response, time)
        self._end()

    def connection_lost(self, exc: BaseException | None) -> None:
        """No answer can be sent any more."""
        super().connection_lost(exc)
        self._end()

    def _end(self) -> None:
        self.stop_watching()
        self.request = None
        self._tell(self)


def _has_failed(transport: asyncio.BaseTransport) -> bool:
    """Whether the socket has met an error, as a reset is one."""
    own_socket = transport.get_extra_info("socket")
    try:
        return own_socket is None or bool(own_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    except OSError:
        return True


class PhasedServer(web.Server):
    """Makes connections. Each request is refused, or goes to the application that was opened."""

    def __init__(self, patience: float) -> None:
        """patience: seconds that a client may read nothing, while it is sent something."""
        super().__init__(self._answer, request_factory=self._request, handler_cancellation=True)
        self._patience = patience
        self._app: web.Server | None = None
        self._problem: Problem | None = LOADING
        self._answering: set[HalfClosing] = set()
        self._has_ended = asyncio.Event()

    def __call__(self) -> HalfClosing:
        return HalfClosing(self, self._patience, self._ended)

    def open(self, app: web.Server) -> None:
        """From now on the application answers, on connections that were there before, too."""
        self._app, self._problem = app, None

    async def drain(self, seconds: float) -> int:
        """Refuse what comes, and wait until all that runs is answered, but no longer than this; how much still runs."""
        self._problem = STOPPING
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._answering:
                    self._has_ended.clear()
                    await self._has_ended.wait()
        return len(self._answering)

    @property
    def n_answering(self) -> int:
        """How many requests the application answers now."""
        return len(self._answering)

    def pre_shutdown(self) -> None:
        """Close idle connections, and others with their answers. aiohttp would leave open what it accepted a moment
        ago, and `shutdown` would wait for a request there.
        """
        for connection in cast("list[HalfClosing]", self.connections):
            if connection.request is None:
                connection.force_close()
            else:
                connection.close()

    def _request(
        self, message: Any, payload: Any, protocol: Any, writer: AbstractStreamWriter, task: Any
    ) -> web.BaseRequest:
        if self._app is None or self._problem is not None:
            request = web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())
        else:
            request = self._app.request_factory(message, payload, protocol, writer, task)
        protocol.request = request
        return request

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._app is None or not isinstance(request, web.Request):
            problem = self._problem or LOADING
            response = refused(problem, request.path, id_of_request(request), request.headers)
            if problem is STOPPING:
                response.force_close()
            return response
        connection = cast("HalfClosing", request.protocol)
        self._answering.add(connection)
        try:
            return await self._app.request_handler(request)
        finally:
            connection.stop_watching()

    def _ended(self, connection: HalfClosing) -> None:
        self._answering.discard(connection)
        self._has_ended.set()
