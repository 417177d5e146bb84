"""A real server process for tests: started on a free port, stopped by its pid."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from uad.base.common.cache import cache_folder


def fresh_cache(folder: Path) -> str:
    """A folder for UAD_CACHE_DIR without cost curves of the user's own. What was proven of kernels on this machine
    holds there, too: a proof takes seconds.
    """
    proven = cache_folder() / "kernels"
    proven.mkdir(parents=True, exist_ok=True)
    (folder / "kernels").symlink_to(proven)
    return str(folder)


ENV = {
    **{k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")},
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    ),
    "PYTHONUNBUFFERED": "1",
    "UAD_CACHE_DIR": fresh_cache(Path(tempfile.mkdtemp(prefix="uad-test-cache-"))),
}


def uad(*args: str, timeout: float = 240, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`uad …` run to its end."""
    command = [sys.executable, "-m", "uad", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=ENV, check=False, cwd=cwd)


class Server:
    """`uad serve …` on loopback; `url` once it listens, `log` is a file with all it printed. program: what python runs
    instead of uad.
    """

    def __init__(
        self, log: Path, args: Sequence[str], timeout: float = 240, program: Sequence[str] = ("-m", "uad")
    ) -> None:
        self.log = log
        self._file = log.open("w")
        command = [sys.executable, *program, "serve", "--port", "0", *args]
        self.process = subprocess.Popen(command, stdout=self._file, stderr=subprocess.STDOUT, env=ENV)
        self.url = self._wait(timeout)

    def _wait(self, timeout: float) -> str:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if found := re.search(r"listening on (https?://\S+)", self.log.read_text()):
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.stop()
        raise AssertionError(f"the server did not start:\n{self.log.read_text()}")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(120)
        self._file.close()
        return self.process.returncode

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
