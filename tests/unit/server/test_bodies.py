"""Bodies are read within bounds: of one, of all together, of time, of work between two turns of the loop."""

import asyncio
import gzip
import tracemalloc
import zlib

import pytest
from aiohttp import StreamReader, web
from aiohttp.test_utils import make_mocked_request

from uad.base.errors import InvalidRequestError
from uad.http.apis.problems import BusyError
from uad.http.edge import bodies
from uad.http.edge.bodies import STEP_OUT_BYTES, Bodies

MIB = 1 << 20


class Connection:
    """One that may send as much as it likes."""

    connected = True

    def pause_reading(self):
        pass

    def resume_reading(self, resume_parser=True):
        pass


class Sender:
    """A request whose body arrives as the test says."""

    def __init__(self, most=32 * MIB, **headers):
        loop = asyncio.get_running_loop()
        self.content = StreamReader(Connection(), 1 << 16, loop=loop)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.request = make_mocked_request(
            "POST", "/v1/completions", headers=named, payload=self.content, client_max_size=most
        )

    def send(self, data, ends=False):
        self.content.feed_data(data)
        if ends:
            self.content.feed_eof()


def reading(all_bodies, sender, timeout=3600.0):
    return asyncio.ensure_future(all_bodies.read(sender.request, timeout))


async def turns(n=3):
    for _ in range(n):
        await asyncio.sleep(0)


def in_loop(test):
    asyncio.run(asyncio.wait_for(test(), 20))


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_others_have_their_turn_after_each_step_of_a_bomb(pack):
    async def test():
        all_bodies = Bodies()
        sender = Sender(Content_Encoding="gzip" if pack is gzip.compress else "deflate")
        read = reading(all_bodies, sender)
        sender.send(pack(b" " * (40 * MIB)), ends=True)
        n_turns, most = 0, 0
        before = all_bodies.n_bytes
        while not read.done():
            await asyncio.sleep(0)
            most, before, n_turns = max(most, all_bodies.n_bytes - before), all_bodies.n_bytes, n_turns + 1
        with pytest.raises(web.HTTPRequestEntityTooLarge):
            await read
        assert most <= STEP_OUT_BYTES
        assert n_turns >= 32 * MIB // STEP_OUT_BYTES
        assert all_bodies.n_bytes <= 32 * MIB
        all_bodies.release(sender.request)
        assert all_bodies.n_bytes == 0

    in_loop(test)


def test_the_memory_that_bodies_take_is_what_is_counted():
    async def test():
        limit, n = 4 * MIB, 40
        all_bodies = Bodies(limit)
        senders = [Sender() for _ in range(n)]
        reads = [reading(all_bodies, sender) for sender in senders]
        await turns()
        tracemalloc.start()
        for _ in range(16):
            for sender, read in zip(senders, reads, strict=True):
                if not read.done():  # a connection takes no more of a body that is not read
                    sender.send(bytes(1 << 16))
            await turns(6)
            assert all_bodies.n_bytes <= limit
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 2 * limit  # of 40 MiB that were sent
        for sender in senders:
            sender.content.feed_eof()
        results = await asyncio.gather(*reads, return_exceptions=True)
        whole = [result for result in results if isinstance(result, bytes)]
        assert {len(data) for data in whole} == {MIB}
        assert len(whole) == limit // MIB
        assert {type(result) for result in results} == {bytes, BusyError}

    in_loop(test)


def test_slow_senders_give_way_to_those_that_come_later():
    async def test():
        all_bodies = Bodies(8 * MIB)
        slow = [Sender() for _ in range(8)]
        stuck = [reading(all_bodies, sender) for sender in slow]
        for sender in slow:
            sender.send(bytes(MIB))
        await turns()
        assert all_bodies.n_bytes == 8 * MIB
        late = Sender()
        read = reading(all_bodies, late)
        late.send(bytes(2 * MIB), ends=True)
        assert len(await read) == 2 * MIB
        await turns()
        assert [one.done() for one in stuck] == [True] * 2 + [False] * 6
        for one in stuck[:2]:
            with pytest.raises(BusyError, match="too much memory"):
                await one
        for one in stuck[2:]:
            one.cancel()

    in_loop(test)


def test_bodies_that_are_read_make_others_wait_until_their_requests_run():
    async def test():
        all_bodies = Bodies(3 * MIB)
        whole = Sender()
        whole.send(bytes(2 * MIB), ends=True)
        assert len(await all_bodies.read(whole.request, 60)) == 2 * MIB
        for is_released in (False, True):
            sender = Sender()
            sender.send(bytes(2 * MIB), ends=True)
            if is_released:
                assert len(await all_bodies.read(sender.request, 60)) == 2 * MIB
            else:
                with pytest.raises(BusyError):
                    await all_bodies.read(sender.request, 60)
            all_bodies.release(sender.request)
            all_bodies.release(whole.request)
            all_bodies.release(whole.request)
        assert all_bodies.n_bytes == 0

    in_loop(test)


def test_one_that_is_given_up_while_more_of_it_comes_is_given_up():
    async def test():
        all_bodies = Bodies(2 * MIB)
        first, second = Sender(), Sender()
        first.send(bytes(MIB))
        reads = [reading(all_bodies, first), reading(all_bodies, second)]
        await turns()
        second.send(bytes(MIB + 1), ends=True)
        first.send(bytes(1000), ends=True)
        results = await asyncio.gather(*reads, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["BusyError", "bytes"]
        assert all_bodies.n_bytes <= 2 * MIB

    in_loop(test)


def test_the_deadline_moves_with_what_has_arrived(monkeypatch):
    async def test():
        loop, seen = asyncio.get_running_loop(), []
        real = asyncio.Timeout.reschedule
        monkeypatch.setattr(asyncio.Timeout, "reschedule", lambda self, when: (seen.append(when), real(self, when)))
        sender = Sender()
        read = reading(Bodies(), sender, timeout=100.0)
        await turns()
        began = loop.time()
        for _ in range(3):
            sender.send(bytes(10 * bodies.LEAST_BYTES_PER_S))
            await turns()
        sender.send(bytes(100 * bodies.LEAST_BYTES_PER_S))
        await turns()
        sender.send(bytes(1), ends=True)  # after which nothing is waited for
        await read
        assert [round(when - began) for when in seen] == [60, 70, 80, 90, 100]

    in_loop(test)


def test_a_body_that_does_not_come_is_not_waited_for_for_ever():
    async def test():
        sender = Sender()
        with pytest.raises(TimeoutError):
            await Bodies().read(sender.request, 0.0)

    in_loop(test)


@pytest.mark.parametrize(
    ("headers", "error", "words"),
    [
        ({"Content_Encoding": "br"}, web.HTTPUnsupportedMediaType, "'br' is not supported; send one of gzip, deflate"),
        ({"Content_Encoding": "gzip, gzip"}, web.HTTPUnsupportedMediaType, "'gzip, gzip'"),
        ({"Content_Length": str(32 * MIB + 1)}, web.HTTPRequestEntityTooLarge, "33554432 bytes"),
        ({"Transfer_Encoding": "gzip, chunked"}, Exception, "Transfer-Encoding 'gzip, chunked'"),
    ],
)
def test_what_its_headers_forbid_is_not_read(headers, error, words):
    async def test():
        sender = Sender(**headers)
        with pytest.raises(error) as caught:
            await Bodies().read(sender.request, 3600)
        assert words in (getattr(caught.value, "text", None) or str(caught.value))

    in_loop(test)


def test_half_of_a_compressed_body_is_told_so():
    async def test():
        sender = Sender(Content_Encoding="gzip")
        sender.send(gzip.compress(b"x" * 100)[:-5], ends=True)
        with pytest.raises(InvalidRequestError, match="in the middle of its gzip"):
            await Bodies().read(sender.request, 3600)

    in_loop(test)
