"""lab/overhead.py: the server's plain decoding against a bare loop, with a scripted server and a scripted loop."""

import json
import subprocess
import sys

import overhead
import pytest
from kit.bench_kit import server

from uad.base.config import ModelConfig, load_config
from uad.base.errors import ConfigError, UnavailableError
from uad.tools.bench.client import Client
from uad.tools.bench.workloads import load


def settings(folder, *flags):
    """The checked command line for an empty model file made in `folder`."""
    (folder / "big.gguf").touch()
    return overhead.parse(["--target", str(folder / "big.gguf"), *flags])


def test_overhead_takes_turns_and_medians(tmp_path):
    given = settings(tmp_path, "--repeats", "3", "-n", "20")
    order, times = [], {"bare": iter([9.0, 80.0, 10.0, 90.0]), "uad": iter([9.0, 100.0, 120.0, 95.0])}

    def side(name):
        def run(cell, n):
            order.append((name, n))
            return next(times[name])

        return run

    cell = overhead.Cell(1, 0.0, False)
    us = overhead.compare(given, cell, {"bare": side("bare"), "uad": side("uad")}, lambda: None)
    assert us == {"bare": 80.0, "uad": 100.0}
    assert json.loads(overhead.json_line({cell: us})) == {
        "overhead": {"1 at once, greedy, whole": {"bare": 80.0, "uad": 100.0}}
    }
    assert sorted(order) == [("bare", 20)] * 4 + [("uad", 20)] * 4
    assert {name for name, _ in order[2:4]} == {"bare", "uad"}


def test_the_bare_loop_writes_one_text_greedily_and_is_left_out_elsewhere(tmp_path):
    given = settings(tmp_path, "--slots", "1", "4", "--repeats", "1")
    sides = {"bare": lambda cell, n: 1.0, "uad": lambda cell, n: 2.0}
    has_bare = [cell for cell in given.cells if "bare" in overhead.compare(given, cell, sides, lambda: None)]
    assert len(given.cells) == 8
    assert has_bare == [overhead.Cell(1, 0.0, False), overhead.Cell(1, 0.0, True)]


@pytest.mark.parametrize("streamed", [False, True])
def test_requests_go_over_http_at_once_with_seeds_and_slots_of_their_own(streamed):
    end = {"content": "", "stop": True, "tokens_predicted": 20}
    with server([end]) as (url, seen):
        run = overhead.over_http(Client(url), load("code").prompts[0])
        assert run(overhead.Cell(3, 0.8, streamed), 20) > 0
    bodies = [body for path, body, _ in seen if path == "/completion"]
    assert sorted(body["seed"] for body in bodies) == [0, 1, 2] == sorted(body["id_slot"] for body in bodies)
    assert all(body["temperature"] == 0.8 and body["stream"] is streamed and body["ignore_eos"] for body in bodies)


def test_overhead_command_line(tmp_path):
    """The server reads the very model configuration that the bench has."""
    given = settings(tmp_path, "-t", "2", "-c", "512", "-fa", "1", "-ctk", "q8_0", "--no-mmap", "-ngl", "0")
    arguments = overhead.command(given.target, 1)
    assert arguments[:5] == [sys.executable, "-P", "-m", "uad", "serve"]
    config = load_config(arguments[5:], {})
    assert config.target == given.target
    assert config.target == ModelConfig(
        tmp_path / "big.gguf", n_ctx=512, n_threads=2, flash_attn="on", type_k="q8_0", mmap=False, n_gpu_layers=0
    )
    assert (config.server.port, config.n_parallel, config.draft) == (0, 1, None)


SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"status": "ok"}')
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("listening on http://127.0.0.1:%d" % server.server_port, flush=True)
server.serve_forever()
"""


def test_serving_starts_and_stops_a_process(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **kwargs: started.append(popen(*args, **kwargs)) or started[0]
    )
    with overhead.serving([sys.executable, "-c", SERVER]) as client:
        assert client.get("/health") == {"status": "ok"}
        assert started[0].poll() is None
    assert started[0].returncode is not None
    with pytest.raises(UnavailableError):
        client.get("/health")


def test_the_measured_server_is_told_everything_by_its_command_line(monkeypatch):
    monkeypatch.setenv("LLAMA_ARG_MODEL_DRAFT", "draft.gguf")
    monkeypatch.setenv("LLAMA_API_KEY", "secret")
    show = "import os, sys; print([name for name in os.environ if name.startswith('LLAMA')]); sys.exit(3)"
    with (
        pytest.raises(UnavailableError, match=r"\n\[\]$"),
        overhead.serving([sys.executable, "-c", show]),
    ):
        pass


def test_a_server_that_dies_shows_its_last_words():
    with (
        pytest.raises(UnavailableError, match=r"code 3 .*\n.*no such model"),
        overhead.serving([sys.executable, "-c", "import sys; print('no such model'); sys.exit(3)"]),
    ):
        pass


def test_an_answer_of_other_length_is_not_counted():
    with (
        server([{"content": "", "stop": True, "tokens_predicted": 1}]) as (url, _),
        pytest.raises(UnavailableError, match="did not write 20 tokens"),
    ):
        overhead.over_http(Client(url), load("code").prompts[0])(overhead.Cell(1, 0.0, True), 20)


@pytest.mark.parametrize(
    ("flags", "words"), [((), "--target is missing"), (("-m", "/none.gguf"), "no such file: /none.gguf")]
)
def test_a_target_is_needed(flags, words):
    with pytest.raises(ConfigError, match=words):
        overhead.parse(flags)
