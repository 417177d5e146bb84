"""What all handlers of one application share. Lives on the event loop's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from uad.config import ServerConfig
from uad.server.admission import Gate
from uad.server.engine import Engine
from uad.server.generation import Generation
from uad.server.reading import SMALL, parse_object
from uad.server.wire import chunks
from uad.server.workers import Workers
from uad.types import Done

T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """Sums over finished requests, which the runtime does not keep; `window_*` are since the last scrape."""

    prompt_ms: float = 0.0
    predicted_ms: float = 0.0
    n_cached: int = 0
    n_tokens_max: int = 0
    window_prompt: tuple[int, float] = (0, 0.0)
    window_predicted: tuple[int, float] = (0, 0.0)

    def add(self, done: Done) -> None:
        """Count one finished sequence."""
        times = done.timings
        self.prompt_ms += times.prompt_ms
        self.predicted_ms += times.predicted_ms
        self.n_cached += done.usage.n_cached
        self.n_tokens_max = max(self.n_tokens_max, done.usage.n_prompt + done.usage.n_predicted)
        n, ms = self.window_prompt
        self.window_prompt = n + times.n_prompt, ms + times.prompt_ms
        n, ms = self.window_predicted
        self.window_predicted = n + max(times.n_predicted - 1, 0), ms + times.predicted_ms


@dataclass(slots=True)
class State:
    """One application: the runtime behind it, its settings, and everything that is running."""

    engine: Engine
    config: ServerConfig
    gate: Gate
    workers: Workers = field(default_factory=Workers)
    tally: Tally = field(default_factory=Tally)
    live: set[Generation] = field(default_factory=set)
    streams: dict[int, web.StreamResponse] = field(default_factory=dict)  # by id of the request: where a late error is told
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def alias(self) -> str:
        """The model's name as clients see it."""
        return self.config.alias or Path(self.engine.info.target.path).name

    @property
    def fingerprint(self) -> str:
        """The build, with the leading b that llama-server's clients expect."""
        build = self.engine.info.build
        return build if build.startswith("b") else f"b-{build}"

    async def off_loop(self, size: int, work: Callable[[], T]) -> T:
        """Run `work` for a request with a body of `size` bytes on a thread; dropped with the request."""
        return await self.workers.lane(size).run(work)

    async def reply(self, size: int, make: Callable[[], object], depth: int = 5) -> web.Response:
        """A JSON response of what `make` makes for a request of `size` bytes, off the loop; `depth` is as `chunks` has it."""
        data = await self.off_loop(size, lambda: chunks(make(), depth))
        return web.Response(body=data[0] if len(data) == 1 else _each(data), content_type="application/json", charset="utf-8")

    async def read(self, request: web.Request, build: Callable[[dict[str, object]], T]) -> tuple[T, int]:
        """What `build` makes of the request's JSON object, and the body's bytes; off the loop where they are many."""
        async with asyncio.timeout(self.config.timeout):
            data = await request.read()

        def made() -> T:
            return build(parse_object(data, self.engine.info.n_ctx))

        return (made() if len(data) <= SMALL else await self.off_loop(len(data), made)), len(data)


async def _each(data: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in data:
        yield chunk


STATE = web.AppKey("STATE", State)
