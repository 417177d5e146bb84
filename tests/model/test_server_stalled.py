"""Clients that ask for a stream and read nothing of it: their connections are closed, and their places are free."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, web
from kit.fake_runtime import FakeRuntime, Running
from kit.models import TARGET, config
from kit.server_kit import CHAT, HELLO

from uad.base.config import ServerConfig
from uad.base.events import Delta
from uad.base.types import Origin, StopKind
from uad.http.requests import generation
from uad.http.requests.generation import Backend
from uad.http.server import make_app, make_runner
from uad.http.server.live import WATCH
from uad.http.server.state import STATE
from uad.runtime.runtime import Runtime

LARGE = "x" * (1 << 16)
LONG_INBOX = generation.Inbox


class Flood(FakeRuntime):
    """Says much with each event, and never ends."""

    def _round(self, one: Running) -> None:
        self._emit(one, Delta(one.id, (65,), (Origin.TARGET,), LARGE, (), (LARGE,)))


@pytest.fixture(autouse=True)
def _little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short inbox, and no time to make up for it."""
    monkeypatch.setattr(generation, "Inbox", functools.partial(generation.Inbox, capacity=4))
    monkeypatch.setattr("uad.http.server.completions.STALLED_SECONDS", 0.0)


@asynccontextmanager
async def listening(backend: Backend, own: ServerConfig) -> AsyncIterator[tuple[web.AppRunner, tuple[str, int]]]:
    """A server whose system keeps little of what it sends."""
    runner = make_runner(make_app(backend, own))
    await runner.setup()
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    door.bind(("127.0.0.1", 0))
    try:
        await web.SockSite(runner, door, backlog=512).start()
        yield runner, door.getsockname()
    finally:
        await runner.cleanup()


def stalled(address: tuple[str, int], data: bytes) -> socket.socket:
    """A client that has asked, and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(address)
    client.sendall(data)
    client.setblocking(False)
    return client


def asked(path: str, body: Any = None) -> bytes:
    data = json.dumps(body).encode() if body is not None else b""
    line = b"%s %s HTTP/1.1\r\n" % (b"POST" if data else b"GET", path.encode())
    return line + b"Host: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data


async def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.01)


async def answered(address: tuple[str, int]) -> int:
    """The status of a request by somebody who reads."""
    async with ClientSession(f"http://{address[0]}:{address[1]}") as session, session.get("/health") as answer:
        return answer.status


def test_three_hundred_stalled_readers_leave_all_places_to_others() -> None:
    n = 300
    fake = Flood(n_slots=8)

    async def run() -> None:
        async with listening(fake, ServerConfig(max_queue=n - 8)) as (runner, address):
            admission, server = runner.app[STATE].admission, runner.server
            assert server is not None
            assert admission.limit == n
            clients = [stalled(address, asked(CHAT, {"messages": HELLO, "stream": True})) for _ in range(n)]
            try:
                await until(lambda: len(fake.requests) == n, "not all of them came in")
                await until(lambda: not admission.n_inside, f"{admission.n_inside} places are taken")
                await until(lambda: not server.connections, "connections are open")
                assert len(fake.cancelled) == n
                assert await answered(address) == 200
            finally:
                for client in clients:
                    client.close()

    with fake:
        asyncio.run(run())


def test_views_that_are_not_read_leave_their_places_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uad.http.server.live.LEAST_SECONDS", 0.0)
    told = []
    monkeypatch.setattr("uad.http.server.live.live_json", lambda state, view: told.append(view) or {"text": LARGE})

    async def run() -> None:
        async with listening(FakeRuntime(), ServerConfig(timeout=0.1)) as (runner, address):
            watch = runner.app[WATCH]
            clients = [stalled(address, asked("/live?every=0.01")) for _ in range(16)]
            try:
                await until(lambda: len(told) >= 16, "they are told nothing")
                await until(lambda: not watch.n_watchers, "places are taken")
            finally:
                for client in clients:
                    client.close()

    asyncio.run(run())


def test_a_long_answer_that_is_not_read_is_not_kept_for_ever() -> None:
    """Sent as a whole it holds no place, but its bytes."""
    fake = FakeRuntime(n_ctx=10**7)

    async def run() -> None:
        async with listening(fake, ServerConfig(timeout=0.2)) as (runner, address):
            client = stalled(address, asked("/detokenize", {"tokens": [65] * 200_000}))
            server = runner.server
            assert server is not None
            try:
                await until(lambda: bool(server.connections), "nobody came in")
                await until(lambda: not server.connections, "the connection is open")
            finally:
                client.close()

    with fake:
        asyncio.run(run())


class Short(FakeRuntime):
    """Says a few large events, fewer than an inbox holds, and is done."""

    def _round(self, one: Running) -> None:
        if one.n_sent < 3:
            one.n_sent += 1
            return self._emit(one, Delta(one.id, (65,), (Origin.TARGET,), LARGE, (), (LARGE,)))
        return self._end(one, *self._finale(one, b"x", StopKind.EOS, ""))


def test_a_reader_that_stalls_before_the_end_of_a_short_answer_leaves_its_place_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing overflows: all of it has arrived, and waits to be sent."""
    monkeypatch.setattr(generation, "Inbox", LONG_INBOX)
    n = 8
    fake = Short(n_slots=n)

    async def run() -> None:
        async with listening(fake, ServerConfig(max_queue=0, timeout=0.2)) as (runner, address):
            admission = runner.app[STATE].admission
            clients = [stalled(address, asked(CHAT, {"messages": HELLO, "stream": True})) for _ in range(n)]
            try:
                await until(lambda: len(fake.requests) == n, "not all of them came in")
                await until(lambda: not admission.n_inside, "places are taken")
            finally:
                for client in clients:
                    client.close()

    with fake:
        asyncio.run(run())


@pytest.mark.model
def test_a_stalled_reader_of_a_real_loop_frees_slot_and_place() -> None:
    async def run(runtime: Runtime) -> None:
        async with listening(runtime, ServerConfig(timeout=1.0)) as (runner, address):
            admission = runner.app[STATE].admission
            body = {"prompt": "Once", "stream": True, "n_predict": 1500, "ignore_eos": True, "n_probs": 100}
            clients = [stalled(address, asked("/completion", body)) for _ in range(2)]
            try:
                await until(lambda: admission.n_inside == 2, "they did not come in")
                await until(lambda: not admission.n_inside, "places are taken")
                await until(lambda: not any(slot.is_processing for slot in runtime.snapshot().slots), "slots are taken")
                assert await answered(address) == 200
            finally:
                for client in clients:
                    client.close()

    with Runtime.open(config(TARGET, slots=2)) as runtime:
        asyncio.run(run(runtime))
