"""A real server over a runtime that was opened, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession

from kit.listening import base_url, listen
from uad.base.config import ServerConfig
from uad.http.server import make_app, make_runner
from uad.runtime.runtime import Runtime


@asynccontextmanager
async def answering(runtime: Runtime) -> AsyncIterator[ClientSession]:
    settings = ServerConfig(port=0)
    runner = make_runner(make_app(runtime, settings))
    await runner.setup()
    try:
        await listen(runner, settings)
        async with ClientSession(base_url(runner, settings)) as session:
            yield session
    finally:
        await runner.cleanup()
