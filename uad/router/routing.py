"""Which model a request is for, and the way there."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from uad.base.common.json_out import dumps, frame
from uad.base.config.kinds import SWITCH
from uad.http.edge.edge import EDGE, own_path
from uad.http.edge.json_in import SMALL_BYTES, parse_object
from uad.http.edge.replies import begin_stream
from uad.http.server.app import MAX_BODY
from uad.router.connections import PassedBody
from uad.router.instances import PooledModel
from uad.router.passing import LoadPings, pass_on
from uad.router.refusal import unnamed, wrong
from uad.router.state import ROUTER, RouterState

log = logging.getLogger("uad.router")
_MANY_VALUES = 1 << 24
"""In lists of token ids: how many a model takes is for its process to say."""
_NO_OBJECT = ("/lora-adapters",)
"""Paths whose body is no object: the model is named in the query."""


_WATCHED = ("/live",)
"""Streams without an end: they load no model, and keep none loaded."""


async def to_model(request: web.Request) -> web.StreamResponse:
    """Any route of one model: the path names it, as Gemini's do, else `model` in the body of a POST, or `?model=`."""
    shared = request.app[EDGE]
    path = request.rel_url.raw_path_qs.removeprefix(shared.config.api_prefix)
    if request.method != "POST":
        return await _send(request, _outside_body(request), path)
    bodies = shared.bodies
    body = PassedBody(
        await bodies.read(request, shared.config.timeout, MAX_BODY), lambda: bodies.release(request)
    )  # nothing else holds its bytes: an answer may take an hour
    try:
        name, streams = await _wanted(request, body)
        return await _send(request, name, path, body, streams and not path.startswith("/api/"))
    finally:
        body.release()


async def _wanted(request: web.Request, body: PassedBody) -> tuple[str | None, bool]:
    """The model that the path names, the body or the query, and whether the body asks for a stream."""
    members = await members_of(body.data) if own_path(request) not in _NO_OBJECT else {}
    name = request.match_info.get("model") or members.get("model", request.query.get("model"))
    if name is not None and not isinstance(name, str):
        raise wrong("model: must be a text, the name of a model")
    return name, members.get("stream") is True


def _outside_body(request: web.Request) -> str | None:
    """The model that the path names, as Gemini's do, or the query."""
    return request.match_info.get("model") or request.query.get("model")


async def _send(
    request: web.Request, name: str | None, path: str, body: PassedBody | None = None, streams: bool = False
) -> web.StreamResponse:
    """streams: whether the answer is one of server-sent events, which may have pings while the model is loaded."""
    state = request.app[ROUTER]
    pooled = model_named(state, name)
    if path.partition("?")[0] in _WATCHED:
        if pooled.running is None or pooled.running.child is None:
            return await _nothing_to_see(request, pooled)
        return await pass_on(request, state.connections, pooled.running.child, path, body)
    loads = state.config.router.autoload if (text := request.query.get("autoload", "")) == "" else _switch(text)
    ping = request.app[EDGE].config.sse_ping_interval
    has_model = False
    with LoadPings(request, ping if streams and ping > 0 and not pooled.is_open else None) as waiting:
        try:
            async with state.pool.using(pooled, loads) as child:
                has_model = True
                await waiting.end()
                return await pass_on(request, state.connections, child, path, body)
        except asyncio.CancelledError:
            if not has_model:  # else the model's process says so
                log.info("%s: client left before the model was loaded; read 0 tokens, wrote 0", pooled.model.name)
            raise


async def _nothing_to_see(request: web.Request, pooled: PooledModel) -> web.StreamResponse:
    """A stream that says so and ends: who watches comes again."""
    error = wrong(f"model '{pooled.model.name}' is not loaded: a request that it answers loads it")
    response = await begin_stream(request)
    await response.write(frame(dumps(error.problem.body())))
    await response.write_eof()
    return response


async def members_of(body: bytes) -> dict[str, object]:
    """The members of a body. Raises InvalidRequestError."""
    if len(body) <= SMALL_BYTES:
        return parse_object(body, _MANY_VALUES)
    return await asyncio.to_thread(parse_object, body, _MANY_VALUES)


def model_named(state: RouterState, name: str | None) -> PooledModel:
    """The model of this name; without one the only one there is. Raises RoutingError."""
    models = state.pool.models
    if not name:
        if len(models) == 1:
            return next(iter(models.values()))
        raise unnamed(list(models))
    return state.pool.find(name)


def _switch(text: str) -> bool:
    try:
        return bool(SWITCH.parse(text))
    except ValueError:
        raise wrong("autoload: must be true or false", "autoload") from None
