"""The image's health check: it asks the server that runs, where that listens, and nobody in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer

import pytest

from uad.base.config import ServerConfig
from uad.tools import health


class Health(BaseHTTPRequestHandler):
    """Well below /health of its prefix."""

    prefix = ""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == f"{self.prefix}/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch) -> Iterator[int]:
    """Of a server that is well. Proxies that nobody runs are set, as in a container behind one."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with TCPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def runs(proc: Path, pid: int, *words: str, **environ: str) -> Path:
    """A process in a made-up folder of processes."""
    folder = proc / str(pid)
    (folder / "cwd").mkdir(parents=True)
    (folder / "cmdline").write_bytes("\0".join((*words, "")).encode())
    (folder / "environ").write_bytes(
        "\0".join(f"{name}={value}" for name, value in (*environ.items(), ("A", ""))).encode()
    )
    return proc


UAD = ("/opt/uad/.venv/bin/python", "/opt/uad/.venv/bin/uad", "serve", "-m", "x.gguf")


@pytest.fixture
def proc(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "self").mkdir()
    return runs(tmp_path, 7, "sh", "-c", "serve")


def test_a_port_of_the_command_line_wins_over_the_images_variable(proc, port) -> None:
    assert health.main(runs(proc, 12, *UAD, "--port", str(port), LLAMA_ARG_PORT="8080", LLAMA_ARG_HOST="0.0.0.0")) == 0


def test_a_port_of_a_variable_and_of_a_file_is_found(proc, port) -> None:
    assert health.main(runs(proc, 12, "/sbin/tini", "--", "uad", "serve", "-m", "x", LLAMA_ARG_PORT=str(port))) == 0
    (proc / "12" / "cmdline").write_bytes("\0".join((*UAD, "--config", "uad.yaml")).encode())
    (proc / "12" / "environ").write_bytes(b"A=b")
    (proc / "12" / "cwd" / "uad.yaml").write_text(f"port: {port}\n")
    assert health.main(proc) == 0


def test_a_prefix_is_asked_below(proc, port, monkeypatch) -> None:
    monkeypatch.setattr(Health, "prefix", "/llm")
    assert health.main(runs(proc, 12, *UAD, "--port", str(port), "--api-prefix", "/llm")) == 0


def test_a_server_that_loads_or_is_gone_is_ill(proc, port, monkeypatch, capsys) -> None:
    monkeypatch.setattr(Health, "status", 503)
    assert health.main(runs(proc, 12, *UAD, "--port", str(port))) == 1
    assert capsys.readouterr().err == f"uad: error: 127.0.0.1 port {port} answers 503\n"
    (proc / "12" / "cmdline").write_bytes("\0".join((*UAD, "--port", "9")).encode())
    assert health.main(proc) == 1
    assert "no answer from 127.0.0.1 port 9" in capsys.readouterr().err


def test_without_a_server_nothing_is_well(proc, capsys) -> None:
    assert health.main(proc) == 1
    assert capsys.readouterr().err == "uad: error: no `uad serve` runs here\n"


def test_flags_that_the_server_refuses_are_named(proc, capsys) -> None:
    assert health.main(runs(proc, 12, *UAD, "--port", "x")) == 1
    assert "--port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.2", "127.0.0.2"), ("::1", "::1"), ("localhost", "localhost")],
)
def test_all_addresses_are_asked_on_loopback(host, asked) -> None:
    assert health.address(host) == asked


def test_a_server_with_tls_is_asked_over_tls(port) -> None:
    config = ServerConfig(port=port, ssl_key=Path("key.pem"), ssl_cert=Path("cert.pem"))
    assert "SSL" in health.why_ill(config), "it spoke TLS to a server that speaks none"
