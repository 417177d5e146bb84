"""lab/overhead.py: the server's plain decoding against a bare loop, with a scripted server and a scripted loop."""

import json
import subprocess
import sys

import overhead
import pytest
from kit.bench_kit import PIECES, USAGE, server

from uad.bench.client import Client
from uad.bench.workloads import load
from uad.config import ModelConfig, load_config
from uad.errors import ConfigError, UnavailableError


def settings(folder, *flags):
    """The checked command line for an empty model file made in `folder`."""
    (folder / "big.gguf").touch()
    return overhead.parse(["--target", str(folder / "big.gguf"), *flags])


def test_overhead_interleaves_and_takes_medians(tmp_path):
    order = []
    bare_rates = iter([1.0, 80.0, 10.0, 90.0])

    def bare(ids, n):
        order.append(("bare", n))
        assert bytes(ids).decode() == prompt.text
        return next(bare_rates)

    prompt = load("code").prompts[0]
    with server([*PIECES, USAGE]) as (url, seen):
        now = iter(range(10_000))
        client = Client(url, clock=lambda: float(next(now)) / 100)
        result = overhead.compare(settings(tmp_path), client, bare, lambda: None)
    assert result.bare_tps == 80.0
    assert result.http_tps == pytest.approx(80.0)
    assert json.loads(result.json_line()) == {"overhead": {"http_tps": 80.0, "bare_tps": 80.0, "ratio": 1.0}}
    assert order == [("bare", 8), *[("bare", 160)] * 3]
    bodies = [body for path, body, _ in seen if path == "/v1/completions"]
    assert [body["max_tokens"] for body in bodies] == [8, 160, 160, 160]
    assert all(body["temperature"] == 0 and body["ignore_eos"] and body["prompt"] == prompt.text for body in bodies)


def test_overhead_command_line(tmp_path):
    """The server reads the very model configuration that the bench has."""
    given = settings(tmp_path, "-t", "2", "-c", "512", "-fa", "1", "-ctk", "q8_0", "--no-mmap", "-ngl", "0")
    arguments = overhead.command(given.target)
    assert arguments[:4] == [sys.executable, "-m", "uad", "serve"]
    config = load_config(arguments[4:], {})
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


def test_answer_too_short_for_overhead(tmp_path):
    with (
        server([PIECES[1], {"choices": [], "usage": {"completion_tokens": 1}}]) as (url, _),
        pytest.raises(ConfigError, match="--max-tokens"),
    ):
        overhead.compare(settings(tmp_path), Client(url), lambda *_: 1.0, lambda: None)


@pytest.mark.parametrize(
    ("flags", "words"), [((), "--target is missing"), (("-m", "/none.gguf"), "no such file: /none.gguf")]
)
def test_a_target_is_needed(flags, words):
    with pytest.raises(ConfigError, match=words):
        overhead.parse(flags)
