"""How long a client may leave unread what it is sent."""

import asyncio

import pytest
from aiohttp import web

from uad.http.server.connection import Connection


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
            connection.hurry(0.0)
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
