"""`uad` with models of a hub, as a process: fetched, then taken from the cache; what is not there: exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kit.hub import Hub
from kit.models import DRAFTS, TARGET
from kit.process import ENV

pytestmark = pytest.mark.model
WORDS = (
    "generate",
    "-hf",
    "me/toy:Q8_0",
    "-hfd",
    "me/draft",
    "-p",
    "hello",
    "-n",
    "4",
    "-c",
    "256",
    "--temp",
    "0",
    "--spec-policy",
    "fixed",
)


@pytest.fixture(scope="module")
def repos() -> dict[str, dict[str, bytes]]:
    return {
        "me/toy": {"toy-Q8_0.gguf": TARGET.read_bytes(), "toy-Q4_K_M.gguf": b"nothing"},
        "me/draft": {"draft.gguf": DRAFTS["zephyr"].read_bytes()},
    }


def run(home: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in ENV.items() if not name.startswith("HF_")}
    env |= {"HF_HOME": str(home), "HF_ENDPOINT": url}
    return subprocess.run(
        [sys.executable, "-m", "uad", *words], capture_output=True, text=True, timeout=120, env=env, check=False
    )


def test_both_models_are_fetched_once_and_serve_without_a_network(
    repos: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    with Hub(repos) as hub:
        first = run(tmp_path, hub.url, *WORDS)
        n_gets = len(hub.gets("toy-Q8_0.gguf"))
        url = hub.url
    assert first.returncode == 0, first.stderr
    assert n_gets == 1
    again = run(tmp_path, url, *WORDS, "--offline")
    assert (again.returncode, again.stdout) == (0, first.stdout)


def test_what_the_hub_does_not_have_is_one_line(repos: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    with Hub(repos) as hub:
        done = run(tmp_path, hub.url, "serve", "-hf", "me/toy:Q5_K_M", "--port", "0")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith(
        "me/toy has no quantization 'Q5_K_M'; there are Q4_K_M, Q8_0 (--hf-file names a file)\n"
    )
