"""lab/translate.py on the bundled models: table, last line, plot, and errors that say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.vocab_kit import path_of
from translate import main

from uad.tools.cli import run

PAIR = ["--pair", str(path_of("target-chatml")), str(path_of("draft-gemma"))]


@pytest.mark.model
def test_table_plot_and_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot, table = tmp_path / "cost.png", tmp_path / "table.md"
    words = [
        *PAIR,
        "--rounds",
        "25",
        "--contexts",
        "256,1024",
        "--plot",
        str(plot),
        "--markdown",
        str(table),
        "--profile",
    ]
    assert main(words) == 0
    out = capsys.readouterr().out
    last = json.loads(out.splitlines()[-1])
    assert "calls / µs per round" in out
    assert "translate.translate" in out
    assert [one["n_ctx"] for one in last["rounds"]] == [256, 1024]
    for one in last["rounds"]:
        assert one["pair"] == "target-chatml + draft-gemma"
        assert 0 < one["warm_us"] < 5000
        assert 0 < one["median_us"] < 5000
        assert 0 <= one["cache_hit"] <= 1
        assert one["naive_us"] > 0
    assert last["median_us_32k"] is None
    assert 0.3 < last["flatness"] < 3
    assert last["accepted_share"] > 0.95
    assert plot.read_bytes()[:4] == b"\x89PNG"
    assert "| target-chatml | draft-gemma |" in table.read_text()


@pytest.mark.model
def test_every_pair_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("target-chatml", "draft-zephyr", "draft-gemma"):
        (tmp_path / f"{name}.gguf").symlink_to(path_of(name))
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog, and then it rests.\n" * 40)
    assert main(["--vocabs", str(tmp_path), "--rounds", "5", "--text", str(text)]) == 0
    out = capsys.readouterr().out
    assert "6 pairs" in out
    assert json.loads(out.splitlines()[-1])["rounds"] == []


@pytest.mark.model
def test_a_short_text_does_for_many_rounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text"
    text.write_text("A heron stood in the water and waited for the fish to come.\n" * 17)
    assert main([*PAIR, "--contexts", "64", "--rounds", "400", "--text", str(text)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rounds"][0]["median_us"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to measure"),
        ([*PAIR, "--rounds", "0"], "--rounds"),
        ([*PAIR, "--contexts", "1k"], "whole numbers"),
        ([*PAIR, "--contexts", "8"], "at least 64"),
        ([*PAIR, "--text", "/no/such/file"], "cannot be read"),
        ([*PAIR, "--markdown", "/no/such/table.md"], "no directory"),
        ([*PAIR, "--plot", "/no/such/plot.png"], "no directory"),
        (["--vocabs", "/no/such/folder", "--plot", "plot.png"], "no two .gguf files"),
        (["--vocabs", "/no/such/folder"], "no two .gguf files"),
        (["--pair", "/no/such.gguf", "/no/such.gguf"], "no vocabulary can be loaded"),
    ],
)
def test_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(main, words) in (1, 2)
    assert message in capsys.readouterr().err
