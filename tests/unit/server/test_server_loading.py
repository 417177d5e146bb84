"""What a server answers before its models are loaded, how it ends then, and that nobody is refused in between."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from kit.fake_runtime import FakeRuntime
from kit.process import free_port
from kit.visits import Visits, answers

from uad.base.config import ServerConfig
from uad.base.errors import ConfigError, ModelLoadError
from uad.http.edge.listener import Listener
from uad.http.server import serve

LOADS = """
import sys, time
from contextlib import ExitStack, contextmanager, suppress

sys.path += ["tests"]
import logging
from uad.tools.cli import run
from uad.base.config import ServerConfig
from uad.base.console import set_up_logging
from uad.base.errors import ModelLoadError
from uad.http.server import serve

@contextmanager
def loading():
    {body}
    yield

def main(words):
    set_up_logging(logging.INFO)
    serve(loading(), ServerConfig(port=0))
    return 0

sys.exit(run(main, []))
"""


def ask(url: str, data: bytes | None = None) -> tuple[int, dict[str, str], object]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=240) as answer:
            return answer.status, dict(answer.headers), json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), json.load(error)


def test_every_route_waits_for_the_models_and_then_answers():
    port, go, said = free_port(), threading.Event(), []
    url = f"http://127.0.0.1:{port}"

    @contextmanager
    def loading():
        go.wait(120)
        with FakeRuntime() as fake:
            yield fake

    def visit():
        deadline = time.monotonic() + 120
        while True:
            try:
                said.append(ask(f"{url}/health"))
                break
            except urllib.error.URLError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        said.append(ask(f"{url}/v1/chat/completions", b"{}"))
        said.append(ask(f"{url}/nowhere"))
        said.append(ask(f"{url}/v1/messages", b"{}"))
        go.set()
        assert answers(url)
        said.append(ask(f"{url}/health"))

    visits = Visits()
    visits.start(visit, url, go.set)
    serve(loading(), ServerConfig(port=port))
    visits.check()
    for status, headers, body in said[:3]:
        assert (status, headers["Retry-After"]) == (503, "5")
        assert body == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error", "param": None}}
    error = {"type": "overloaded_error", "message": "Loading model"}
    request_id = said[3][1]["request-id"]
    assert said[3][::2] == (503, {"type": "error", "error": error, "request_id": request_id})
    assert said[4][::2] == (200, {"status": "ok"})


def run_loading(body: str, ignored: Sequence[signal.Signals] = ()) -> subprocess.Popen[str]:
    """ignored: signals that the process was started with as ignored."""
    program = (
        f"import signal\nfor number in {[int(one) for one in ignored]}:\n    signal.signal(number, signal.SIG_IGN)\n"
    )
    program += LOADS.format(body=body)
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[3], stderr=subprocess.PIPE, text=True
    )


def test_what_does_not_load_ends_the_process_with_its_words():
    process = run_loading('raise ModelLoadError("target x.gguf: no such file")')
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2
    assert err.endswith("uad: error: target x.gguf: no such file\n")
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_load_at_once(number):
    process = run_loading("time.sleep(600)")
    try:
        line = process.stderr.readline()
        assert "answers 503" in line
        process.send_signal(number)
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0
    assert err == "uad: stopped while loading\n"


def test_ctrl_c_ends_a_server_that_a_script_started_in_its_background():
    """A shell has SIGINT ignored there. A terminal that `nohup` had ignored stays so."""
    process = run_loading("time.sleep(600)", ignored=(signal.SIGINT, signal.SIGHUP))
    try:
        assert "answers 503" in process.stderr.readline()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "uad: stopped while loading\n")


def test_a_port_that_is_taken_is_told_before_anything_is_loaded():
    @contextmanager
    def loading():
        raise AssertionError("loaded")
        yield

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="--port"):
            serve(loading(), ServerConfig(port=taken.getsockname()[1]))


def test_a_failed_load_leaves_the_port_free():
    @contextmanager
    def loading():
        raise ModelLoadError("no such file")
        yield

    port = free_port()
    for _ in range(2):
        with pytest.raises(ModelLoadError):
            serve(loading(), ServerConfig(port=port))


def test_a_client_that_comes_between_two_applications_waits():
    async def run():
        from aiohttp import web

        async def hello(request):
            return web.Response(text="hello")

        with await Listener.open(ServerConfig(port=0)) as listener:
            first = web.ServerRunner(web.Server(hello))
            await first.setup()
            await listener.answer_with(first)
            await first.cleanup()
            port = int(listener.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            second = web.ServerRunner(web.Server(hello))
            await second.setup()
            await listener.answer_with(second)
            line = await asyncio.wait_for(reader.readline(), 5)
            writer.close()
            await second.cleanup()
            return line

    assert asyncio.run(run()) == b"HTTP/1.1 200 OK\r\n"


# --- from loading to answering


class Loading:
    """A server that loads until `go`, with a visitor on a thread of its own."""

    def __init__(self) -> None:
        self.port, self.go = free_port(), threading.Event()
        self.address = ("127.0.0.1", self.port)

    @contextmanager
    def _opening(self):
        assert self.go.wait(120)
        with FakeRuntime() as fake:
            yield fake

    def visited_by(self, visit) -> None:
        def visit_once_it_listens() -> None:
            self.listens()
            visit(self)

        visits = Visits()
        visits.start(visit_once_it_listens, f"http://127.0.0.1:{self.port}", self.go.set)
        serve(self._opening(), ServerConfig(port=self.port))
        visits.check()

    def listens(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with suppress(ConnectionRefusedError), socket.create_connection(self.address):
                return

    def status(self) -> int:
        return ask(f"http://127.0.0.1:{self.port}/health")[0]

    def answers(self) -> None:
        self.go.set()
        end = time.monotonic() + 120
        while self.status() == 503:
            assert time.monotonic() < end


HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def answered(one: socket.socket) -> bytes:
    """The status of the next answer on a connection, b"" where it was closed."""
    data = b""
    while not data.endswith(b"}"):
        piece = one.recv(4096)
        if not piece:
            break
        data += piece
    return data[9:12]


def test_connections_that_were_made_while_it_loads_are_answered_when_it_has_loaded() -> None:
    """One that has sent nothing, one that was answered and is kept, one with half a request, one with half a body."""
    seen = []

    def visit(loading: Loading) -> None:
        with ExitStack() as stack:
            silent, kept, half, body = (stack.enter_context(socket.create_connection(loading.address)) for _ in "1234")
            kept.sendall(HEALTH)
            seen.append(answered(kept))
            half.sendall(HEALTH[:20])
            body.sendall(b"POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            loading.answers()
            half.sendall(HEALTH[20:])
            body.sendall(b'Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{"content":"x"}')
            for one in (silent, kept):
                one.sendall(HEALTH)
            seen.extend(map(answered, (silent, kept, half, body)))

    Loading().visited_by(visit)
    assert seen == [b"503", *[b"200"] * 4]


def test_nobody_who_asks_again_and_again_is_refused_or_cut_off_while_it_loads_and_then_answers() -> None:
    """Some on new connections, some on kept ones, as fast as they can; the second answer is never 503 after a 200."""
    seen: list[list[bytes]] = []

    def poll(loading: Loading, is_kept: bool) -> None:
        mine: list[bytes] = []
        seen.append(mine)
        with ExitStack() as stack:
            one = stack.enter_context(socket.create_connection(loading.address))
            for _ in range(20_000):
                one.sendall(HEALTH)
                mine.append(answered(one))
                if mine.count(b"200") == 3:
                    break
                if not is_kept:
                    one.close()
                    one = stack.enter_context(socket.create_connection(loading.address))

    def visit(loading: Loading) -> None:
        pollers = [threading.Thread(target=poll, args=(loading, i % 2 == 0)) for i in range(4)]
        for one in pollers:
            one.start()
        while not all(len(mine) > 3 for mine in seen) or len(seen) < 4:
            time.sleep(0.001)
        loading.answers()
        for one in pollers:
            one.join(120)

    for _ in range(3):
        seen.clear()
        Loading().visited_by(visit)
        for mine in seen:
            assert mine == [b"503"] * (len(mine) - 3) + [b"200"] * 3
