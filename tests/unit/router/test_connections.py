"""Connections of a router to processes of models: kept, and what comes back over them."""

import asyncio
from dataclasses import dataclass

import aiohttp
import pytest

from uad.router import connections
from uad.router.connections import Connections, PassedBody

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(eq=False)
class Process:
    url: str = ""
    key: str = "k"


def asked(answers, ask):
    """What `ask` finds out about a process that gives these answers, one for each head it gets; after None it closes.
    Beside it the heads, for each connection.
    """
    heads = []

    async def answer(reader, writer):
        mine = []
        heads.append(mine)
        try:
            while (text := next(left, None)) is not None:
                mine.append((await reader.readuntil(b"\r\n\r\n")).decode())
                writer.write(text)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        process = Process(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with server, asyncio.timeout(120), Connections() as made:
            return await ask(made, process)

    left = iter(answers)
    return asyncio.run(main()), heads


async def read(made, process, path="/a", **more):
    async with made.ask(process, path, **more) as answer:
        return answer.status, await answer.content.read()


async def twice(made, process):
    return [await read(made, process, path) for path in ("/a", "/b")]


def test_one_connection_takes_one_request_after_the_other():
    found, ((first, second),) = asked([OK, OK, OK], twice)
    assert found == [(200, b"ok")] * 2
    assert first.startswith("GET /a HTTP/1.1\r\n")
    assert "Authorization: Bearer k\r\n" in first
    assert second.startswith("GET /b HTTP/1.1\r\n")


def test_requests_at_once_have_a_connection_each():
    async def ask(made, process):
        async with made.ask(process, "/a") as answer:
            return [await read(made, process), (answer.status, await answer.content.read())]

    found, heads = asked([OK] * 4, ask)
    assert found == [(200, b"ok")] * 2
    assert [len(one) for one in heads] == [1, 1]


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
    ],
)
def test_a_connection_that_ends_or_has_more_to_come_is_not_kept(first):
    async def ask(made, process):
        async with made.ask(process, "/a") as answer:
            await answer.content.readexactly(2)
        return await read(made, process)

    found, heads = asked([first, OK, OK], ask)
    assert (found, [len(one) for one in heads]) == ((200, b"ok"), [1, 1])


def test_one_that_waited_too_long_is_not_used_again(monkeypatch):
    monkeypatch.setattr(connections, "_KEPT_S", -1.0)
    assert [len(one) for one in asked([OK] * 3, twice)[1]] == [1, 1]


def test_one_that_the_process_closed_is_not_used_again():
    async def ask(made, process):
        await read(made, process)
        (kept,) = made._idle[process]
        await kept[1].closed
        return await read(made, process)

    found, heads = asked([OK, None, OK], ask)
    assert (found, len(heads)) == ((200, b"ok"), 2)


def test_interim_answers_are_left_out():
    assert asked([b"HTTP/1.1 100 Continue\r\n\r\n" + OK], read)[0] == (200, b"ok")


def test_an_answer_to_a_body_that_is_not_read_arrives():
    """As of a process that refuses a long one by its length."""
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"

    async def ask(made, process):
        return await read(made, process, method="POST", body=PassedBody(b"x" * 3_000_000))

    assert asked([refusal], ask)[0] == (413, b"no")


@pytest.mark.parametrize(
    ("text", "error"),
    [(b"SSH-2.0\r\n\r\n", ConnectionError), (b"HTTP/1.1 200 OK\r\nContent-Len", aiohttp.ServerDisconnectedError)],
)
def test_what_is_no_answer_is_a_lost_connection(text, error):
    with pytest.raises(error):
        asked([text, None], read)


def test_headers_that_are_there_twice_come_back_twice():
    async def ask(made, process):
        async with made.ask(process, "/a") as answer:
            return answer.headers.getall("Link")

    assert asked([OK.replace(b"\r\n\r\n", b"\r\nLink: a\r\nLink: b\r\n\r\n")], ask)[0] == ["a", "b"]
