"""Two workers as processes of this machine: the same text, drafted or not; what happens when one is gone or is none."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kit.models import DRAFTS, TARGET
from kit.process import Server, uad
from kit.workers import WorkerProcess, free_port, needs_rpc, workers

from uad.base.errors import ConfigError
from uad.llama.backend import rpc

pytestmark = [needs_rpc, pytest.mark.model]
PAIR = ("--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]), "-c", "2048", "-t", "1", "-td", "1")
PROMPTS = ("Write a Python class named Cart.", "Repeat the following words, as is: café 東京 привет 😀 river")


@pytest.fixture(scope="module")
def pair() -> Iterator[list[WorkerProcess]]:
    with workers(2) as both:
        yield both


def listed(some: list[WorkerProcess]) -> str:
    return ",".join(one.address for one in some)


def post(url: str, asked: dict[str, object]) -> Any:
    data, kind = json.dumps(asked).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, kind), timeout=120) as answer:
        return json.load(answer)


def streamed(url: str, asked: dict[str, object]) -> http.client.HTTPResponse:
    data, kind = json.dumps(asked).encode(), {"Content-Type": "application/json"}
    answer = urllib.request.urlopen(urllib.request.Request(url, data, kind), timeout=120)
    assert isinstance(answer, http.client.HTTPResponse)
    return answer


def text_of(events: bytes) -> str:
    lines = [line.removeprefix(b"data: ") for line in events.splitlines() if line.startswith(b"data: {")]
    return "".join(one["text"] for line in lines for one in json.loads(line)["choices"])


def body(prompt: str, temperature: float, drafted: bool) -> dict[str, object]:
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 60,
        "temperature": temperature,
        "seed": 7,
        "speculative": {"enabled": drafted, "policy": "fixed"},
    }


@pytest.mark.parametrize("where", [(), ("--device-draft", "RPC1")], ids=["draft here", "draft there"])
def test_the_text_over_two_workers_is_the_same_drafted_or_not(
    where: tuple[str, ...], pair: list[WorkerProcess], tmp_path: Path
) -> None:
    words = (*PAIR, "--rpc", listed(pair), "--tensor-split", "1,1", "--exact", *where)
    with Server(tmp_path / "log", words) as server:
        n_accepted = 0
        for prompt in PROMPTS:
            for temperature in (0.0, 0.9):
                plain, drafted = (
                    post(server.url + "/v1/chat/completions", body(prompt, temperature, on)) for on in (False, True)
                )
                assert plain["choices"][0]["message"] == drafted["choices"][0]["message"]
                n_accepted += drafted["timings"]["draft_n_accepted"]
        assert n_accepted > 20
        log = server.log.read_text()
    assert f"devices of the target: RPC0 ({pair[0].address}," in log
    assert re.search(
        r"kernels: of the weights \d+ % on RPC0 and \d+ % on RPC1 in kernels that are not known here\n", log
    )
    assert "--exact: batches of " in log
    draft = f"RPC1 ({pair[1].address}," if where else "this machine's CPU"
    assert f"devices of the draft: {draft}" in log


def test_without_exact_the_line_says_that_texts_may_differ(pair: list[WorkerProcess], tmp_path: Path) -> None:
    with Server(tmp_path / "log", (*PAIR, "--rpc", pair[0].address)) as server:
        log = server.log.read_text()
    place = "of the weights 100 % on RPC0 in kernels that are not known here"
    assert f"kernels: {place}; so texts may differ with drafts (--exact)\n" in log


def test_a_model_that_is_split_says_what_runs_here_and_what_there(pair: list[WorkerProcess], tmp_path: Path) -> None:
    with Server(tmp_path / "log", (*PAIR, "--rpc", pair[0].address, "-ngl", "2")) as server:
        log = server.log.read_text()
    here = r"(kernels: \w+, \d+ % of the weights, attention, activations|kernels: llama\.cpp's own \(.*\))"
    assert re.search(here + r"; \d+ % on RPC0 in kernels that are not known here; .*--exact", log)


def test_a_worker_says_that_only_attention_runs_in_uads_kernels() -> None:
    with WorkerProcess() as worker:
        line = worker.log.read_text()
    assert "all weight" not in line
    if "kernels: " in line:
        assert "no weights, attention; the weights of clients run in llama.cpp's own" in line


def test_a_worker_that_is_killed_in_mid_answer_is_an_error_with_its_name_and_an_exit_code(tmp_path: Path) -> None:
    with workers(2) as both, Server(tmp_path / "log", (*PAIR, "--rpc", listed(both))) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=240)) as connection:
            asked = {"prompt": "Count", "max_tokens": 2000, "stream": True, "ignore_eos": True, "temperature": 1.0}
            connection.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert b"data:" in answer.readline()
            both[1].kill()
            rest = answer.read().decode()
        code = server.process.wait(120)
    *_, last = (line for line in rest.splitlines() if line.startswith("data:"))
    error = json.loads(last.removeprefix("data:"))["error"]
    assert error["code"] == 500
    assert f"the RPC worker {both[1].address} was lost" in error["message"]
    assert code == 1
    *_, line = server.log.read_text().splitlines()
    assert line.startswith(f"uad: error: llama.cpp gave up: the RPC worker {both[1].address} was lost")


def test_answers_wait_while_a_worker_stands_still_and_go_on_with_the_same_text(tmp_path: Path) -> None:
    asked = {"prompt": "Count", "max_tokens": 200, "stream": True, "ignore_eos": True, "temperature": 0.0}
    with (
        workers(2) as both,
        Server(tmp_path / "log", (*PAIR, "--rpc", listed(both), "--tensor-split", "1,1")) as server,
    ):
        url = server.url + "/v1/completions"
        with streamed(url, asked) as answer:
            expected = text_of(answer.read())
        with streamed(url, asked) as answer:
            first = answer.readline()
            both[1].process.send_signal(signal.SIGSTOP)
            with urllib.request.urlopen(server.url + "/health", timeout=240) as health:
                assert json.load(health) == {"status": "ok"}
            both[1].process.send_signal(signal.SIGCONT)
            assert text_of(first + answer.read()) == expected


# --- at start


def test_a_port_without_a_worker_ends_the_start_with_the_way_out() -> None:
    port = free_port()
    done = uad("serve", *PAIR, "--rpc", f"127.0.0.1:{port}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"uad: error: --rpc 127.0.0.1:{port}: no worker can be reached (Connection refused)")
    assert f"uad rpc-worker --host 127.0.0.1 --port {port}" in line


def test_something_else_that_listens_is_no_worker() -> None:
    with _Listener(answer=b"HTTP/1.1 400 Bad Request\r\n\r\n") as other, pytest.raises(ConfigError) as raised:
        rpc.connect([other.address])
    assert "no RPC worker of this llama.cpp" in str(raised.value)


def test_a_worker_of_another_version_is_named_with_its_version() -> None:
    hello = (28).to_bytes(8, "little") + bytes((6, 1, 2, 0)) + bytes(24)
    with _Listener(answer=hello) as other, pytest.raises(ConfigError) as raised:
        rpc.connect([other.address])
    assert "RPC protocol 6.1.2 is not this machine's" in str(raised.value)


def test_a_worker_that_serves_another_client_is_not_waited_for_for_ever(
    pair: list[WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "TRIAL_S", 3.0)
    host, port = rpc.split(pair[0].address)
    with socket.create_connection((host, port)), pytest.raises(ConfigError) as raised:
        rpc.connect([pair[0].address])
    assert "one client at a time" in str(raised.value)


def test_an_unknown_device_is_refused_with_those_that_there_are(pair: list[WorkerProcess]) -> None:
    done = uad("serve", *PAIR, "--rpc", pair[0].address, "--device", "RPC7")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--device: no device 'RPC7'; did you mean RPC0?" in line
    assert pair[0].address in line


class _Listener:
    """Listens, and sends the same bytes to whoever says something."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                if client.recv(1):
                    client.sendall(self._answer)
                    client.recv(1 << 16)

    def __enter__(self) -> _Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
