"""What tests need is found from their sources, and what did not run is summed up."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kit import source_imports
from kit.not_run import not_run
from kit.source_imports import MODULES, TESTS, needs_llama

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import unit_env  # noqa: E402


@pytest.mark.parametrize("name", ["uad.llama.context", "uad.runtime.open", "uad.runtime.runtime"])
def test_modules_that_load_llama_cpp_are_found(name: str) -> None:
    assert needs_llama(MODULES[name])


@pytest.mark.parametrize(
    "name", ["uad", "uad.tools.cli", "uad.engine.policy.auto", "uad.http.server.app", "uad.text.vocab.encode"]
)
def test_modules_that_do_not_are_not(name: str) -> None:
    assert not needs_llama(MODULES[name])


def test_test_files_are_told_by_what_they_import_through_others() -> None:
    assert needs_llama(TESTS / "model" / "test_view.py"), "runtime_parts.py imports a runtime"
    assert not needs_llama(TESTS / "unit" / "decode" / "test_same_text.py"), "the loop's own tests need no llama.cpp"
    assert not needs_llama(TESTS / "unit" / "policy" / "test_policy_auto.py")
    assert not needs_llama(Path(__file__))


def test_files_beside_are_looked_into(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("from test_two import CASES\n")
    (tmp_path / "test_two.py").write_text("import llama_cpp\n")
    assert needs_llama(tmp_path / "test_one.py")


def test_the_unit_environment_has_every_dependency_but_llama_cpp_and_the_kernels() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left = set(project["dependencies"]) - set(unit_env.requirements())
    assert sorted(one.partition(">")[0] for one in left) == ["llama-cpp-python", "uad-kernels"]
    dev = {
        one for one in project["optional-dependencies"]["dev"] if not one.startswith("playwright")
    }  # needs a browser
    assert dev <= set(unit_env.requirements())


def test_the_summary_counts_by_reason() -> None:
    skipped = [("smollm2 is not in /x: make models", True), ("gemma is not in /x: make models", True)]
    skipped += [("vocabulary phi-3 is not there; make vocabs fetches it", False), ("no IPv6 here", False)]
    lines = not_run(skipped, 30)
    assert lines[0] == "not run: 2 real-model tests: the models are not here (make models fetches them)"
    assert "not run: 1 real-vocabulary and template tests: the files are not here (make vocabs fetches them)" in lines
    assert "not run: 1 tests: no IPv6 here" in lines
    assert lines[-1] == "not run: 30 files of tests that need llama.cpp"


def test_the_summary_names_tests_of_other_processors_and_how_to_run_them() -> None:
    assert not_run([], 0, 7) == [
        "not run: 7 tests of the kernels in emulators and sanitizers (make test-kernels runs them)"
    ]


@pytest.mark.long
def test_a_run_without_emulated_tests_says_how_many_there_are_where_workers_read_them() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-m", "not emulated and not long"]
    done = subprocess.run([*command, "tests/unit/kernels"], cwd=ROOT, capture_output=True, text=True)
    assert "not run: 28 tests of the kernels in emulators and sanitizers (make test-kernels runs them)" in done.stdout


def test_a_run_without_skips_says_so() -> None:
    assert not_run([], 0) == ["everything that was asked for has run"]


def forget() -> None:
    """As in another process."""
    for cached in (source_imports._kept, source_imports._at_once, needs_llama):
        cached.cache_clear()
    source_imports._needing.clear()
    source_imports._needless.clear()


def test_what_a_file_imports_is_read_again_after_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_imports, "KEPT", tmp_path / "cache" / "imports.json")
    monkeypatch.setattr(source_imports, "_new", [])
    file = tmp_path / "test_edited.py"
    for text, needs in (("import json\n", False), ("import llama_cpp\n", True), ("import json  \n", False)):
        forget()
        file.write_text(text)
        assert needs_llama(file) == needs
        source_imports.keep()
        assert str(file) in json.loads(source_imports.KEPT.read_text())
    forget()
    monkeypatch.setattr(source_imports, "imports", lambda *args: pytest.fail("it was parsed again"))
    assert not needs_llama(file)


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"cut": '])
def test_a_damaged_record_of_imports_is_made_again(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_imports, "KEPT", tmp_path / "imports.json")
    source_imports.KEPT.write_text(text)
    source_imports._kept.cache_clear()
    assert source_imports._kept() == {}
    source_imports._kept.cache_clear()
