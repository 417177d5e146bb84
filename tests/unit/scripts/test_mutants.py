"""The list of mutants fits the code and the tests as they are, and a run of it says what dies."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import mutants
import pytest
from kit.source_imports import ROOT, TESTS
from mutants import MUTANTS, Copy, Mutant, try_all


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.what)
def test_each_has_one_place_is_python_and_has_tests(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    changed = mutant.put_into(source)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    known = {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")}
    assert mutant.tests
    assert set(mutant.tests) <= known


def test_each_says_another_thing() -> None:
    assert len({one.what for one in MUTANTS}) == len(MUTANTS) >= 30


TOY = {
    "uad/__init__.py": "",  # or the package that is installed comes first
    "uad/toy.py": "def twice(n):\n    return 2 * n\n",
    "tests/test_toy.py": "from uad.toy import twice\n\n\ndef test_two():\n    assert twice(2) == 4\n",
}
TWICE = Mutant("toy.py", "2 * n", "3 * n", ("toy",), "three times")
SQUARE = Mutant("toy.py", "2 * n", "n * n", ("toy",), "the square, which is the same for 2")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one function."""
    root, folder = tmp_path / "toy", tmp_path / "copy"
    for name, text in TOY.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for command in ("init -q", "add -A", "-c user.name=x -c user.email=x@x commit -qm x"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    folder.mkdir()
    monkeypatch.setattr(mutants, "ROOT", root)
    return folder


@pytest.mark.long
def test_a_mutant_dies_where_a_test_fails(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = Copy(toy, None)
    assert try_all(copy, [TWICE, SQUARE], are_green=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in lines] == ["dies ", "LIVES"]
    assert "test_two" in lines[0]
    assert copy.read("uad/toy.py") == TOY["uad/toy.py"], "the last one is gone again"


def test_a_revision_is_copied_as_it_was(toy: Path) -> None:
    (mutants.ROOT / "uad" / "toy.py").write_text("edited since")
    copy = Copy(toy, "HEAD")
    assert {name: copy.read(name) for name in TOY} == TOY
    assert copy.files(["toy", "of another revision"]) == [str(toy / "tests" / "test_toy.py")]


@pytest.mark.long
def test_tests_that_fail_anyway_show_nothing(toy: Path) -> None:
    copy = Copy(toy, None)
    copy.write("tests/test_toy.py", "def test_two():\n    assert False\n")
    with pytest.raises(ValueError, match=r"fail without any mutant: FAILED .*test_two"):
        try_all(copy, [TWICE], are_green=False)


def test_a_mutant_without_its_place_is_named(toy: Path) -> None:
    with pytest.raises(ValueError, match=r"uad/toy\.py has 0 places with 'five'.*adapt MUTANTS"):
        try_all(Copy(toy, None), [Mutant("toy.py", "five", "six", ("toy",), "x")], are_green=True)


def test_names_of_no_mutant_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mutants.py", "nowhere"])
    assert mutants.main() == 2
    assert "no mutant is in a file named nowhere" in capsys.readouterr().err
