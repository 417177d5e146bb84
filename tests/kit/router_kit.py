"""A router over processes that are none: each model is a small application in the same loop."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from aiohttp import ClientSession, web

from kit.listening import base_url, listen
from uad.base.config import ServerConfig
from uad.base.config.flags import Layer
from uad.base.config.load import FolderConfig
from uad.base.config.router_config import RouterConfig
from uad.base.config.slices import LogConfig
from uad.http.server import make_runner
from uad.pairs.header import HeaderFacts
from uad.router.app import make_app
from uad.router.child import ProcessFailedError
from uad.router.connections import Connections
from uad.router.events import Broadcast
from uad.router.folder import FolderModel
from uad.router.pool import ModelPool
from uad.router.state import RouterState

T = TypeVar("T")
KEY = "key-of-the-process"
SECRET = "sk-router"


class Clock:
    """Time that only tests let pass."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class FakeChild:
    """What stands for a process: it ends when it is told to, with the code that it is told."""

    name: str
    url: str = ""
    key: str = KEY
    pid: int = 1
    reason: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0
    stops: asyncio.Event | None = None
    """It ends only once this is set."""
    app: web.AppRunner | None = None
    stopped: bool = False

    async def wait(self) -> int:
        await self.ended.wait()
        if self.app is not None:
            await self.app.cleanup()
            self.app = None
        return self.code

    async def stop(self, seconds: float) -> None:
        self.stopped = True
        if self.stops is not None:
            await self.stops.wait()
        self.ended.set()

    def die(self, code: int, reason: str) -> None:
        self.code, self.reason = code, reason
        self.ended.set()


class FakeLauncher:
    """Starts `FakeChild`s. A name in `gates` waits for its event first, one in `fails` does not start, one in `plans`
    says how many bytes it takes.
    """

    def __init__(self, make: Callable[[str], web.Application] | None = None) -> None:
        self.started: list[FakeChild] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.stops: dict[str, asyncio.Event] = {}
        self.fails: dict[str, tuple[Any, ...]] = {}
        self.plans: dict[str, int] = {}
        self.n_cancelled = 0
        self._make = make

    async def start(
        self, model: FolderModel, has_work: Callable[[], bool], planned: Callable[[int], None] = lambda n: None
    ) -> FakeChild:
        try:
            if model.name in self.plans:
                planned(self.plans[model.name])
            if model.name in self.gates:
                await self.gates[model.name].wait()
            if model.name in self.fails:
                raise ProcessFailedError(*self.fails[model.name])
            child = FakeChild(model.name, stops=self.stops.get(model.name))
            if self._make is not None:
                await _listen(child, self._make(model.name))
            self.started.append(child)
            return child
        except asyncio.CancelledError:
            self.n_cancelled += 1
            raise

    @property
    def names(self) -> list[str]:
        """What was started, in that order."""
        return [one.name for one in self.started]


async def _listen(child: FakeChild, app: web.Application) -> None:
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    child.app, child.url = runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


def folder_model(name: str, **fields: Any) -> FolderModel:
    facts = HeaderFacts("llama", name, 1_500_000, 3_000_000, "Q8_0", 4096, 64, 512, "{{ tools }}<think>", True)
    return replace(
        FolderModel(name, Path(f"/models/{name}.gguf"), (f"--model=/models/{name}.gguf",), facts=facts), **fields
    )


def folder_of(*names: str) -> dict[str, FolderModel]:
    return {name: folder_model(name) for name in names}


def folder_config(most: int = 4, autoload: bool = True, server: ServerConfig | None = None) -> FolderConfig:
    router = RouterConfig(Path("/models"), None, most, autoload)
    return FolderConfig(router, server or ServerConfig(port=0), LogConfig(), False, Layer(), (), ())


# --- an application that says what it was asked


def echoing(name: str) -> web.Application:
    """Answers with what it got; `/v1/completions` streams the numbers from 1, one for each `go` of the test."""
    app = web.Application(client_max_size=1 << 28)

    async def echo(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        body = await request.read()
        shown = {
            "by": name,
            "method": request.method,
            "path": request.path_qs,
            "body": body.decode(),
            "headers": {key.lower(): value for key, value in request.headers.items()},
        }
        return web.json_response(shown, status=int(request.headers.get("X-Status", 200)), headers={"X-Of": name})

    async def ps(request: web.Request) -> web.Response:
        return web.json_response({"models": [{"name": "own name", "context_length": 7, "expires_at": "later"}]})

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "own name", "meta": {"n_ctx": 7}}]})

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text='# HELP a_total A\n# TYPE a_total counter\na_total 1.0\na_total{b="c"} 2.0\n')

    app.router.add_get("/api/ps", ps)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/metrics", metrics)
    app.router.add_route("*", "/{path:.*}", echo)
    return app


@dataclass
class Routed:
    """A router that answers, and all that tests look at."""

    session: ClientSession
    pool: ModelPool
    launcher: FakeLauncher
    state: RouterState
    app: web.Application

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Status and what the JSON holds."""
        data = body if body is None or isinstance(body, (bytes, io.IOBase)) else json.dumps(body).encode()
        async with self.session.request(method, path, data=data, **more) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def status(self, name: str) -> str:
        """A model's, as GET /models has it."""
        _, found = await self.ask("GET", "/models")
        return str(next(one for one in found["data"] if one["id"] == name)["status"]["value"])

    async def until(self, name: str, status: str) -> None:
        """Wait until a model has this status."""
        while await self.status(name) != status:
            await asyncio.sleep(0)


@asynccontextmanager
async def routing(
    models: Mapping[str, FolderModel],
    config: FolderConfig | None = None,
    make: Callable[[str], web.Application] = echoing,
    launcher: FakeLauncher | None = None,
    clock: Callable[[], float] = monotonic,
) -> AsyncIterator[Routed]:
    config, launcher = config or folder_config(), launcher or FakeLauncher(make)
    events = Broadcast()
    pool = ModelPool(launcher, config.router.models_max, config.server.max_queue, tell=events.tell, clock=clock)
    pool.reload(models)

    async def reload() -> None:
        pool.reload({**models, "new": folder_model("new")})

    async with Connections() as connections:
        state = RouterState(pool, config, connections, events, reload)
        app = make_app(state)
        runner = make_runner(app)
        await runner.setup()
        try:
            await listen(runner, config.server)
            url = base_url(runner, config.server).removesuffix(config.server.api_prefix)
            async with ClientSession(url, cookies={}) as session:
                yield Routed(session, pool, launcher, state, app)
        finally:
            events.close()
            await pool.close()
            await runner.cleanup()


def routed(test: Callable[[Routed], Awaitable[T]], models: Mapping[str, FolderModel] | None = None, **more: Any) -> T:
    """What a test finds out about a router of these models."""

    async def run() -> T:
        async with asyncio.timeout(120), routing(models or folder_of("a", "b", "c"), **more) as one:
            return await test(one)

    return asyncio.run(run())
