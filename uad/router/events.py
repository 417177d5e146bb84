"""Changes of models, as they happen: GET /models/sse."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web

from uad.base.common.json_out import PING, dumps, frame
from uad.http.edge.replies import begin_stream

_MOST_EVENTS_BEHIND = 256
MAX_LISTENERS = 64


class Broadcast:
    """Events go to all who listen. A listener that does not read is left out once too many wait for it."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether nobody else may listen."""
        return len(self._listeners) >= MAX_LISTENERS

    def tell(self, model: str, event: str, data: Mapping[str, object]) -> None:
        """Send an event; `data` may be empty."""
        self._put(frame(dumps({"model": model, "event": event, **({"data": data} if data else {})})))

    async def send(self, request: web.Request, pause: float | None) -> web.StreamResponse:
        """Events until the client leaves or the server stops, with pings in silence."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_EVENTS_BEHIND)
        self._listeners.add(queue)
        try:
            response = await begin_stream(request)
            while queue in self._listeners and not self._is_closed:
                text: bytes | None = PING
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        text = await queue.get()
                if text is not None:
                    await response.write(text)
            with suppress(ConnectionError):
                await response.write_eof()
            return response
        finally:
            self._listeners.discard(queue)

    def close(self) -> None:
        """The streams end."""
        self._is_closed = True
        self._put(None)

    def _put(self, text: bytes | None) -> None:
        """None only wakes those who listen."""
        for listener in list(self._listeners):
            try:
                listener.put_nowait(text)
            except asyncio.QueueFull:
                self._listeners.discard(listener)
