"""`--draft auto` of one target, and `uad inspect --all`, over the bundled models."""

from dataclasses import replace
from pathlib import Path

import pytest

from uad.base.config import load_config
from uad.base.errors import ConfigError, ModelLoadError
from uad.pairs.conditions import conditions
from uad.pairs.records import PairRecord, add_record
from uad.tools.cli import main
from uad.tools.cli.pairs import LOOKUP, _gain, matrix_of, short_names, text_colour, with_helps

SAMPLES = Path(__file__).parents[3] / "samples"
TARGET, ZEPHYR, GEMMA = (SAMPLES / f"{name}.gguf" for name in ("target-chatml", "draft-zephyr", "draft-gemma"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))


def keep(draft, gain):
    under = conditions(load_config(["--target", str(TARGET), "--draft", "auto"], {}))
    add_record(TARGET, draft, PairRecord(1000, 1.0, gain), under)


def chosen(target=TARGET, *words):
    told = []
    config = with_helps(load_config(["--target", str(target), "--draft", "auto", *words], {}), told.append)
    return config.draft and config.draft.path, told


def test_the_best_smaller_model_beside_the_target_drafts(monkeypatch):
    assert chosen()[0] == ZEPHYR
    assert "draft-zephyr.gguf, 1.0" in chosen()[1][0]
    monkeypatch.chdir(SAMPLES)
    assert chosen(Path("target-chatml.gguf"))[0] == ZEPHYR


def test_a_head_beside_the_target_drafts_first(tmp_path):
    for path in (TARGET, ZEPHYR):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "eagle3-target-chatml.gguf").symlink_to(SAMPLES / "heads" / "eagle3-target-chatml.gguf")
    told = []
    config = with_helps(load_config(["--target", str(tmp_path / TARGET.name), "--draft", "auto"], {}), told.append)
    assert [path.name for path in config.draft_from] == ["eagle3-target-chatml.gguf", ZEPHYR.name]
    assert config.draft.path == config.draft_from[0]
    assert told == ["--draft auto: eagle3-target-chatml.gguf, a head beside target-chatml.gguf"]


def test_where_none_pays_none_drafts():
    assert chosen(ZEPHYR) == (
        None,
        [f"--draft auto: none of the smaller models beside draft-zephyr.gguf is expected to pay; {LOOKUP}"],
    )
    keep(ZEPHYR, 1.0)
    assert chosen()[0] is None


def test_what_was_measured_is_said():
    keep(ZEPHYR, 1.4)
    assert "1.40 times measured" in chosen()[1][0]


def test_other_drafts_stay_as_they_are():
    config = load_config(["--target", str(TARGET), "--draft", str(GEMMA)], {})
    assert with_helps(config, print) is config
    alone = replace(config, draft=None)
    assert with_helps(alone, print) is alone


def test_a_target_without_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="looks in the folder of the target's file"):
        with_helps(load_config(["--hf-repo", "u/r", "--draft", "auto"], {}), print)
    with pytest.raises(ModelLoadError, match=r"target .*nothing\.gguf"):
        chosen(tmp_path / "nothing.gguf")


def test_all_pairs_of_a_folder(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    keep(GEMMA, 1.25)
    assert main(["inspect", "--all", str(SAMPLES)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (gemma,) = (line.split() for line in lines if "draft-gemma" in line and "target" in line)
    assert gemma[:5] == ["target-chatml", "draft-gemma", "*", "1.00", "1.25"]
    assert sum("no draft" in line for line in lines) == 2


def test_they_are_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    assert main(["inspect", "--all", str(SAMPLES), "--plot", str(tmp_path / "p.png")]) == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--all", "nowhere"], "--all: nowhere is not a directory"),
        (["--all", str(SAMPLES), "--measure"], "--measure, --text and --json are of one pair"),
        (["--all", str(SAMPLES / "train")], "there is no GGUF file in"),
        (["--all", str(SAMPLES), "--plot", "p.txt"], "the name must end in .png"),
        ([str(TARGET), str(ZEPHYR), "--plot", "p.png"], "add --all FOLDER"),
    ],
)
def test_what_makes_no_sense_is_refused(words, problem, capsys):
    assert main(["inspect", *words]) == 2
    assert problem in capsys.readouterr().err


QWENS = [f"qwen2.5-coder-{size}b-instruct-q8_0" for size in ("0.5", "1.5", "3", "7", "14", "32")]


@pytest.mark.parametrize("width", [8, 12, 14, 20, 28])
@pytest.mark.parametrize(
    "names",
    [
        QWENS,
        ["a", "b"],
        [f"model-{i:03d}" for i in range(300)],
        ["same-long-beginning", "same-long-beginning-and-more"],
    ],
    ids=["family", "short", "many", "beginning"],
)
def test_names_are_cut_where_they_agree(names, width):
    shown = short_names(names, width)
    assert len(set(shown.values())) == len(names)
    assert all(len(one) <= width + 8 for one in shown.values())


def test_what_differs_is_what_is_left():
    shown = short_names(QWENS, 14)
    assert all(f"{size}b" in shown[f"qwen2.5-coder-{size}b-instruct-q8_0"] for size in ("0.5", "1.5", "14", "32"))
    assert short_names(["short", "shorter"], 14) == {"short": "short", "shorter": "shorter"}


def test_a_table_of_a_family_fits_into_eighty_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for i, name in enumerate(QWENS):
        (tmp_path / f"{name}.gguf").write_bytes(ZEPHYR.read_bytes() + bytes(10_000_000 * i))
    assert main(["inspect", "--all", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    pairs = [tuple(line.split()[:2]) for line in lines[1:] if "%" in line]
    assert len(pairs) == len(set(pairs)) >= 6


def test_numbers_are_readable_on_any_square():
    assert [text_colour(gain) for gain in (0.5, 1.0, 1.4, 1.6, 2.0, 3.0)] == ["black"] * 3 + ["white"] * 3


def test_a_pair_that_was_not_considered_is_no_gain_of_one():
    """Its square is left out: what is drawn there is NaN, which has no shade."""
    pairs = matrix_of(SAMPLES)["target-chatml"]
    assert _gain(pairs, "draft-zephyr")[0] > 1.0
    assert _gain(pairs, "target-chatml") == (None, False)


def test_a_damaged_file_of_a_folder_costs_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes((SAMPLES / "draft-gemma.gguf").read_bytes()[:100_000])
    (tmp_path / "draft-gemma.gguf").symlink_to(SAMPLES / "draft-gemma.gguf")
    assert list(matrix_of(tmp_path)) == ["draft-gemma"]
    assert "cut.gguf: damaged or truncated GGUF file" in capsys.readouterr().err
