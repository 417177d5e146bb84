"""A client that ends its own side of the connection gets its answer; one that is gone frees its slot. Raw sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, CONFIG, HELLO, serving

from uad.http.edge import connection

SAID = "".join(chr(97 + i % 26) for i in range(60))
ENDLESS = b"x" * 50_000_000
BODIES = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 1000},
    "/completion": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
}
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(path: str, is_stream: bool = False, version: str = "1.1", **members: object) -> bytes:
    body = json.dumps({**BODIES[path], **({"stream": True} if is_stream else {}), **members}).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def connected(fake: FakeRuntime) -> AsyncIterator[Callable[[], Awaitable[Connected]]]:
    writers = []
    async with serving(fake, CONFIG) as session:

        async def connect() -> Connected:
            reader, writer = await asyncio.open_connection("127.0.0.1", session._base_url.port)
            writers.append(writer)
            return reader, writer

        try:
            yield connect
        finally:
            for writer in writers:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.005)


def answer_of(data: bytes) -> tuple[bytes, bytes]:
    """The head and the body of the final response."""
    while data.startswith(INTERIM):
        data = data[len(INTERIM) :]
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_client_that_ends_its_side_gets_all_of_its_answer(path: str, is_stream: bool) -> None:
    async def run() -> bytes:
        fake = FakeRuntime(script=lambda _: SAID.encode(), step=1)
        fake.go.clear()
        async with asyncio.timeout(120), connected(fake) as connect:
            reader, writer = await connect()
            writer.write(request(path, is_stream))
            writer.write_eof()
            data = await reader.readuntil(INTERIM)
            fake.go.set()
            data += await reader.read(-1)
            assert fake.cancelled == []
            return data

    head, body = answer_of(asyncio.run(run()))
    assert head.startswith(b"HTTP/1.1 200 OK")
    if is_stream:
        assert body.endswith(b"0\r\n\r\n")  # the last chunk
        assert body.count(b"data: ") > 1
    else:
        assert SAID in json.dumps(json.loads(body))


def test_an_answer_that_is_there_at_once_has_nothing_before_it() -> None:
    async def run() -> bytes:
        async with asyncio.timeout(120), connected(FakeRuntime()) as connect:
            reader, writer = await connect()
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await reader.readuntil(b'"ok"}')
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            writer.write_eof()
            return await reader.read(-1)

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200 OK")


def close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()  # nothing is left to send, and nothing unread: an orderly end


def reset(writer: asyncio.StreamWriter) -> None:
    own = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def half_then_close(writer: asyncio.StreamWriter) -> None:
    writer.write_eof()
    asyncio.get_running_loop().call_later(0.05, writer.transport.abort)


@pytest.fixture(autouse=True)
def probing_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_PROBE_S", 0.1)


LEAVES = [close, reset, half_then_close]


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_a_client_that_is_gone_before_its_answer_begins_frees_its_slot(
    path: str, is_stream: bool, leave: Callable[[asyncio.StreamWriter], None]
) -> None:
    async def run() -> None:
        fake = FakeRuntime(script=lambda _: ENDLESS)
        fake.go.clear()
        async with connected(fake) as connect:
            _, writer = await connect()
            writer.write(request(path, is_stream))
            await until(lambda: fake.requests)
            leave(writer)
            await until(lambda: fake.cancelled == [1])
            fake.go.set()

    asyncio.run(run())


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_a_client_that_is_gone_in_mid_stream_frees_its_slot(
    path: str, is_silent: bool, leave: Callable[[asyncio.StreamWriter], None]
) -> None:
    """Also where nothing is said at that time, so that nothing would be sent to it."""

    async def run() -> None:
        fake = FakeRuntime(script=lambda _: ENDLESS, pause=0.001)
        async with connected(fake) as connect:
            reader, writer = await connect()
            writer.write(request(path, is_stream=True))
            await reader.readuntil(b"xxx")
            if is_silent:
                fake.go.clear()
                await asyncio.sleep(0.05)
            leave(writer)
            await until(lambda: fake.cancelled == [1])
            fake.go.set()

    asyncio.run(run())


def test_a_client_that_goes_long_after_it_ended_its_side_is_noticed() -> None:
    """All that it was sent it has read, so that its system says nothing when it closes."""

    async def run() -> None:
        fake = FakeRuntime(script=lambda _: ENDLESS)
        fake.go.clear()
        async with connected(fake) as connect:
            reader, writer = await connect()
            writer.write(request(CHAT))
            writer.write_eof()
            await reader.readuntil(INTERIM)
            await reader.readuntil(INTERIM)
            assert fake.cancelled == []
            writer.transport.abort()
            await until(lambda: fake.cancelled == [1])
            fake.go.set()

    asyncio.run(run())


@pytest.mark.parametrize(
    "begins", [b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n", request(CHAT)[:-5], b""]
)
def test_a_request_that_is_not_whole_ends_with_its_client(begins: bytes) -> None:
    async def run() -> bytes:
        fake = FakeRuntime()
        async with asyncio.timeout(120), connected(fake) as connect:
            reader, writer = await connect()
            writer.write(begins)
            await asyncio.sleep(0.05)
            writer.write_eof()
            data = await reader.read(-1)
            assert not fake.requests
            return data

    assert b"200 OK" not in asyncio.run(run())


def test_who_speaks_http_1_0_has_no_interim_responses_and_ends_with_its_side() -> None:
    async def run() -> tuple[bytes, list[int]]:
        fake = FakeRuntime(script=lambda _: ENDLESS)
        fake.go.clear()
        async with connected(fake) as connect:
            reader, writer = await connect()
            writer.write(request(CHAT, version="1.0"))
            await until(lambda: fake.requests)
            writer.write_eof()
            await until(lambda: fake.cancelled)
            fake.go.set()
            return await reader.read(-1), fake.cancelled

    assert asyncio.run(run()) == (b"", [1])


def test_a_stream_that_has_begun_goes_on_for_http_1_0_too() -> None:
    async def run() -> bytes:
        fake = FakeRuntime(script=lambda _: SAID.encode(), pause=0.01, step=1)
        async with asyncio.timeout(120), connected(fake) as connect:
            reader, writer = await connect()
            writer.write(request(CHAT, is_stream=True, version="1.0"))
            await reader.readuntil(b'"content":"a"')
            writer.write_eof()
            return await reader.read(-1)

    assert b"data: [DONE]" in asyncio.run(run())
