"""Servers whose log nobody reads, whose pipes are full or closed: they start, answer and stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.models import TARGET
from kit.process import ENV, free_port
from kit.workers import needs_rpc

pytestmark = [pytest.mark.llama, pytest.mark.long]
PATIENCE_S = 240.0
FLAGS = ("-t", "1", "-c", "512", "--no-kernels")
N_REQUESTS = 40
LONG_NAME = "x" * 96
"""Of a request: with it a pipe of 4 KiB is full after some twenty lines."""


def full_pipe() -> tuple[int, int]:
    """A pipe that holds all it can, so that the next byte would wait."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    return reading, writing


def broken_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@contextmanager
def started(words: list[str], port: int, **streams: int) -> Iterator[subprocess.Popen[bytes]]:
    """A command that listens on this port."""
    process = subprocess.Popen([sys.executable, "-m", "uad", *words], env=ENV, stdin=subprocess.DEVNULL, **streams)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        assert process.poll() is None, process.returncode
        yield process
    finally:
        process.kill()
        process.wait(120)


def answers(port: int, model: str) -> int:
    """How many of several requests are answered, the first one once models are loaded."""
    n, deadline = 0, time.monotonic() + PATIENCE_S
    body = json.dumps({"model": model, "prompt": "Once", "max_tokens": 1, "temperature": 0}).encode()
    while n < N_REQUESTS and time.monotonic() < deadline:
        head = {"Content-Type": "application/json", "X-Request-Id": LONG_NAME}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, head)
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                n += len(json.load(answer)["choices"])
        except urllib.error.HTTPError:  # still loading
            time.sleep(0.1)
    return n


def ended(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S)


@pytest.mark.parametrize(("stream", "router"), [("stdout", False), ("stderr", False), ("both", False), ("both", True)])
def test_pipes_that_are_full_cost_no_answer(stream: str, router: bool, tmp_path: Path) -> None:
    port, (reading, writing) = free_port(), full_pipe()
    words = ["--models-dir", str(TARGET.parent)] if router else ["-m", str(TARGET)]
    streams = {name: writing if stream in (name, "both") else subprocess.DEVNULL for name in ("stdout", "stderr")}
    try:
        with started(["serve", "--port", str(port), *words, *FLAGS], port, **streams) as process:
            assert answers(port, TARGET.stem) == N_REQUESTS
            assert ended(process) == 0
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("kind", ["broken", "full disk"])
def test_streams_that_cannot_be_written_cost_no_answer(stream: str, kind: str) -> None:
    port, fd = free_port(), broken_pipe() if kind == "broken" else os.open("/dev/full", os.O_WRONLY)
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: fd}
    try:
        with started(["serve", "--port", str(port), "-m", str(TARGET), *FLAGS], port, **streams) as process:
            assert answers(port, TARGET.stem) == N_REQUESTS
            assert ended(process) == 0
    finally:
        os.close(fd)


def test_closed_streams_are_no_clients_socket(tmp_path: Path) -> None:
    """The next file that is opened has the number of a closed stream: what is printed there would go to a client."""
    port = free_port()
    words = f'exec "{sys.executable}" -m uad serve --port {port} -m "{TARGET}" {" ".join(FLAGS)} <&- >&- 2>&-'
    process = subprocess.Popen(["bash", "-c", words], env=ENV)
    try:
        assert answers_once_open(process, port) == N_REQUESTS
        links = {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)}
        assert links == {os.devnull}
        assert ended(process) == 0
    finally:
        process.kill()
        process.wait(120)


def answers_once_open(process: subprocess.Popen[bytes], port: int) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return answers(port, TARGET.stem)
        except OSError:
            time.sleep(0.05)
    return -1


def test_a_log_file_may_be_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    port, pipe = free_port(), tmp_path / "log"
    os.mkfifo(pipe)
    words = ["serve", "--port", str(port), "-m", str(TARGET), *FLAGS, "--log-file", str(pipe), "-lv", "5"]
    with started(words, port, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert answers(port, TARGET.stem) == N_REQUESTS
        assert ended(process) == 0


# a worker without an RPC backend: it prints as llama.cpp does for each client, and says in a file when all is done
PRINTING = """
import ctypes, sys, time
from pathlib import Path
from uad.llama.backend import rpc
from uad.tools.cli import main
libc, done = ctypes.CDLL(None), Path(sys.argv[1])

def start_server(*_):
    for _ in range(5000):
        libc.printf(b"Accepted client connection\\n")
        libc.fflush(None)
    done.touch()
    while True:
        time.sleep(1)

rpc.is_built, rpc.start_server = lambda: True, start_server
sys.exit(main(["rpc-worker", "--port", sys.argv[2], "--no-kernels"]))
"""


def test_what_llama_cpp_prints_in_a_worker_waits_for_no_reader(tmp_path: Path) -> None:
    reading, writing = full_pipe()
    done = tmp_path / "done"
    command = [sys.executable, "-c", PRINTING, str(done), str(free_port())]
    process = subprocess.Popen(command, env=ENV, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not done.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert done.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait(120)
        os.close(reading)
        os.close(writing)


@needs_rpc
def test_a_worker_whose_pipes_are_full_serves_clients() -> None:
    port, (reading, writing) = free_port(), full_pipe()
    try:
        with started(["rpc-worker", "--port", str(port), "-t", "1"], port, stdout=writing, stderr=writing) as process:
            for _ in range(2000):  # each is served before the next one: a full backlog would take seconds for each
                with socket.create_connection(("127.0.0.1", port), 10) as connection:
                    connection.sendall(b"\xff")
                    assert connection.recv(1) == b""
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
    finally:
        os.close(reading)
        os.close(writing)
