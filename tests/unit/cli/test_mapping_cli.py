"""`uad mapping` as a user meets it, with the bundled models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from uad.tools.cli import main

pytestmark = pytest.mark.llama
SAMPLES = Path(__file__).parents[3] / "samples"
TARGET, GEMMA, ZEPHYR = (str(SAMPLES / f"{name}.gguf") for name in ("target-chatml", "draft-gemma", "draft-zephyr"))


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["mapping", *args])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_list_names_every_file(capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert "chatml-think" in out
    assert "qwen-pythia" in out
    assert out.splitlines()[-1].endswith(" pairs")


def test_show_prints_a_file_by_name_or_path(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    code, out, _ = run(capsys, "show", "gemma")
    assert (code, "family: gemma" in out) == (0, True)
    path = out.splitlines()[0].removeprefix("# ")
    assert run(capsys, "show", path)[1] == out
    code, _, err = run(capsys, "show", "gema")
    assert code != 0
    assert "there is no mapping file 'gema'; did you mean 'gemma'?" in err
    assert "more than 1000000 bytes" in run(capsys, "show", TARGET)[2]
    broken = tmp_path / "broken.yaml"
    broken.write_bytes(b"family: \xff")
    assert f"{broken}: not UTF-8 text (byte 8)" in run(capsys, "show", str(broken))[2]
    broken.write_text("family: broken\ntitel: x\n", encoding="utf-8")
    assert f"{broken}:2:1: unknown key 'titel'; did you mean 'title'?" in run(capsys, "show", str(broken))[2]


def test_derive_writes_a_file_that_check_uses_and_lint_accepts(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "pairs" / "mine.yaml"
    code, out, err = run(capsys, "derive", TARGET, GEMMA, "-o", str(path))
    assert (code, out) == (0, "")
    assert f"wrote {path}; the rules that it makes:" in err
    assert "user: '<|im_start|>user\\n' ... '<|im_end|>\\n' -> '<start_of_turn>user\\n' ... '<end_of_turn>\\n'" in err
    written = path.read_bytes()
    code, out, err = run(capsys, "derive", TARGET, GEMMA, "-o", str(path))
    assert (code, out) == (2, "")
    assert f"--output {path}: there is such a file, which may hold edits; name another one, or remove it" in err
    assert path.read_bytes() == written
    code, out, err = run(capsys, "check", TARGET, GEMMA, "--mappings", str(tmp_path))
    assert code == 0
    assert f"pair mine ({path})" in err
    assert "no difference" in out
    code, out, _ = run(capsys, "lint", "--mappings", str(tmp_path))
    assert (code, out.splitlines()[-1].endswith("0 errors, 0 warnings")) == (0, True)
    path.write_text(
        path.read_text(encoding="utf-8").replace('"<end_of_turn>\\n"', '"<end_of_turn> "'), encoding="utf-8"
    )
    code, out, _ = run(capsys, "check", TARGET, GEMMA, "--mappings", str(tmp_path))
    assert code == 1
    assert "- How many legs has a spider?<end_of_turn> <start_of_turn>model⏎" in out.replace("> \n<", "> <")
    assert out.splitlines()[-1] == "they differ"


@pytest.mark.parametrize("draft", [GEMMA, ZEPHYR])
def test_check_of_the_bundled_pairs(capsys: pytest.CaptureFixture[str], draft: str):
    code, out, _ = run(capsys, "check", TARGET, draft)
    assert (code, out.splitlines()[-1]) == (0, "no difference")


def test_check_tells_typed_specials_from_real_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    talk = tmp_path / "talk.json"
    talk.write_text(
        json.dumps({"messages": [{"role": "user", "content": "<end_of_turn><|im_end|>"}]}), encoding="utf-8"
    )
    assert run(capsys, "check", TARGET, GEMMA, "--conversation", str(talk))[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", ":1:2: not valid JSON: Expecting value"),
        ("{}", ": expected a list of messages such as"),
        ('[{"role": 1}]', "messages[0].role must be a word such as user or assistant"),
        ("[" * 100_000, ": not JSON text"),
    ],
)
def test_a_bad_conversation_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str):
    path = tmp_path / "talk.json"
    path.write_text(text, encoding="utf-8")
    code, _, err = run(capsys, "check", TARGET, GEMMA, "--conversation", str(path))
    assert code != 0
    assert message in err


def test_lint_exits_with_1_on_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "x.yaml").write_text("family: x\ntitel: x\n", encoding="utf-8")
    code, out, _ = run(capsys, "lint", "--mappings", str(tmp_path))
    assert code == 1
    assert out.splitlines()[-1].endswith("1 error, 0 warnings")
    assert "x.yaml:2:1: unknown key 'titel'; did you mean 'title'?" in out


def test_wrong_usage(capsys: pytest.CaptureFixture[str]):
    assert run(capsys, "--help")[0] == 0
    code, _, err = run(capsys, "chek")
    assert (code, "'mapping chek'" in err) == (2, True)
    code, _, err = run(capsys, "derive", TARGET, GEMMA, "-o", "mine.yml")
    assert (code, "mapping files end in .yaml; try mine.yaml" in err) == (2, True)
    assert run(capsys)[0] == 2
