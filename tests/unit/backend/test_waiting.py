"""Threads that wait for each other sleep soon: OpenMP is told so before llama.cpp loads it. Needs no llama.cpp."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
ROOM = ROOT / "uad" / "llama" / "backend"
NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
FAKE = """
import ctypes, os, sys, types
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "llama_cpp":
            print(getenv(b"GOMP_SPINCOUNT"), flush=True)
            raise ImportError("as far as this")
sys.meta_path.insert(0, Finder())
try:
    import uad.llama
except Exception as error:
    assert "as far as this" in str(error), error
"""


def spinning_briefly() -> Callable[..., AbstractContextManager[None]]:
    """That of uad/llama/backend/waiting.py, read without its room, which needs llama.cpp."""
    names: dict[str, Any] = {}
    exec(compile((ROOM / "waiting.py").read_text(encoding="utf-8"), "waiting.py", "exec"), names)
    return names["spinning_briefly"]


def seen_by_a_library(**environ: str) -> str:
    """GOMP_SPINCOUNT of the process, as C sees it when llama_cpp is about to be imported."""
    clean = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", FAKE], env={**clean, **environ}, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
def test_a_library_that_is_loaded_then_sees_a_short_spin() -> None:
    assert seen_by_a_library() == "b'1000'"


def test_programs_that_are_started_later_do_not_inherit_it() -> None:
    """A rival that the bench starts waits as it would by itself."""
    environ = {"A": "b"}
    with spinning_briefly()(environ):
        assert environ == {"A": "b", "GOMP_SPINCOUNT": "1000"}
    assert environ == {"A": "b"}


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
@pytest.mark.parametrize(
    ("environ", "seen"), [({"GOMP_SPINCOUNT": "7"}, "b'7'"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")]
)
def test_what_the_user_says_stays(environ, seen) -> None:
    assert seen_by_a_library(**environ) == seen


def test_no_other_file_of_uad_imports_the_binding_first() -> None:
    """Whoever imports a module of `uad.llama` runs this room's first lines before."""
    for path in (ROOT / "uad").rglob("*.py"):
        if (ROOT / "uad" / "llama") not in path.parents:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in tree.body:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not [name for name in names if name.split(".")[0] == "llama_cpp"], path
    text = (ROOM / "__init__.py").read_text(encoding="utf-8")
    assert "    with spinning_briefly():\n        _without_its_own_api()\n        import llama_cpp" in text
