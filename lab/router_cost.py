"""The cost that a router adds to a request, in processor time and in time to the first byte: a stream of a small
application, asked directly and through a router, each in a process of its own. Needs no model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

from aiohttp import ClientSession, web

from uad.base.config import ServerConfig
from uad.base.config.flags import Layer
from uad.base.config.load import FolderConfig
from uad.base.config.router_config import RouterConfig
from uad.base.config.slices import LogConfig
from uad.http.server import make_runner
from uad.router.app import make_app
from uad.router.connections import Connections
from uad.router.events import Broadcast
from uad.router.folder import FolderModel
from uad.router.pool import ModelPool
from uad.router.state import RouterState

_PIECE = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
_BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "word " * 200}]}).encode()
_AT_ONCE = 16
_WARM_UP = 4 * _AT_ONCE
_MANY = 101
"""Pieces of a long stream."""


@dataclass(eq=False)
class _Beside:
    """A stand-in for the process of a model."""

    url: str
    key: str = "none"
    pid: int = 0
    reason: str = ""

    async def wait(self) -> int:
        await asyncio.Event().wait()
        return 0

    async def stop(self, seconds: float) -> None:
        """It ends with the program."""


class _Starter:
    def __init__(self, url: str) -> None:
        self._url = url

    async def start(
        self, model: FolderModel, has_work: Callable[[], bool], planned: Callable[[int], None] = lambda n: None
    ) -> _Beside:
        return _Beside(self._url)


def _child(said: Queue[float], n_pieces: int) -> None:
    """Answers each request with n_pieces pieces, and says at which port."""

    async def stream(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(n_pieces):
            await response.write(_PIECE)
            await asyncio.sleep(0.002)
        return response

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", stream)
        await _listen(web.AppRunner(app), said)
        await asyncio.Event().wait()

    asyncio.run(main())


def _router(said: Queue[float], asked: Queue[None], url: str) -> None:
    """A router with one model at this address; says at which port, and its processor time whenever it is asked."""

    async def main() -> None:
        config = FolderConfig(RouterConfig(Path()), ServerConfig(port=0), LogConfig(), False, Layer(), (), ())
        pool = ModelPool(_Starter(url), 1, 256)
        pool.reload({"m": FolderModel("m", None, ())})

        async def reload() -> None:
            """Nothing changes."""

        async with Connections() as connections:
            await _listen(make_runner(make_app(RouterState(pool, config, connections, Broadcast(), reload))), said)
            while True:
                await asyncio.to_thread(asked.get)
                said.put(time.process_time())

    asyncio.run(main())


async def _listen(runner: web.AppRunner, said: Queue[float]) -> None:
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    said.put(runner.addresses[0][1])


async def _stream(session: ClientSession, port: int) -> float:
    """Seconds to the first byte of an answer, which is read to its end."""
    began = time.perf_counter()
    async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", data=_BODY) as answer:
        await answer.content.readany()
        first = time.perf_counter() - began
        await answer.read()
        return first


async def _streams(port: int, n: int) -> None:
    """n streams, 16 at a time."""
    async with ClientSession() as session:
        for _ in range(n // _AT_ONCE):
            await asyncio.gather(*(_stream(session, port) for _ in range(_AT_ONCE)))


async def _firsts(ports: Sequence[int], n: int) -> list[list[float]]:
    """Times to the first byte at these ports, one after the other, in turns; sorted."""
    found: list[list[float]] = [[] for _ in ports]
    async with ClientSession() as session:
        for _ in range(n):
            for port, times in zip(ports, found, strict=True):
                times.append(await _stream(session, port))
    return [sorted(times) for times in found]


def measure(n_pieces: int, n: int) -> float:
    """Processor time of the router per stream, in milliseconds; of short ones the first bytes are printed."""
    context = multiprocessing.get_context("spawn")
    said, asked = context.Queue(), context.Queue()
    child = context.Process(target=_child, args=(said, n_pieces), daemon=True)
    child.start()
    child_port = int(said.get())
    router = context.Process(target=_router, args=(said, asked, f"http://127.0.0.1:{child_port}"), daemon=True)
    router.start()
    port = int(said.get())
    try:
        asyncio.run(_streams(port, _WARM_UP))
        asked.put(None)
        before = float(said.get())
        asyncio.run(_streams(port, n))
        asked.put(None)
        took = 1e3 * (float(said.get()) - before) / n
        if n_pieces == 1:
            direct, routed = asyncio.run(_firsts((child_port, port), n))
            for name, at in (("quickest", 0), ("tenth", n // 10), ("median", n // 2)):
                print(f"first byte, {name}: {1e3 * direct[at]:.2f} ms directly, {1e3 * routed[at]:.2f} ms routed")
        return took
    finally:
        router.terminate()
        child.terminate()


def main(argv: Sequence[str] | None = None) -> None:
    """Print what a stream and a piece of it take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=480, help="streams of one piece; of 101 there are a fifth as many")
    n = max(parser.parse_args(argv).n, 5 * _AT_ONCE)
    short, long = measure(1, n), measure(_MANY, n // 5)
    piece = 1e3 * (long - short) / (_MANY - 1)
    print(f"processor time of the router: {short:.2f} ms per stream, {piece:.0f} µs per piece")


if __name__ == "__main__":
    main()
