"""The HTTP side of the bench, against a scripted server on loopback: peers, and the overhead of our own."""

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_bench import FakeEngine, fixed_speed, job, options, run

from uad.bench import overhead
from uad.bench.measure import Job
from uad.bench.peer import Client, PeerArm, Stream
from uad.bench.workloads import Prompt, load
from uad.config import ModelConfig, load_config
from uad.errors import ConfigError, UnavailableError

PIECES = [{"choices": [{"delta": {"role": "assistant", "content": None}}]}, *({"choices": [{"delta": {"content": c}}]} for c in "abcde.")]
USAGE = {"choices": [], "usage": {"completion_tokens": 5}}
TIMINGS = {
    "choices": [{"delta": {}}],
    "timings": {"predicted_n": 5, "predicted_ms": 40.0, "predicted_per_second": 125.0, "draft_n": 8, "draft_n_accepted": 2},
}


@contextmanager
def server(chunks, status=200):
    """A server that streams `chunks` for every completion, and remembers the requests."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def _send(self, data, kind="application/json"):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            seen.append((self.path, None, self.headers["Authorization"]))
            self._send(json.dumps({"data": [{"id": "their-model"}]}).encode())

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body, self.headers["Authorization"]))
            if self.path == "/tokenize":
                self._send(json.dumps({"tokens": list(body["content"].encode())}).encode())
                return
            lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
            self._send("".join(f": ping\n\ndata: {line}\n\n" for line in lines).encode(), "text/event-stream")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_address[1]}", seen
        finally:
            httpd.shutdown()
            thread.join()


def test_stream_counts_from_the_first_piece_to_the_last():
    stream = Stream()
    for now, chunk in enumerate([*PIECES, USAGE]):
        stream.add(chunk, float(now))
    assert "".join(stream.text) == "abcde."
    assert (stream.first, stream.last) == (1.0, 6.0)
    assert stream.client_tps == 4 / 5
    assert stream.server_tps is None


def test_server_timings_win_and_count_like_ours():
    stream = Stream()
    for now, chunk in enumerate([*PIECES, TIMINGS]):
        stream.add(chunk, float(now))
    assert stream.server_tps == 100.0
    assert stream.n_predicted == 5


def test_rate_alone_is_taken_as_it_is():
    stream = Stream()
    stream.add({"choices": [{"text": "a"}], "timings": {"predicted_per_second": 7.5}}, 1.0)
    assert stream.server_tps == 7.5


def test_a_server_that_tells_no_count_is_refused():
    stream = Stream()
    for chunk in PIECES:
        stream.add(chunk, 1.0)
    with pytest.raises(UnavailableError, match="completion_tokens"):
        _ = stream.client_tps


@pytest.mark.parametrize(
    "chunk", [{}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}, {"usage": None, "timings": None}]
)
def test_odd_chunks_are_passed_over(chunk):
    stream = Stream()
    stream.add(chunk, 1.0)
    assert stream.first is None
    assert stream.text == []


def test_peer_sends_the_prompt_by_its_kind():
    with server([*PIECES, TIMINGS]) as (url, seen):
        client = Client(url, "secret")
        arm = PeerArm(client, client.first_model())
        arm.run([Job(Prompt("a", "hello", True), (1,), 0.5, 7, 20)])
        arm.run([Job(Prompt("b", "def f", False), (1,), 0.5, 7, 20)])
    assert seen[0] == ("/v1/models", None, "Bearer secret")
    (chat, chat_body, key), (raw, raw_body, _) = seen[1:]
    assert (chat, raw, key) == ("/v1/chat/completions", "/v1/completions", "Bearer secret")
    assert chat_body.pop("messages") == [{"role": "user", "content": "hello"}]
    assert raw_body.pop("prompt") == "def f"
    assert chat_body == raw_body
    assert chat_body == {
        "model": "their-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 20,
    }


def test_several_jobs_share_the_wall_time():
    times = iter([1.0, 3.0])
    with server([*PIECES, USAGE]) as (url, _):
        result = PeerArm(Client(url), "m", clock=lambda: next(times)).run([job("a"), job("b"), job("c")])
    assert result.tps == 15 / 2
    assert [answer.text for answer in result.answers] == ["abcde."] * 3


def test_peer_rows(tmp_path):
    with server([*PIECES, TIMINGS]) as (url, _):
        line, _ = run(options(tmp_path, "--vs", url, "--prompts", "2", "--temperature", "0,1"), FakeEngine(fixed_speed))
    rows = [(cell["policy"], cell["draft"], cell["temperature"], cell["ratio"], cell["same_text"]) for cell in line["cells"]]
    assert rows == [("auto", "small", 0, 2, True), ("peer", None, 0, 1, True), ("auto", "small", 1, 2, True), ("peer", None, 1, 1, None)]
    peer = line["cells"][1]
    assert (peer["target"], peer["tps"], peer["accept_rate"], peer["tokens_per_decode"]) == ("big", 100, 0.25, None)
    assert (line["worst"], line["geomean"]) == (2, 2)


def test_peer_with_another_text_is_not_the_same(tmp_path):
    with server([{"choices": [{"delta": {"content": "xyz"}}]}, TIMINGS]) as (url, _):
        line, text = run(options(tmp_path, "--peer", url, "--prompts", "1", draft=False), FakeEngine(fixed_speed))
    assert [(cell["policy"], cell["same_text"]) for cell in line["cells"]] == [("peer", False)]
    assert (line["worst"], line["geomean"]) == (None, None)
    assert "--exact" not in text


def test_peer_errors_name_the_address():
    with server([], status=401) as (url, _), pytest.raises(UnavailableError, match=r"/v1/models answered 401"):
        Client(url).first_model()
    with server([{"error": {"message": "out of luck"}}]) as (url, _), pytest.raises(UnavailableError, match="out of luck"):
        Client(url).stream("/v1/completions", {})
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1"):
        Client(f"http://127.0.0.1:{overhead.free_port()}").first_model()


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
        result = overhead.compare(options(tmp_path, "--overhead", draft=False), prompt, client, bare, lambda: None)
    assert result.bare_tps == 80.0
    assert result.http_tps == pytest.approx(80.0)
    assert json.loads(result.json_line()) == {"overhead": {"http_tps": 80.0, "bare_tps": 80.0, "ratio": 1.0}}
    assert order == [("bare", 8), *[("bare", 160)] * 3]
    bodies = [body for path, body, _ in seen if path == "/v1/completions"]
    assert [body["max_tokens"] for body in bodies] == [8, 160, 160, 160]
    assert all(body["temperature"] == 0 and body["ignore_eos"] and body["prompt"] == prompt.text for body in bodies)


def test_overhead_command_line(tmp_path):
    """The server reads the very model configuration that the bench has."""
    settings = options(tmp_path, "--overhead", "-t", "2", "-c", "512", "-fa", "1", "-ctk", "q8_0", "--no-mmap", "-ngl", "0", draft=False)
    arguments = overhead.command(settings, 1234)
    assert arguments[:4] == [sys.executable, "-m", "uad", "serve"]
    config = load_config(arguments[4:], {})
    assert config.target == replace(settings.target, path=tmp_path / "big.gguf", n_ctx=512)
    assert config.target == ModelConfig(
        tmp_path / "big.gguf", n_ctx=512, n_threads=2, flash_attn="on", type_k="q8_0", mmap=False, n_gpu_layers=0
    )
    assert (config.server.port, config.n_parallel, config.draft) == (1234, 1, None)


SERVER = """
import sys, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'{"status": "ok"}')
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def test_serving_starts_and_stops_a_process(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: started.append(popen(*args, **kwargs)) or started[0])
    with overhead.serving([sys.executable, "-c", SERVER, "--port", str(overhead.free_port())]) as client:
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
        overhead.serving([sys.executable, "-c", show, "--port", str(overhead.free_port())]),
    ):
        pass


def test_a_server_that_dies_shows_its_last_words():
    with (
        pytest.raises(UnavailableError, match=r"code 3 .*\n.*no such model"),
        overhead.serving([sys.executable, "-c", "import sys; print('no such model'); sys.exit(3)", "--port", str(overhead.free_port())]),
    ):
        pass


def test_answer_too_short_for_overhead(tmp_path):
    with (
        server([PIECES[1], {"choices": [], "usage": {"completion_tokens": 1}}]) as (url, _),
        pytest.raises(ConfigError, match="--max-tokens"),
    ):
        overhead.compare(options(tmp_path, "--overhead", draft=False), load("code").prompts[0], Client(url), lambda *_: 1.0, lambda: None)
