"""How a server stops: nothing new begins, what runs has time to end, and the rest is told in its own form."""

from __future__ import annotations

import gc
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kit.fake_runtime import FakeRuntime, Running
from kit.server_kit import CHAT, HELLO, events
from kit.visits import Visits

from uad.base.config import ServerConfig
from uad.http.server import app, lifecycle, serve

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
CONFIG = ServerConfig(port=0, alias="toy", shutdown_timeout=20.0)
SAID = "".join(chr(97 + i % 26) for i in range(40))
ENDLESS = b"x" * 50_000_000
BODIES = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 10**6},
    "/completion": {"prompt": "hello"},
}
WAIT_S = 120.0  # at most: on a machine that is busy, too
Answer = tuple[int, dict[str, str], bytes]


class Visitor:
    """Asks a server, from a thread of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self.kept = ExitStack()

    def open(self, path: str, **members: object) -> http.client.HTTPResponse:
        """A POST to a route of answers, or a GET: the head of the answer has come."""
        one = http.client.HTTPConnection(*self.address, timeout=WAIT_S)
        self.kept.callback(one.close)
        if path in BODIES:
            one.request("POST", path, json.dumps({**BODIES[path], **members}), {"Content-Type": "application/json"})
        else:
            one.request("GET", path)
        return one.getresponse()

    def connect(self) -> socket.socket:
        return self.kept.enter_context(socket.create_connection(self.address, WAIT_S))

    def ask(self, path: str, **members: object) -> Answer:
        with self.open(path, **members) as answer:
            return answer.status, dict(answer.headers), answer.read()


def stopped(
    visit: Callable[[Visitor], None], fake: FakeRuntime, config: ServerConfig = CONFIG
) -> list[signal.Handlers | object]:
    """Serve on this thread until the visitor has had the server stopped; what it raises is raised."""
    visits = Visits()

    def ready(_: object, url: str) -> None:
        visitor = Visitor(url)
        kept.push(visitor.kept)
        visits.start(lambda: visit(visitor), url, fake.go.set, stops=True)

    before = [signal.getsignal(number) for number in SIGNALS]
    with ExitStack() as kept:
        serve(fake, config, ready)
        visits.check()
    gc.collect()  # a connection that was left open is a warning, and those are errors here
    after = [signal.getsignal(number) for number in SIGNALS]
    assert after == before
    return after


class Paused(FakeRuntime):
    """It says something three times, then waits for `go`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.n_rounds = 0
        self.waits = threading.Event()

    def _round(self, one: Running) -> None:
        super()._round(one)
        self.n_rounds += 1
        if self.n_rounds == 3:
            self.go.clear()
            self.waits.set()

    def go_on(self) -> None:
        """Once it waits: on a busy machine it may not have said all of it yet, and would wait after that."""
        assert self.waits.wait(WAIT_S)
        self.go.set()


def refused(visitor: Visitor, path: str) -> tuple[int, bool]:
    """The status, and whether it says when to come again. Waits until the server has heard the signal."""
    for _ in range(1000):
        status, headers, _ = visitor.ask(path)
        if status == 503:
            break
    return status, "Retry-After" in headers


@pytest.mark.parametrize("number", SIGNALS)
def test_a_running_stream_ends_by_itself_and_nothing_new_begins(number: signal.Signals) -> None:
    fake = Paused(script=lambda _: SAID.encode())
    seen: list[object] = []

    def visit(visitor: Visitor) -> None:
        stream = visitor.open(CHAT, stream=True)
        seen.append(stream.read(50))
        signal.raise_signal(number)
        seen.extend((refused(visitor, "/health"), refused(visitor, CHAT), refused(visitor, "/v1/models")))
        n_before = len(fake.requests)
        fake.go_on()
        rest = events(seen.pop(0) + stream.read())  # type: ignore[operator]
        seen.append("".join(one["choices"][0]["delta"].get("content") or "" for one in rest[:-1] if one["choices"]))
        assert n_before == len(fake.requests) == 1

    stopped(visit, fake)
    assert seen == [(503, True)] * 3 + [SAID]


@pytest.mark.parametrize("path", BODIES)
def test_a_running_answer_that_is_sent_as_a_whole_is_sent(path: str) -> None:
    fake = Paused(script=lambda _: SAID.encode())
    answers: list[Answer] = []

    def visit(visitor: Visitor) -> None:
        asking = threading.Thread(target=lambda: answers.append(visitor.ask(path)))
        asking.start()
        assert fake.waits.wait(WAIT_S)
        signal.raise_signal(signal.SIGTERM)
        assert refused(visitor, "/health") == (503, True)
        fake.go_on()
        asking.join(WAIT_S)

    stopped(visit, fake)
    ((status, _, body),) = answers
    assert status == 200
    assert SAID in json.dumps(json.loads(body))


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("path", BODIES)
def test_a_stream_that_does_not_end_in_time_is_told_so_in_its_own_form(path: str, number: signal.Signals) -> None:
    told: list[bytes] = []

    def visit(visitor: Visitor) -> None:
        stream = visitor.open(path, stream=True)
        stream.read(50)
        signal.raise_signal(number)
        told.append(stream.read())

    fake = FakeRuntime(script=lambda _: ENDLESS, pause=0.002)
    stopped(visit, fake, replace(CONFIG, shutdown_timeout=0.1))
    last = told[0].decode().strip().split("\n\n")[-1]
    assert "the server is shutting down" in last
    kind = json.loads(last.partition("data: ")[2])
    if path == "/v1/messages":
        assert last.startswith("event: error\n")
        assert kind["type"] == "error"
    else:
        assert kind["error"]["code"] == 503
    assert fake.cancelled == [1]


def test_a_whole_answer_that_does_not_end_in_time_is_an_error() -> None:
    answers: list[Answer] = []
    fake = Paused(script=lambda _: ENDLESS)

    def visit(visitor: Visitor) -> None:
        asking = threading.Thread(target=lambda: answers.append(visitor.ask(CHAT)))
        asking.start()
        assert fake.waits.wait(WAIT_S)
        signal.raise_signal(signal.SIGTERM)
        asking.join(WAIT_S)
        fake.go_on()

    stopped(visit, fake, replace(CONFIG, shutdown_timeout=0.1))
    ((status, headers, body),) = answers
    assert status == 503
    assert "Retry-After" in headers
    assert json.loads(body)["error"]["message"] == "the server is shutting down"


@pytest.mark.parametrize("number", SIGNALS)
def test_idle_connections_and_live_views_hold_nothing_up(number: signal.Signals) -> None:
    """One that has just been accepted, one that waits for its next request, half a request, and a stream without an
    end: with twenty seconds for what runs, none of them is waited for.
    """
    ended: list[bytes] = []

    def visit(visitor: Visitor) -> None:
        silent, half, idle = (visitor.connect() for _ in range(3))
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" in idle.recv(1000)
        live = visitor.open("/live")
        live.read(10)
        visitor.connect()
        signal.raise_signal(number)
        ended.append(live.read())
        assert silent.recv(1) == half.recv(1) == idle.recv(1) == b""

    stopped(visit, FakeRuntime())
    assert ended


@pytest.mark.parametrize("number", SIGNALS)
def test_a_reader_that_sleeps_is_waited_for_no_longer_than_others(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (app, lifecycle):
        monkeypatch.setattr(module, "SHUTDOWN_SECONDS", 0.1)
    fake = FakeRuntime(script=lambda _: ENDLESS, step=20_000)

    def visit(visitor: Visitor) -> None:
        body = json.dumps({"messages": HELLO, "stream": True}).encode()
        sleeping = visitor.connect()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        sleeping.sendall(head.encode() + body)
        sleeping.recv(100)
        signal.raise_signal(number)

    stopped(visit, fake, replace(CONFIG, shutdown_timeout=0.1))
    assert fake.cancelled == [1]


def test_a_hangup_that_is_ignored_stays_so() -> None:
    """As `nohup` has it."""
    seen: list[int] = []

    def visit(visitor: Visitor) -> None:
        signal.raise_signal(signal.SIGHUP)
        seen.append(visitor.ask("/health")[0])
        signal.raise_signal(signal.SIGTERM)

    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stopped(visit, FakeRuntime())[SIGNALS.index(signal.SIGHUP)] is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)
    assert seen == [200]


CLOSED = """
import signal, sys, threading
from contextlib import contextmanager
from pathlib import Path

sys.path += ["tests"]
from kit.fake_runtime import FakeRuntime, Running
from uad.base.config import ServerConfig
from uad.http.server import serve

@contextmanager
def opened():
    with FakeRuntime() as fake:
        yield fake
    signal.raise_signal(signal.SIGHUP)
    Path(sys.argv[1]).write_text("whole")

def ready(runtime, url):
    def close():
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
    threading.Thread(target=close).start()

serve(opened(), ServerConfig(port=0), ready)
"""


def test_a_terminal_that_is_closed_and_hangs_up_more_than_once_cuts_nothing_short(tmp_path: Path) -> None:
    """Also not while files are written, when no loop runs any more."""
    command = [sys.executable, "-c", CLOSED, str(tmp_path / "file")]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], timeout=240, check=False)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "whole"


def test_a_fatal_error_is_not_waited_for() -> None:
    """Twenty seconds would be given to what runs, if it could run on."""
    from uad.base.errors import DecodeError

    fake = FakeRuntime()

    def visit(visitor: Visitor) -> None:
        fake.error = DecodeError("the device is gone")
        fake.told_when_stopped()

    with pytest.raises(DecodeError, match="the device is gone"):
        stopped(visit, fake)


@pytest.mark.parametrize("value", ["-1", "nan", "soon"])
def test_a_wrong_time_is_refused(value: str) -> None:
    from uad.base.config import load_config
    from uad.base.errors import ConfigError

    with pytest.raises(ConfigError, match="--shutdown-timeout"):
        load_config(["-m", "t", "--shutdown-timeout", value], {})


def test_the_time_can_be_set_by_flag_variable_and_file(tmp_path: Path) -> None:
    from uad.base.config import load_config

    file = tmp_path / "uad.yaml"
    file.write_text("shutdown-timeout: 5\n")
    assert load_config(["-m", "t"], {}).server.shutdown_timeout == 30.0
    assert load_config(["-m", "t", "--shutdown-timeout", "7"], {}).server.shutdown_timeout == 7.0
    assert load_config(["-m", "t"], {"LLAMA_ARG_SHUTDOWN_TIMEOUT": "6"}).server.shutdown_timeout == 6.0
    assert load_config(["-m", "t", "--config", str(file)], {}).server.shutdown_timeout == 5.0
