"""Connections: what aiohttp decides by itself below the application, in our words and within our bounds."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError

from uad.common.request_id import REQUEST_ID, request_id
from uad.server.refusals import escaped, unreadable

log = logging.getLogger("uad.http")
PATIENCE = 60.0
"""Seconds that a client may read nothing, while it is sent something."""
_HEAD = 200
_READ_AHEAD = 1 << 16
"""Bytes of a body that wait for the handler to read it; the client is stopped at twice as many."""


class Connection(web.RequestHandler):
    """One connection. Refusals have the form of all errors; a client that reads nothing is closed after a time."""

    __slots__ = ("_head", "_is_hurried", "_patience", "_stalled")

    def __init__(self, manager: web.Server, patience: float) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            logger=log,
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,  # uad.server.bodies does, within bounds
            read_bufsize=_READ_AHEAD,
        )
        self._patience, self._is_hurried = patience, False
        self._stalled: asyncio.TimerHandle | None = None
        self._head = b""  # how the request that is arriving begins

    def hurry(self, seconds: float) -> None:
        """From now on the client has so long to take what it is sent, whether it takes some of it or not."""
        self._patience, self._is_hurried = seconds, True
        if self._stalled is not None:
            self._wait_for_reader()

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """It takes it again."""
        super().resume_writing()
        self._forget_reader()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone."""
        self._forget_reader()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a request."""
        self._head += data[: _HEAD - len(self._head)]
        super().data_received(data)
        reading = self._current_request
        # aiohttp queues a request only once the body before it is whole; what it queues sooner is that this one is
        # broken, and a handler that reads it would wait for ever
        if self._messages and reading is not None and not reading.content.is_eof():
            reading.content.set_exception(web.RequestPayloadError())
            reading.content.feed_eof()

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
        """What aiohttp answers by itself: what is no HTTP, and errors that got past everything."""
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
        self._forget_reader()
        self._stalled = self._loop.call_later(self._patience, self._look, self._n_unread())

    def _forget_reader(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _n_unread(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def _look(self, n_before: int) -> None:
        """Whether the client has read since it had so many bytes to read."""
        if self._n_unread() < n_before and not self._is_hurried:
            self._wait_for_reader()
        elif self.transport is not None:
            log.info(
                "%s does not read what it asked for; its connection is closed",
                self.transport.get_extra_info("peername"),
            )
            self.transport.abort()


def hurry(request: web.Request, seconds: float) -> None:
    """The client has so long to take what it is sent, from now on."""
    if isinstance(request.protocol, Connection):
        request.protocol.hurry(seconds)
