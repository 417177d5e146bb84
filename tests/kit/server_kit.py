"""A real server on a free port over a scripted runtime, and small readers of what it says."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiohttp import ClientSession

from kit.fake_runtime import FakeRuntime
from kit.listening import base_url, listen
from uad.base.config import ServerConfig
from uad.http.server import make_app, make_runner

CONFIG = ServerConfig(port=0, alias="toy", max_queue=2)
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]

T = TypeVar("T")


@asynccontextmanager
async def serving(fake: FakeRuntime, config: ServerConfig = CONFIG) -> AsyncIterator[ClientSession]:
    runner = make_runner(make_app(fake, config))
    with fake:
        await runner.setup()
        try:
            await listen(runner, config)
            async with ClientSession(base_url(runner, config).removesuffix(config.api_prefix)) as session:
                yield session
        finally:
            fake.go.set()
            await runner.cleanup()


def with_server(
    test: Callable[[ClientSession], Awaitable[T]], fake: FakeRuntime | None = None, config: ServerConfig = CONFIG
) -> T:
    async def run() -> T:
        async with asyncio.timeout(120), serving(fake or FakeRuntime(), config) as session:
            return await test(session)

    return asyncio.run(run())


def post(
    path: str, body: Any, fake: FakeRuntime | None = None, config: ServerConfig = CONFIG, **options: Any
) -> tuple[int, Any]:
    """One POST to a fresh server: status and JSON."""
    (answered,) = post_each(path, [body], fake, config, **options)
    return answered


def post_each(
    path: str, bodies: Iterable[Any], fake: FakeRuntime | None = None, config: ServerConfig = CONFIG, **options: Any
) -> list[tuple[int, Any]]:
    """POSTs to one fresh server, one after the other: status and JSON of each."""

    async def test(session: ClientSession) -> list[tuple[int, Any]]:
        answered = []
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with session.post(path, data=io.BytesIO(data), **options) as answer:
                answered.append((answer.status, json.loads(await answer.read())))
        return answered

    return with_server(test, fake, config)


def get(path: str, fake: FakeRuntime | None = None, config: ServerConfig = CONFIG, **options: Any) -> tuple[int, Any]:
    """One GET to a fresh server: status and JSON, or text where it is none."""

    async def test(session: ClientSession) -> tuple[int, Any]:
        async with session.get(path, **options) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    return with_server(test, fake, config)


def events(data: bytes) -> list[Any]:
    """The objects of a stream, `[DONE]` as that string; comments are left out."""
    frames = [part for part in data.decode().split("\n\n") if part and not part.startswith(":")]
    assert all(part.startswith("data: ") for part in frames)
    return ["[DONE]" if part == "data: [DONE]" else json.loads(part.removeprefix("data: ")) for part in frames]


def stream(path: str, body: Any, fake: FakeRuntime | None = None, config: ServerConfig = CONFIG) -> list[Any]:
    """One streamed POST to a fresh server, read to the end."""

    async def test(session: ClientSession) -> list[Any]:
        async with session.post(path, json={**body, "stream": True}) as answer:
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
            return events(await answer.read())

    return with_server(test, fake, config)
