"""`uad kernels`: its words, turns, table, JSON and plot. Nothing is measured: kernels and times are imitated."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from uad.tools.cli import kernels, main
from uad.tools.cli.kernel_plot import OWN, THEIRS, KernelSpeeds, Timed, TypeSpeed, draw
from uad.tools.cli.kernels import in_turns

Q4_K = TypeSpeed(
    "q4_K",
    "CPU_REPACK",
    9_000_000,
    16_000_000,
    (
        Timed(1, 10, {OWN: 0.009, THEIRS: 0.010}),
        Timed(8, 10, {OWN: 0.018, THEIRS: 0.040}),
        Timed(512, 1, {OWN: 0.064, THEIRS: 0.0632}),
    ),
)
FOUND = KernelSpeeds(
    "avx2", ("avx512", "avx2"), "0.1.0", 2, (4000, 4000), 32 << 20, 20e9, (Q4_K,), {"q6_K": "values differ"}
)
USED = SimpleNamespace(library=SimpleNamespace(), types=("q8_0", "q4_K", "f16"), wrong_types={"q6_K": "values differ"})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is asked for, measured without measuring: FOUND."""
    asked: list[tuple[object, ...]] = []

    def measure(_used: object, _library: object, *wanted: Any) -> KernelSpeeds:
        asked.append(wanted[:-1])
        return FOUND

    monkeypatch.setattr(kernels, "_used", lambda: (USED, USED.library))
    monkeypatch.setattr(kernels, "measure", measure)
    return asked


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Imitates what `uad.llama.kernels.use` finds."""

    def start(reason: str, types: tuple[str, ...] = (), library: object = None) -> None:
        found = SimpleNamespace(
            library=library, types=types, reason=reason, note=lambda: f"kernels: llama.cpp's own ({reason})"
        )
        use: Any = SimpleNamespace(started=lambda: found)
        package: Any = SimpleNamespace(use=use)
        monkeypatch.setitem(sys.modules, "uad.llama.kernels", package)
        monkeypatch.setitem(sys.modules, "uad.llama", SimpleNamespace(kernels=package))

    return start


# --- words


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([], (("q4_K", "q8_0", "f16"), (4096, 4096), 0)),
        (["--types", "q8_0", "Q4_K", "q8_0"], (("q8_0", "q4_K"), (4096, 4096), 0)),
        (["--types", "all"], (("q8_0", "q4_K", "f16"), (4096, 4096), 0)),
        (["--size", "64X256", "-t", "3"], (("q4_K", "q8_0", "f16"), (64, 256), 3)),
        (["--threads", "-1"], (("q4_K", "q8_0", "f16"), (4096, 4096), 0)),
    ],
)
def test_words_say_what_is_measured(
    measured: list[tuple[object, ...]], words: list[str], wanted: tuple[object, ...]
) -> None:
    assert main(["kernels", *words]) == 0
    assert measured == [wanted]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--types", "q4_0"], ["--types q4_0", "did you mean q4_K?", "q8_0, q4_K, f16, q6_K"]),
        (["--types", "attention"], ["--types attention", "there are"]),
        (["--types", "q6_K"], ["--types q6_K", "left to llama.cpp here (values differ)"]),
        (["--types"], ["--types", "at least one"]),
        (["--size", "4096"], ["--size", "4096x4096", "'4096'"]),
        (["--size", "0x256"], ["--size", "'0x256'"]),
        (["--size", "256x99999999"], ["--size"]),
        (["-t", "many"], ["--threads", "'many'"]),
        (["--plot", "rates.bmp"], ["--plot rates.bmp", ".png"]),
        (["--plot", "nowhere/rates.png"], ["--plot", "no directory nowhere"]),
        (["model.gguf"], ["unexpected argument 'model.gguf'", "uad kernels --help"]),
    ],
)
def test_wrong_words_are_named_before_anything_is_measured(
    measured: list[tuple[object, ...]], capsys: pytest.CaptureFixture[str], words: list[str], parts: list[str]
) -> None:
    assert main(["kernels", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert [part for part in parts if part not in err] == []
    assert measured == []


def test_a_missing_plotting_library_is_named_before_anything_is_measured(
    measured: list[tuple[object, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["kernels", "--plot", str(tmp_path / "rates.png")]) == 2
    assert "pip install 'uad[lab]'" in capsys.readouterr().err
    assert measured == []


@pytest.mark.parametrize(
    ("reason", "way_out"),
    [
        ("uad-kernels is not installed", "install uad with its dependencies"),
        ("UAD_KERNELS=off", "unset UAD_KERNELS"),
        ("there are none for this processor", "does without them"),
    ],
)
def test_without_kernels_one_line_says_why(
    started: Callable[..., None], capsys: pytest.CaptureFixture[str], reason: str, way_out: str
) -> None:
    started(reason)
    assert main(["kernels"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("uad: error: there is nothing to measure: ")
    assert (err.count("\n"), reason in err, way_out in err) == (1, True, True)


def test_attention_alone_is_nothing_to_measure(
    started: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    started("", (), object())
    assert main(["kernels"]) == 2
    assert "nothing to measure" in capsys.readouterr().err


# --- turns


def test_runs_take_turns_and_each_round_begins_elsewhere() -> None:
    log: list[str] = []

    def run(name: str) -> Callable[[], float]:
        return lambda: float(len(log.append(name) or log))  # type: ignore[func-returns-value]

    found = in_turns([run("a"), run("b")], 0.0, lambda: 1.0)
    assert "".join(log) == "abbaabbaab"
    assert found == [[1, 4, 5, 8, 9], [2, 3, 6, 7, 10]]


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 5), (9.5, 10), (1e9, 25)])
def test_there_are_as_many_rounds_as_there_is_time_for(seconds: float, rounds: int) -> None:
    ticks = map(float, count())
    now = [0.0]

    def run() -> float:
        now[0] = next(ticks) + 1
        return 1.0

    assert [len(one) for one in in_turns([run], seconds, lambda: now[0])] == [rounds]


# --- what is shown


def test_rates_are_bytes_and_products_of_all_matrices_of_a_pass() -> None:
    one, eight, many = Q4_K.timed
    assert Q4_K.bytes_per_s(one, OWN) == pytest.approx(10e9)
    assert Q4_K.products_per_s(eight, OWN) == pytest.approx(8 * 160e6 / 0.018)
    assert [Q4_K.ratio(timed, OWN) for timed in Q4_K.timed] == pytest.approx([1, 2, 0.064 * 10 / 0.009])
    assert Q4_K.ratio(eight, THEIRS) == pytest.approx(4)
    assert FOUND.most_products == pytest.approx(Q4_K.products_per_s(many, THEIRS))


def test_the_table_has_a_line_for_each_pass(
    measured: list[tuple[object, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernels"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:6] == [
        "kernels: avx2 (this processor has avx512, avx2), 2 threads",
        "q6_K is left to llama.cpp (values differ)",
        "plain read of memory: 20.0 GB/s; the last cache has 32 MiB",
        "largest rate of products, each a multiplication and an addition: 130 G/s",
        "matrices of 4000 x 4000, as many as exceed that cache; one for 512 columns",
        "",
    ]
    rows = [line.split() for line in lines[7:]]
    assert rows == [
        ["q4_K", "1", "10", "50%", "17.8", "14%", "1.00", "9", "16", "1.00", "CPU_REPACK", "1.11"],
        ["8", "5", "25%", "71.1", "55%", "2.00", "2.25", "32", "4.00", "2.22"],
        ["512", "0.141", "1%", "128", "99%", "71.11", "0.142", "130", "63.20", "0.99"],
    ]


def test_json_is_one_line_with_the_same_numbers(
    measured: list[tuple[object, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernels", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    data = json.loads(out)
    assert (data["kind"], data["kinds"], data["threads"], data["plot"]) == ("avx2", ["avx512", "avx2"], 2, None)
    assert (data["memory_gb_per_s"], data["left_to_llama_cpp"]) == (20.0, {"q6_K": "values differ"})
    (only,) = data["types"]
    assert (only["type"], only["bytes"], only["llama_cpp_weights_in"]) == ("q4_K", 9_000_000, "CPU_REPACK")
    assert [(one["n"], one["matrices"]) for one in only["passes"]] == [(1, 10), (8, 10), (512, 1)]
    assert only["passes"][1]["uad"] == {
        "ms": 18.0,
        "gb_per_s": 5.0,
        "products_per_s": 71_111_111_111,
        "ratio_to_1": 2.0,
    }
    assert only["passes"][1]["llama_cpp"]["ratio_to_1"] == 4.0


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p.pdf", b"%PDF")])
def test_rates_are_drawn(tmp_path: Path, name: str, magic: bytes) -> None:
    pytest.importorskip("matplotlib")
    draw(FOUND, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_the_plot_is_named_at_the_end(
    measured: list[tuple[object, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "rates.png"
    assert main(["kernels", "--plot", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"plot: {file}"
    assert file.exists()
