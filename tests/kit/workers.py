"""RPC workers as processes of this machine, for tests where llama.cpp was built with its RPC backend."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.process import ENV, free_port
from uad.llama.backend import rpc

needs_rpc = pytest.mark.skipif(not rpc.is_built(), reason="llama.cpp was built without RPC (make clean test)")


class WorkerProcess:
    """`uad rpc-worker` on a free port of loopback, with one thread; `address` once the port is open."""

    def __init__(self) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        command = [sys.executable, "-m", "uad", "rpc-worker", "--port", str(port), "-t", "1"]
        self.log = Path(tempfile.mkdtemp(prefix="uad-test-worker-"), "log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=ENV)
        deadline = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.kill()
        raise AssertionError("the worker did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(120)

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextmanager
def workers(n: int) -> Iterator[list[WorkerProcess]]:
    started: list[WorkerProcess] = []
    try:
        for _ in range(n):
            started.append(WorkerProcess())
        yield started
    finally:
        for one in started:
            one.kill()
