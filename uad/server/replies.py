"""Answers as they are sent: JSON at once, an error, or a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

from uad.apis.problems import Problem
from uad.common.json_out import dumps

HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
STREAM = web.RequestKey("stream", web.StreamResponse)
"""Where a request keeps the stream that answers it, once it has begun: a late error is sent there."""
FAILED: web.RequestKey[Callable[[Problem], bytes]] = web.RequestKey("failed", Callable)  # type: ignore[arg-type]
"""Where it keeps how its stream sends an error: the last frames."""


def reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON response."""
    return web.Response(text=dumps(value), status=status, content_type="application/json", headers=headers)


def refusal(problem: Problem, body: Mapping[str, object] | None = None) -> web.Response:
    """A plain response with OpenAI's error body, or with the one that is given."""
    return reply(problem.body() if body is None else body, problem.status, problem.headers)


async def begin_stream(request: web.Request) -> web.StreamResponse:
    """The stream that answers a request, its headers sent."""
    response = request[STREAM] = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    return response
