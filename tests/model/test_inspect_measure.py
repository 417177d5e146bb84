"""`uad inspect --measure` on the bundled models: a server of its own, which is gone afterwards."""

import json

import pytest
from kit.models import DRAFTS, TARGET
from kit.process import fresh_cache

from uad.tools.bench import serving
from uad.tools.cli import main


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


@pytest.mark.model
def test_the_command_measures_on_the_users_text(started, capsys, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n" * 60)
    words = ["inspect", str(TARGET), str(DRAFTS["zephyr"]), "-t", "1", "--text", str(file), "--spec-policy", "fixed"]
    assert main([*words, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    (gain,) = json.loads(line)["gains"]
    assert gain["kind"] == "text, continued"
    assert gain["n_prompts"] > 2
    assert 0 < gain["low"] < gain["ratio"] < gain["high"]
    assert 0 < gain["accept_rate"] <= 1
    assert gain["same_text"]
    assert [one.poll() is not None for one in started] == [True]


@pytest.mark.model
def test_flags_that_the_server_refuses_are_an_error_of_usage(started, capsys):
    assert main(["inspect", str(TARGET), str(DRAFTS["zephyr"]), "--measure", "--device", "NONE-SUCH"]) == 2
    assert "ended with code 2" in capsys.readouterr().err
    assert [one.poll() for one in started] == [2]


@pytest.mark.parametrize(
    ("words", "named"),
    [(["--json"], "--measure"), (["--text", "/nowhere/x"], "/nowhere/x"), (["--text", "EMPTY"], "no text")],
)
def test_wrong_words_are_named(capsys, tmp_path, words, named):
    (tmp_path / "empty").write_text(" \n")
    words = [str(tmp_path / "empty") if word == "EMPTY" else word for word in words]
    assert main(["inspect", str(TARGET), str(DRAFTS["zephyr"]), *words]) == 2
    assert named in capsys.readouterr().err
