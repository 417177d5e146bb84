"""Processes that uad starts import from the installation alone, and inherit neither keys nor the terminal's input."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.pace import here
from kit.source_imports import MODULES, ROOT

from uad.base.common import children

SECONDS = here(60)
SHOWS = """import json, os, sys
print(json.dumps({"env": dict(os.environ), "stdin": sys.stdin.read(), "group": os.getpgid(0), "words": sys.argv[1:]}))
"""


def test_a_file_in_the_current_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "this.py").write_text("print('of the folder')")
    monkeypatch.chdir(tmp_path)
    done = children.run("this", seconds=SECONDS)
    assert done.stdout.startswith(b"The Zen of Python"), done.stderr


def test_a_child_gets_its_words_and_input_and_no_keys_settings_or_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shows_all.py").write_text(SHOWS)
    kept = {"PYTHONPATH": str(tmp_path), "UAD_CACHE_DIR": "/c", "UAD_KERNELS": "off", "GGML_LOG": "1"}
    private = ("LLAMA_API_KEY", "LLAMA_ARG_API_KEY", "UAD_API_KEY", "HF_TOKEN", "AWS_SECRET", "My_Password")
    for name in (*kept, *private, "LLAMA_ARG_MODEL"):
        monkeypatch.setenv(name, kept.get(name, "secret"))
    shown = json.loads(children.run("shows_all", "a", "b", data=b"read", seconds=SECONDS).stdout)
    assert (shown["words"], shown["stdin"]) == (["a", "b"], "read")
    assert {name: shown["env"].get(name) for name in kept} == kept
    assert not {*private, "LLAMA_ARG_MODEL"} & set(shown["env"])
    assert shown["group"] != os.getpgid(0)


# --- of all sources


def _sources() -> Iterator[Path]:
    for folder in ("uad", "scripts", "lab"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def _is_executable(node: ast.expr) -> bool:
    return ast.unparse(node) == "sys.executable"


def _opens_the_folder(path: Path) -> Iterator[int]:
    """Lines of commands that let a child import from the current folder."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.List | ast.Tuple) and node.elts and _is_executable(node.elts[0]):
            first = node.elts[1] if len(node.elts) > 1 else None
            if isinstance(first, ast.Constant) and first.value != "-P":
                yield node.lineno


@pytest.mark.parametrize("path", list(_sources()), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_of_python_lets_the_current_folder_in(path: Path) -> None:
    assert list(_opens_the_folder(path)) == []


def test_only_one_module_of_uad_starts_python() -> None:
    named = [name for name, path in MODULES.items() if "sys.executable" in path.read_text(encoding="utf-8")]
    assert named == ["uad.base.common.children"]


def test_a_command_without_p_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text("import sys\na = [sys.executable, '-m', 'uad']\nb = (sys.executable, '-P', '-m', 'uad')\n")
    assert list(_opens_the_folder(path)) == [2]
