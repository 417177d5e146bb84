"""A server's answers in the phases of its life, on the same sockets and connections: loading, then the application's
answers, then shutting down.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from uad.apis.problems import Problem
from uad.server.half_closed import HalfClosing
from uad.server.refusals import id_of_request, refused

LOADING = Problem(503, "Loading model", "unavailable_error", headers={"Retry-After": "5"})
"""llama-server's answer on every route until the models are loaded; clients wait for its end."""
STOPPING = Problem(503, "the server is shutting down", "unavailable_error", headers={"Retry-After": "5"})


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
            response = refused(problem, request.path, id_of_request(request))
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
