"""A model's file that is cut while it is mapped: the system ends the process, and its log says why."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import pytest
from kit.process import Server
from kit.tiny_models import make

pytestmark = pytest.mark.llama


def ask(url: str) -> bytes:
    body = json.dumps({"prompt": "a little", "max_tokens": 4}).encode()
    return bytes(urllib.request.urlopen(urllib.request.Request(f"{url}/completion", body), timeout=240).read())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems end processes otherwise")
@pytest.mark.parametrize("mapped", [True, False])
def test_the_log_says_that_a_mapped_file_was_cut(mapped: bool, tmp_path: Path) -> None:
    file = Path(shutil.copy(make("llama", tmp_path), tmp_path / "target.gguf"))
    args = ("-m", str(file), "-c", "256", "-t", "1", "--no-repack", *(() if mapped else ("--no-mmap",)))
    with Server(tmp_path / "log", args) as server:
        assert b"content" in ask(server.url)
        with file.open("r+b") as cut:
            cut.truncate(4096)
        if mapped:
            with pytest.raises((urllib.error.URLError, HTTPException, ConnectionError)):
                ask(server.url)
            assert server.process.wait(120) == -signal.SIGBUS
            assert "Fatal Python error: Bus error" in server.log.read_text()
        else:
            assert b"content" in ask(server.url)
