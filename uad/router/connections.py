"""Connections to the processes of models, kept open between requests.

aiohttp's parser of answers without its client session, which takes longer for a request than a router has for it: no
cookies, redirects, proxies or names of hosts are due on the way to a process of this machine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aiohttp import StreamReader, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_writer import StreamWriter
from multidict import CIMultiDict

from uad.router.child import Child

_PATIENCE_S = 5.0
"""For a process to take a new connection."""
_KEPT_S = 15.0
"""How long a connection waits for the next request: processes close theirs much later."""
_PIECE_BYTES = 1 << 16
"""Bytes of a body that are sent at once: a long one must not keep others waiting."""


class PassedBody:
    """The body of a request until a process has it."""

    def __init__(self, data: bytes = b"", on_released: Callable[[], None] = lambda: None) -> None:
        self.data = data
        self._on_released = on_released

    def release(self) -> None:
        """It is not needed any more. Nothing else may hold its data."""
        self.data = b""
        self._on_released()


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """The answer of a process; `content` arrives while it is read."""

    status: int
    headers: Mapping[str, str]
    content: StreamReader


class Connections:
    """To all processes: as many as there are requests. Lives on the event loop's thread; use with `async with`."""

    def __init__(self) -> None:
        self._idle: WeakKeyDictionary[Child, deque[tuple[float, ResponseHandler]]] = WeakKeyDictionary()
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(self, *error: object) -> None:
        for kept in self._idle.values():
            for _, connection in kept:
                connection.close()

    @asynccontextmanager
    async def ask(
        self,
        child: Child,
        path: str,
        method: str = "GET",
        headers: CIMultiDict[str] | None = None,
        body: PassedBody | None = None,
    ) -> AsyncIterator[ChildAnswer]:
        """The answer of a process, with its key; what the block leaves unread is not waited for. The body is released
        as soon as it was sent. Raises ConnectionError or aiohttp.ClientError where the process fails.
        """
        body = body or PassedBody()
        kept = self._taken(child)
        connection = await self._opened(child) if kept is None else kept
        try:
            connection.set_response_params(read_until_eof=True, auto_decompress=False)
            await _send(connection, f"{method} {path} HTTP/1.1", _head(child, method, headers, len(body.data)), body)
            message, content = await connection.read()
            while message.code < HTTPStatus.OK:  # an interim response
                message, content = await connection.read()
            yield ChildAnswer(message.code, message.headers, content)
        except HttpProcessingError as error:
            raise ConnectionError(f"its answer cannot be read: {error.message}") from error
        except BaseException:
            connection.abort()
            raise
        self._keep(child, connection)

    def _taken(self, child: Child) -> ResponseHandler | None:
        """The connection that was used last, while it is fresh."""
        kept = self._idle.get(child)
        while kept:
            since, connection = kept.pop()
            if since >= self._loop.time() - _KEPT_S and connection.is_connected():
                return connection
            connection.close()
        return None

    def _keep(self, child: Child, connection: ResponseHandler) -> None:
        """For the next request; others that waited too long for one are closed."""
        if connection.should_close:
            connection.close()
            return
        kept = self._idle.setdefault(child, deque())
        now = self._loop.time()
        while kept and kept[0][0] < now - _KEPT_S:
            kept.popleft()[1].close()
        kept.append((now, connection))

    async def _opened(self, child: Child) -> ResponseHandler:
        parts = urlsplit(child.url)
        assert parts.hostname is not None
        assert parts.port is not None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                _, protocol = await self._loop.create_connection(
                    lambda: ResponseHandler(self._loop), parts.hostname, parts.port
                )
        except TimeoutError as error:
            raise ConnectionError(f"it took no connection within {_PATIENCE_S:g} s") from error
        return protocol


def _head(child: Child, method: str, headers: CIMultiDict[str] | None, n_bytes: int) -> CIMultiDict[str]:
    made = CIMultiDict() if headers is None else headers
    made[hdrs.HOST] = child.url.partition("//")[2]
    made[hdrs.AUTHORIZATION] = f"Bearer {child.key}"
    if n_bytes or method != hdrs.METH_GET:
        made[hdrs.CONTENT_LENGTH] = str(n_bytes)
    return made


async def _send(connection: ResponseHandler, line: str, headers: CIMultiDict[str], body: PassedBody) -> None:
    """Send a request, a short one at once. A process that does not read it to its end may have answered before."""
    writer = StreamWriter(connection, asyncio.get_running_loop())
    await writer.write_headers(line, headers)
    try:
        with suppress(ConnectionError):
            at = 0
            while len(body.data) - at > _PIECE_BYTES:
                await writer.write(body.data[at : at + _PIECE_BYTES])
                at += _PIECE_BYTES
            await writer.write_eof(body.data[at:])
    finally:
        body.release()
