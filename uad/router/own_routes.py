"""A router's own routes: health, loading and unloading of models, events, props and metrics."""

from __future__ import annotations

import asyncio

from aiohttp import web

from uad import __version__
from uad.base.errors import NotSupportedError
from uad.http.apis import ollama
from uad.http.edge.edge import EDGE
from uad.http.edge.replies import reply
from uad.router.instances import PooledModel
from uad.router.lists import asked
from uad.router.metrics import CONTENT_TYPE, render
from uad.router.refusal import later, wrong
from uad.router.routing import members_of, to_model
from uad.router.state import ROUTER, RouterState


async def health(request: web.Request) -> web.Response:
    """GET /health."""
    return reply({"status": "ok"})


async def load(request: web.Request) -> web.Response:
    """POST /models/load {model}: begin to load it."""
    state = request.app[ROUTER]
    state.pool.load(await _asked_for(request, state))
    return reply({"success": True})


async def unload(request: web.Request) -> web.Response:
    """POST /models/unload {model}: begin to end its process."""
    state = request.app[ROUTER]
    state.pool.unload(await _asked_for(request, state))
    return reply({"success": True})


async def _asked_for(request: web.Request, state: RouterState) -> PooledModel:
    """The model that the body names."""
    shared = request.app[EDGE]
    members = await members_of(await shared.bodies.read(request, shared.config.timeout))
    name = members.get("model")
    if not isinstance(name, str) or not name:
        raise wrong("model: name the model, as GET /models lists it")
    return state.pool.find(name)


async def events(request: web.Request) -> web.StreamResponse:
    """GET /models/sse: what becomes of models."""
    state = request.app[ROUTER]
    if state.events.is_full:
        raise later("too many listen to /models/sse; close one", 1)
    pause = state.config.server.sse_ping_interval
    return await state.events.send(request, pause if pause > 0 else None)


async def props(request: web.Request) -> web.StreamResponse:
    """GET /props: the router's, with ?model= those of a model."""
    if request.query.get("model"):
        return await to_model(request)
    config = request.app[ROUTER].config
    return reply(
        {
            "role": "router",
            "max_instances": config.router.models_max,
            "models_autoload": config.router.autoload,
            "model_alias": "uad",
            "model_path": "none",
            "default_generation_settings": {"params": {}, "n_ctx": 0},
            "ui_settings": {},
            "build_info": f"b-uad-{__version__}",
            "cors_proxy_enabled": False,
        }
    )


async def metrics(request: web.Request) -> web.StreamResponse:
    """GET /metrics: those of all loaded models with a label `model`, and the router's; with ?model= those of one."""
    state = request.app[ROUTER]
    if not state.config.server.metrics:
        raise NotSupportedError("the metrics endpoint is off; start the server with --metrics")
    if request.query.get("model"):
        return await to_model(request)
    running = state.pool.running
    texts = await asyncio.gather(*(asked(state, pooled, "/metrics") for pooled in running))
    named = {pooled.model.name: text.decode(errors="replace") for pooled, text in zip(running, texts, strict=True)}
    headers = {"Content-Type": CONTENT_TYPE, "Process-Start-Time-Unix": str(state.started)}
    return web.Response(text=render(state.pool, named), headers=headers)


async def models_are_files(request: web.Request) -> web.Response:
    """POST and DELETE /models: llama-server downloads and deletes there."""
    raise NotSupportedError(
        "models are files of the folder: put one there or take it away, and the list follows; a section of "
        "--models-preset with hf-repo = USER/REPO fetches one"
    )


async def version(request: web.Request) -> web.Response:
    """GET /api/version."""
    return reply({"version": ollama.VERSION})


async def absent_route(request: web.Request) -> web.Response:
    """Routes of other servers that change which models there are, or make no text."""
    raise NotSupportedError(
        f"{request.path} is not supported: models are files of the folder that this server was started with, and "
        "generate text"
    )
