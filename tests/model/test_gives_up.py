"""A server whose llama.cpp gives up in mid-answer: on a thread of its own, as with a lost worker, or on the model's."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kit.models import TARGET
from kit.process import Server

pytestmark = pytest.mark.model
GIVES_UP = """
import sys, threading
from uad.tools.cli import main, serve
from uad.llama.backend import ggml
from uad.llama.context import Context

real, greeting = Context.decode, serve.greeting

def give_up():
    ggml.lib._lib.ggml_abort(b"/src/ggml-x.cpp", 12, b"out of wits")

def decode(self, rows, may_stop=False):
    if len(rows[0].ids) > 20:
        if ELSEWHERE:
            threading.Thread(target=give_up, daemon=True).start()
            threading.Event().wait()
        give_up()
    return real(self, rows, may_stop)

def listening(*args):
    Context.decode = decode
    return greeting(*args)

serve.greeting = listening
sys.exit(main(sys.argv[1:]))
"""
"""`uad` whose llama.cpp gives up over a decode of more than 20 rows, once it listens."""
SAID = "llama.cpp gave up: out of wits (ggml-x.cpp:12)"


def asked(url: str, prompt: str, **fields: object) -> urllib.request.Request:
    body = {"prompt": prompt, "max_tokens": 1500, "ignore_eos": True, **fields}
    return urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param(True, id="on another thread"),
        pytest.param(False, id="on the model's thread", marks=pytest.mark.slow),
    ],
)
def test_all_clients_hear_of_it_and_the_process_ends_with_a_code(elsewhere: bool, tmp_path: Path) -> None:
    args = ("--target", str(TARGET), "-c", "2048", "-np", "2", "-t", "1")
    program = ("-c", f"ELSEWHERE = {elsewhere}\n{GIVES_UP}")
    with Server(tmp_path / "log", args, program=program) as server:
        with urllib.request.urlopen(asked(server.url, "Count", stream=True), timeout=240) as stream:
            assert stream.readline().startswith(b"data:")
            with pytest.raises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(asked(server.url, "Write a Python class named Cart. " * 8), timeout=240)
            events = stream.read().decode()
        with raised.value as answer:
            status, body = answer.code, answer.read()
        code = server.process.wait(120)
        log = server.log.read_text()
    assert status == 500
    assert json.loads(body)["error"]["message"] == SAID
    *_, last = (line for line in events.splitlines() if line.startswith("data:"))
    assert json.loads(last.removeprefix("data:"))["error"]["message"] == SAID
    assert code == 1
    assert log.splitlines()[-1] == f"uad: error: {SAID}"
    assert "Traceback" not in log
