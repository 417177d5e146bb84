"""How long a client may leave unread what it is sent, and how long the head of its request may take."""

import asyncio

import pytest
from aiohttp import web

from uad.http.edge import connection as connections
from uad.http.edge.connection import Connection


class Transport(asyncio.Transport):
    """Holds what is unread; each look finds the next of these numbers of bytes."""

    def __init__(self, sizes):
        super().__init__()
        self._sizes = iter(sizes)
        self.is_aborted = False

    def get_write_buffer_size(self):
        return next(self._sizes)

    def abort(self):
        self.is_aborted = True

    def close(self):
        pass


async def handler(request):
    return web.Response()


def looks(sizes, hurry=False, resumes=False):
    """Whether the connection is closed, and how often it was looked at, with no patience at all."""

    async def run():
        connection = Connection(web.Server(handler), 0.0)
        transport = Transport(sizes)
        connection.connection_made(transport)
        connection.pause_writing()
        if hurry:
            connection.limit_write_time(0.0)
        if resumes:
            connection.resume_writing()
        for _ in range(100):
            await asyncio.sleep(0)
            if transport.is_aborted:
                break
        left = len(list(transport._sizes))
        connection.connection_lost(None)
        return transport.is_aborted, len(sizes) - left

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([900, 900, 0, 0], (True, 2)),
        ([900, 800, 800, 700, 700, 700], (True, 6)),  # a look, and the size that the next one is compared with
    ],
)
def test_a_client_that_reads_a_little_is_not_closed_before_it_stops(sizes, expected):
    assert looks(sizes) == expected


def test_one_in_a_hurry_is_closed_though_it_reads_a_little():
    assert looks([900, 900, 800, 0], hurry=True) == (True, 3)


def test_one_that_has_read_enough_is_not_looked_at():
    assert looks([900, 0, 0], resumes=True) == (False, 1)


class Client(asyncio.Transport):
    """Keeps what it is sent, until it is closed."""

    def __init__(self):
        super().__init__()
        self.data = b""
        self.is_closed = False

    def write(self, data):
        self.data += data

    def writelines(self, some):
        self.data += b"".join(some)

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    abort = close


def sent(monkeypatch, *parts):
    """What a client gets that sends these parts (None: it waits for an answer) and then nothing; whether it is closed.
    Heads have no time at all.
    """
    monkeypatch.setattr(connections, "HEAD_S", 0.0)

    async def run():
        connection = Connection(web.Server(handler), 60.0)
        client = Client()
        connection.connection_made(client)
        for part in parts:
            if part is None:
                while not client.data:
                    await asyncio.sleep(0)
            else:
                connection.data_received(part)
        for _ in range(100):
            await asyncio.sleep(0)
        is_closed = client.is_closed
        connection.connection_lost(None)
        return client.data, is_closed

    return asyncio.run(run())


def test_a_head_that_does_not_end_is_answered_and_closed(monkeypatch):
    data, is_closed = sent(monkeypatch, b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n")
    assert b" 408 " in data.splitlines()[0]
    assert b"its head did not arrive" in data
    assert is_closed


def test_a_connection_that_says_nothing_is_closed(monkeypatch):
    assert sent(monkeypatch) == (b"", True)


def test_a_whole_request_is_answered_and_may_be_followed_by_silence(monkeypatch):
    data, is_closed = sent(monkeypatch, b"GET / HTTP/1.1\r\n", b"Host: a\r\n\r\n")
    assert b" 200 " in data.splitlines()[0]
    assert not is_closed


def test_a_head_after_an_answer_may_not_take_for_ever_either(monkeypatch):
    data, is_closed = sent(monkeypatch, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", None, b"GET / HT")
    first, _, second = data.partition(b" 200 ")
    assert first == b"HTTP/1.1"
    assert b" 408 " in second
    assert is_closed
