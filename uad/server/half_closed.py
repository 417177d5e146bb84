"""A connection whose client ends its own side of it after a request (`shutdown(SHUT_WR)`, as `nc -N` does) and still
wants the answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from aiohttp import HttpVersion11, web

from uad.common.json_out import PING
from uad.server.connection import Connection
from uad.server.replies import STREAM

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.05
_PROBE_S = 1.0


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
        """What is being answered, until the answer is sent; set where requests are made."""

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
    one = transport.get_extra_info("socket")
    try:
        return one is None or bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    except OSError:
        return True
