"""lab/bench_servers.py with the bundled models: on a server that it starts, and that is gone afterwards."""

import json
import os

import pytest
from bench_servers import main
from kit.models import DRAFTS, TARGET
from kit.process import fresh_cache

from uad.tools.bench import serving
from uad.tools.cli import run

pytestmark = pytest.mark.model


@pytest.fixture
def started(monkeypatch, tmp_path):
    """The servers that were started."""
    found, real = [], serving.subprocess.Popen

    def popen(*args, **more):
        found.append(real(*args, **more))
        return found[-1]

    monkeypatch.setattr(serving.subprocess, "Popen", popen)
    monkeypatch.setenv("UAD_CACHE_DIR", fresh_cache(tmp_path))
    return found


def test_a_small_matrix(started, capsys):
    """Two lists of drafters on one server, one and two sequences, greedy and sampled."""
    lists = ("--spec-type", "suffix", "--spec-type", "draft-simple,suffix", "--policy", "plain,fixed:4")
    sizes = ("--prompts", "2", "--repeats", "1", "-n", "24", "--sequences", "1,2", "--temperature", "0,0.8", "-t", "1")
    assert run(main, ["--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]), *lists, *sizes]) == 0
    out = capsys.readouterr().out
    line = json.loads(out.splitlines()[-1])
    labels = [(one["temperature"], one["sequences"], one["draft"], one["policy"]) for one in line["cells"]]
    assert labels == [
        (temperature, sequences, draft, policy)
        for temperature in (0, 0.8)
        for sequences in (1, 2)
        for draft in ("suffix", "suffix+draft-zephyr")
        for policy in ("plain", "fixed:4")
    ]
    assert all(cell["same_text"] for cell in line["cells"])
    assert all(cell["accept_rate"] is None for cell in line["cells"] if cell["policy"] == "plain")
    both = [cell for cell in line["cells"] if cell["draft"] == "suffix+draft-zephyr" and cell["policy"] == "fixed:4"]
    assert all(cell["accept_rate"] > 0 and cell["tokens_per_decode"] > 1 for cell in both)
    assert "fixed:4, guesses accepted: draft model" in out
    assert [one.poll() is not None for one in started] == [True]


def test_a_target_alone_is_compared_with_a_peer(started, capsys):
    """The peer is another server of the same target."""
    words = ["--target", str(TARGET), "--prompts", "1", "--repeats", "1", "-n", "16", "-t", "1"]
    with serving.serving(["--model", str(TARGET), "-t", "1"], dict(os.environ)) as peer:
        assert run(main, [*words, "--vs", peer.url]) == 0
    (cell,) = json.loads(capsys.readouterr().out.splitlines()[-1])["cells"]
    assert (cell["policy"], cell["draft"], cell["same_text"]) == ("peer", None, True)
    assert [one.poll() is not None for one in started] == [True, True]


def test_a_prompt_that_does_not_fit_is_named_and_no_server_is_left(started, capsys):
    words = ["--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]), "-c", "256", "-n", "250", "--prompts", "1"]
    assert run(main, [*words]) == 2
    assert "'function-add' of 'chat' needs" in capsys.readouterr().err
    assert [one.poll() is not None for one in started] == [True]


def test_files_that_the_server_refuses_are_an_error_of_usage(started, capsys, tmp_path):
    (tmp_path / "no-model.gguf").write_bytes(b"nothing")
    assert run(main, ["--target", str(tmp_path / "no-model.gguf"), "--draft", str(DRAFTS["zephyr"])]) == 2
    assert "ended with code 2" in capsys.readouterr().err
    assert [one.poll() for one in started] == [2]
