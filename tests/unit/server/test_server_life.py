"""Disconnects, slow readers, full queues, shutdown, ports: the life of a server and of its streams."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from kit.fake_runtime import FakeRuntime
from kit.listening import base_url, listen
from kit.server_kit import CHAT, CONFIG, HELLO, get, serving
from kit.visits import Visits

from uad.base.config import ServerConfig
from uad.base.errors import ConfigError, DecodeError, SlowReaderError, UnavailableError
from uad.base.events import Delta, Done, Failed
from uad.base.stats import Timings, Usage
from uad.base.types import Finish, Origin, StopKind
from uad.http.requests.generation import Generation, Inbox, merge
from uad.http.server import make_app, make_runner, serve

ENDLESS = b"x" * 50_000_000


def endless(**options):
    return FakeRuntime(script=lambda request: ENDLESS, **options)


async def until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_leaves_frees_its_slot(is_stream):
    async def run():
        fake = endless(pause=0.001)
        async with serving(fake) as session:
            call = asyncio.create_task(session.post(CHAT, json={"messages": HELLO, "stream": is_stream}))
            await until(lambda: fake.requests and (not is_stream or call.done()))
            if is_stream:
                (await call).close()
            else:
                call.cancel()
            await until(lambda: fake.cancelled == [1])
            await until(lambda: not any(slot.is_processing for slot in fake.slots()))
            async with session.post(CHAT, json={"messages": HELLO, "max_tokens": 3}) as answer:
                return (await answer.json())["choices"][0]["message"]["content"]

    assert asyncio.run(run()) == "xxx"


def test_a_client_that_leaves_before_the_first_event():
    async def run():
        fake = endless()
        fake.go.clear()
        async with serving(fake) as session:
            call = asyncio.create_task(session.post(CHAT, json={"messages": HELLO, "stream": True, "n": 2}))
            await until(lambda: len(fake.requests) == 2)
            call.cancel()
            await until(lambda: sorted(fake.cancelled) == [1, 2])

    asyncio.run(run())


def test_finished_requests_are_not_cancelled():
    async def run():
        fake = FakeRuntime()
        async with serving(fake) as session, session.post(CHAT, json={"messages": HELLO, "stream": True}) as answer:
            await answer.read()
            await asyncio.sleep(0.02)
        return fake.cancelled

    assert asyncio.run(run()) == []


def test_a_slow_reader_is_cancelled_and_told():
    async def run():
        fake = endless(step=2000)
        async with serving(fake) as session:
            loop, body = asyncio.get_running_loop(), json.dumps({"messages": HELLO, "stream": True}).encode()
            with socket.socket() as slow:
                slow.connect((session._base_url.host, session._base_url.port))
                slow.setblocking(False)
                head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
                await loop.sock_sendall(slow, head.encode() + body)
                await until(lambda: fake.cancelled == [1])
                rest = b""
                while b'"code":408' not in rest and (chunk := await loop.sock_recv(slow, 1 << 20)):
                    rest = rest[-2000:] + chunk
            return rest

    rest = asyncio.run(run())
    assert b"too slowly" in rest
    assert b'"code":408' in rest


def test_a_full_queue_answers_503_and_recovers():
    async def run():
        fake = endless()
        fake.go.clear()
        async with serving(fake) as session:
            calls = [
                asyncio.create_task(session.post(CHAT, json={"messages": HELLO, "max_tokens": 3})) for _ in range(4)
            ]
            await until(lambda: len(fake.requests) == 4)
            async with session.post(CHAT, json={"messages": HELLO}) as answer:
                refused = answer.status, answer.headers["Retry-After"], (await answer.json())["error"]["type"]
            fake.go.set()
            statuses = [(await call).status for call in calls]
            async with session.post(CHAT, json={"messages": HELLO, "max_tokens": 3}) as answer:
                return refused, statuses, answer.status

    assert asyncio.run(run()) == ((503, "1", "unavailable_error"), [200] * 4, 200)


def test_shutdown_ends_streams_with_an_error():
    async def run():
        fake = endless(pause=0.001)
        runner = make_runner(make_app(fake, CONFIG))
        with fake:
            await runner.setup()
            await listen(runner, CONFIG)
            host, port = "127.0.0.1", runner.addresses[0][1]
            reader, writer = await asyncio.open_connection(host, port)
            body = json.dumps({"messages": HELLO, "stream": True}).encode()
            writer.write(
                b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body
            )
            await reader.readuntil(b"content")
            began = time.monotonic()
            stop = asyncio.create_task(runner.cleanup())
            rest = await reader.read(-1)
            await stop
            writer.close()
            return rest, time.monotonic() - began, fake.cancelled

    rest, seconds, cancelled = asyncio.run(run())
    assert b"the server is shutting down" in rest
    assert seconds < 20, "the answer may go on for 30"
    assert cancelled == [1]


class SlowToTokenize(FakeRuntime):
    began = ended = False

    def tokenize(self, *args, **options):
        self.began = True
        time.sleep(1)
        self.ended = True
        return []


def test_shutdown_waits_for_work_that_reads_the_model():
    fake = SlowToTokenize()

    async def run():
        async with serving(fake) as session:
            asking = asyncio.create_task(session.post("/tokenize", json={"content": "x"}))
            while not fake.began:
                await asyncio.sleep(0.01)
            asking.cancel()

    asyncio.run(run())
    assert fake.ended


KILLED = """
import json, signal, sys, threading, time, urllib.request

sys.path += ["tests", "tests/unit/server"]
from test_server_life import FakeRuntime, ServerConfig, serve

def tokenize(*args, **options):
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)
        time.sleep(1)
    time.sleep(60)

def ready(runtime, url):
    asked = urllib.request.Request(
        url + "/tokenize", json.dumps({"content": "x"}).encode(), {"Content-Type": "application/json"}
    )
    threading.Thread(target=urllib.request.urlopen, args=(asked,), daemon=True).start()

fake = FakeRuntime()
fake.tokenize = tokenize
serve(fake, ServerConfig(port=0), ready)
"""


def test_a_second_signal_ends_the_process_at_once():
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=Path(__file__).parents[3], timeout=240, check=False)
    assert done.returncode == -signal.SIGINT


def test_health_after_a_fatal_error():
    assert get("/health") == (200, {"status": "ok"})
    fake = FakeRuntime(error=DecodeError("the device is gone"))
    for path in ("/health", "/v1/health"):
        status, body = get(path, fake := FakeRuntime(error=DecodeError("the device is gone")))
        assert (status, body["error"]["type"], body["error"]["message"]) == (
            503,
            "unavailable_error",
            "the device is gone",
        )

    async def run():
        async with serving(fake) as session, session.post(CHAT, json={"messages": HELLO}) as answer:
            return answer.status, answer.headers.get("Retry-After"), answer.headers["x-should-retry"]

    fake = FakeRuntime(error=DecodeError("the device is gone"))
    assert asyncio.run(run()) == (503, None, "false")


def start_error(config):
    async def run():
        runner = make_runner(make_app(FakeRuntime(), config))
        await runner.setup()
        try:
            await listen(runner, config)
        finally:
            await runner.cleanup()

    with pytest.raises(ConfigError) as caught:
        asyncio.run(run())
    return str(caught.value)


def test_ports_and_hosts_that_cannot_be_used():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = start_error(ServerConfig(port=port))
    assert f"port {port}" in message
    assert "--port" in message
    assert "--port" in start_error(ServerConfig(port=70000))
    assert "--host" in start_error(ServerConfig(port=0, host="no.such.host.invalid"))
    assert "--host" in start_error(ServerConfig(port=0, host="192.0.2.1"))
    assert "--host" in start_error(ServerConfig(port=0, host="a..b"))


def test_serve_refuses_a_taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="--port"):
            serve(FakeRuntime(), ServerConfig(port=taken.getsockname()[1]))


def test_serve_stops_on_a_signal():
    said, visits = [], Visits()

    def ready(runtime, url):
        said.append(url)

        def visit():
            with urllib.request.urlopen(f"{url}/health", timeout=240) as answer:
                said.append(answer.status)
            signal.raise_signal(signal.SIGTERM)

        visits.start(visit, url, stops=True)

    before = signal.getsignal(signal.SIGTERM)
    serve(FakeRuntime(), ServerConfig(port=0), ready)
    visits.check()
    assert said[0].startswith("http://127.0.0.1:")
    assert said[1] == 200
    assert signal.getsignal(signal.SIGTERM) is before


def test_base_url_of_ipv6():
    async def run():
        config = ServerConfig(host="::1", port=0, api_prefix="/x")
        runner = make_runner(make_app(FakeRuntime(), config))
        await runner.setup()
        try:
            await listen(runner, config)
            return base_url(runner, config)
        finally:
            await runner.cleanup()

    try:
        url = asyncio.run(run())
    except ConfigError:
        pytest.skip("no IPv6 here")
    assert url.startswith("http://[::1]:")
    assert url.endswith("/x")


def delta(text, request=1):
    return Delta(request, (1,) * len(text), (Origin.TARGET,) * len(text), text)


def done(request=1):
    return Done(request, Finish.STOP, StopKind.EOS, Usage(1, 0, 1), Timings(1, 1, 1, 0, 1))


def test_merge_joins_what_belongs_together():
    events = [(0, delta("a")), (1, delta("x", 2)), (0, delta("bc")), (0, done()), (1, delta("y", 2))]
    assert merge(events) == [(0, delta("abc")), (1, delta("xy", 2)), (0, done())]
    assert merge(events[:1]) == events[:1]


def test_inbox_wakes_once_per_burst_and_closes_when_full():
    async def run():
        loop = asyncio.get_running_loop()
        overflows = []
        inbox = Inbox(loop, lambda: overflows.append(1), capacity=3)
        threading.Thread(target=lambda: [inbox.put(0, delta(c)) for c in "abcde"]).start()
        await until(lambda: overflows)
        taken = await inbox.take(1)
        inbox.put(0, done())
        return [event.text for _, event in taken], await inbox.take(0.01), overflows

    texts, later, overflows = asyncio.run(run())
    assert texts == ["a", "b", "c"]
    assert later == []
    assert set(overflows) == {1}


def test_inbox_does_not_wake_for_what_was_taken_already():
    """Else a stream in full flow would be interrupted by a ping that nobody asked for."""

    async def run():
        inbox = Inbox(asyncio.get_running_loop(), lambda: None)
        inbox.put(0, delta("a"))
        first = await inbox.take(None)  # at once: the wake-up is still to come
        asyncio.get_running_loop().call_later(0.02, inbox.put, 0, delta("b"))
        return [[event.text for _, event in taken] for taken in (first, await inbox.take(None))]

    assert asyncio.run(run()) == [["a"], ["b"]]


def test_a_failure_that_meets_the_shutdown_is_told_as_the_shutdown():
    class Engine:
        def submit(self, request, sink):
            self.sink = sink
            return 7

        def cancel(self, number, why=""):
            pass

    async def run():
        engine = Engine()
        with Generation(engine, [None]) as generation:
            waiting = asyncio.create_task(generation.take(None))
            await asyncio.sleep(0)
            engine.sink(Failed(7, DecodeError("broken")))
            generation.abort(UnavailableError("the server is shutting down"))
            await waiting

    with pytest.raises(UnavailableError, match="shutting down"):
        asyncio.run(run())


def test_inbox_loses_nothing_under_load():
    async def run():
        inbox = Inbox(asyncio.get_running_loop(), lambda: None, capacity=10**6)
        n = 20_000
        threading.Thread(target=lambda: [inbox.put(i, delta("")) for i in range(n)]).start()
        seen = []
        while len(seen) < n:
            seen += [index for index, _ in await inbox.take(2)]
        return seen == list(range(n))

    assert asyncio.run(run())


class StoppedClock:
    """A loop whose time stands still; `ticks` are run by hand."""

    def __init__(self, loop):
        self.loop, self.ticks, self.n_wakes = loop, [], 0

    def time(self):
        return 100.001

    def call_at(self, when, tick):
        assert 100.001 < when <= 100.01
        self.ticks.append(tick)

    def call_soon_threadsafe(self, wake):
        self.n_wakes += 1
        self.loop.call_soon(wake)


def test_fast_events_are_read_in_ticks_and_the_last_one_at_once():
    async def run():
        loop = StoppedClock(asyncio.get_running_loop())
        inbox = Inbox(loop, lambda: None)
        taken = []
        for _ in range(2):  # the first two wake the loop, and show how fast they come
            inbox.put(0, delta("a"))
            await asyncio.sleep(0)
            taken += await inbox.take(None)
        assert (loop.n_wakes, len(loop.ticks)) == (2, 1)
        for _ in range(5):
            inbox.put(0, delta("b"))
        waiting = asyncio.create_task(inbox.take(None))
        await asyncio.sleep(0)
        assert not waiting.done()
        loop.ticks.pop()()
        taken += await waiting
        inbox.put(0, delta("c"))
        inbox.put(0, done())
        taken += await inbox.take(None)
        return loop.n_wakes, "".join(event.text for _, event in taken)

    assert asyncio.run(run()) == (3, "aabbbbbc")


def test_an_answer_that_is_sent_whole_wakes_the_loop_at_its_end_only():
    async def run():
        loop = asyncio.get_running_loop()
        inbox = Inbox(loop, lambda: None, capacity=1, is_whole=True)
        waiting = asyncio.create_task(inbox.take(None))
        for _ in range(20):
            inbox.put(0, delta("a"))
            await asyncio.sleep(0)
        assert not waiting.done()
        inbox.put(0, done())
        return len(await waiting)

    assert asyncio.run(run()) == 21


def test_inbox_of_a_closed_loop_drops_quietly():
    loop = asyncio.new_event_loop()
    inbox = Inbox(loop, lambda: None)
    loop.close()
    inbox.put(0, delta("a"))
    assert SlowReaderError.code == "slow_reader"
