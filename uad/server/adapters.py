"""LoRA adapters over HTTP: which there are, how much of each is added for all, and for one request."""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict

from aiohttp import web

from uad.common.json_out import dumps
from uad.errors import InvalidRequestError
from uad.requests.engine import Backend
from uad.server.json_in import parse_list
from uad.server.state import STATE


async def show(request: web.Request) -> web.Response:
    """GET /lora-adapters: llama-server's list."""
    return _reply([asdict(one) for one in request.app[STATE].engine.adapters()])


async def change(request: web.Request) -> web.Response:
    """POST /lora-adapters [{"id", "scale"}, …]: for requests that come later; those that are not named get 0."""
    state = request.app[STATE]
    async with asyncio.timeout(state.config.timeout):
        data = await request.read()
    state.engine.set_adapters(scales_of(state.engine, parse_list(data), "body"))
    return _reply({"success": True})


def _reply(value: object) -> web.Response:
    return web.Response(text=dumps(value), content_type="application/json")


def scales_of(engine: Backend, value: object, where: str = "lora") -> tuple[float, ...]:
    """How much of each adapter a list of {"id", "scale"} adds; 0 where it names one not. Raises InvalidRequestError."""
    if not isinstance(value, list):
        raise InvalidRequestError(f"{where}: must be a list of objects with id and scale", where)
    scales = [0.0] * len(engine.adapters())
    for i, one in enumerate(value):
        id_, scale = (one.get("id"), one.get("scale", 0.0)) if isinstance(one, dict) else (None, None)
        if type(id_) is not int or not 0 <= id_ < len(scales):
            raise InvalidRequestError(f"{where}.{i}: {_no_such(len(scales))}", where)
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not _is_single(scale):
            raise InvalidRequestError(f"{where}.{i}: scale must be a number", where)
        scales[id_] = float(scale)
    return tuple(scales)


def _is_single(scale: float) -> bool:
    """Whether it is finite, also in single precision."""
    return math.isfinite(scale) and abs(scale) < 3e38


def _no_such(n: int) -> str:
    if not n:
        return "this server has no adapter; start it with --lora FILE"
    return f"id must be the number of an adapter, 0 to {n - 1}; GET /lora-adapters lists them"
