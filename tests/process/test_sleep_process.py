"""A real server that sleeps: its memory goes back, it wakes for the next request, and it stops cleanly at any time."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit.models import DRAFTS, TARGET
from kit.process import Server

pytestmark = pytest.mark.model
SECONDS = 60
ASK = {"prompt": "the river and the stone, the river", "max_tokens": 24, "temperature": 0, "seed": 1}


def asked(server: Server, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data), timeout=SECONDS) as answer:
        return json.load(answer)


def text(server: Server) -> str:
    found: str = asked(server, "/v1/completions", ASK)["choices"][0]["text"]
    return found


def fallen_asleep(server: Server) -> None:
    """Asleep, and unloaded, when this returns."""
    until = time.monotonic() + SECONDS
    n = server.log.read_text().count("awake: ") + 1
    while server.log.read_text().count("asleep: ") < n:
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.02)
    assert asked(server, "/props")["is_sleeping"]


def resident(server: Server) -> int:
    """MiB of the process."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) >> 10


def args(target: Path = TARGET, *more: str) -> list[str]:
    return ["--target", str(target), "--draft", str(DRAFTS["zephyr"]), "-t", "1", "--sleep-idle-seconds", "0.5", *more]


def test_memory_goes_back_and_the_next_requests_load_once(tmp_path: Path) -> None:
    with Server(tmp_path / "log", args(TARGET, "-c", "65536", "-np", "2", "--no-mmap")) as server:
        first, awake = text(server), resident(server)
        fallen_asleep(server)
        asleep = resident(server)
        for path in ("/health", "/v1/models", "/slots", "/api/tags"):
            asked(server, path)
        assert asked(server, "/props")["is_sleeping"]
        with ThreadPoolExecutor(4) as clients:
            assert {one.result() for one in [clients.submit(text, server) for _ in range(4)]} == {first}
        assert server.log.read_text().count("awake: ") == 1
        again = resident(server)
        print(f"\nresident: {awake} MiB, asleep {asleep}, awake again {again}")
        fallen_asleep(server)
        assert awake - asleep > 0.9 * (again - asleep) > 100
        assert resident(server) < asleep + 20, "nothing is left over from round to round"
        assert server.stop() == 0


def test_a_file_that_is_gone_is_a_503_and_the_server_lives(tmp_path: Path) -> None:
    target, away = tmp_path / "target.gguf", tmp_path / "away.gguf"
    shutil.copy(TARGET, target)
    with Server(tmp_path / "log", args(target, "-c", "512")) as server:
        first = text(server)
        fallen_asleep(server)
        target.rename(away)
        with pytest.raises(urllib.error.HTTPError) as refused:
            text(server)
        assert refused.value.code == 503
        assert f"{target}: cannot be read" in json.load(refused.value)["error"]["message"]
        away.rename(target)
        assert text(server) == first
        assert server.stop() == 0
