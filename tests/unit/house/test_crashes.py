"""Tests that end their process, as llama.cpp does where it gives up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[2]
TIME_LIMIT = {"faulthandler_timeout": 1, "faulthandler_exit_on_timeout": "true"}
ENDING = """
import os, sys

def test_before():
    pass

def test_that_ends_its_process():
    os._exit(1)

def test_after():
    pass
"""
WAITING = """
import threading

def test_before():
    pass

def test_that_never_ends():
    threading.Event().wait(90)

def test_after():
    pass
"""
GIVING_UP = """
import sys, types

given_up = sys.modules["uad.llama.backend.abort"] = types.ModuleType("abort")
given_up.listen = lambda tell: setattr(given_up, "tell", tell)

def test_that_gives_up():
    import os
    given_up.tell("GGML_ASSERT(x) failed")
    sys.stderr.flush()
    os._exit(1)
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "kit.crashes", "-p", "no:cacheprovider", "-c", os.devnull, *words, "."],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_files_of_vocabularies_have_a_worker_together_and_others_need_not() -> None:
    pytest.importorskip("xdist")
    from kit.crashes import Files

    names = ("model/test_vocab_quick.py", "model/test_vocab_raw.py", "model/test_view.py", "unit/calls/test_calls.py")
    shared = Files.__new__(Files)
    quick, raw, *others = (shared._split_scope(f"tests/{name}::test_one[a::b]") for name in names)
    assert quick == raw
    assert others == [f"tests/{name}" for name in names[2:]]


def test_a_test_that_ends_its_process_or_never_ends_is_one_failed_test_and_all_others_run(tmp_path: Path) -> None:
    texts = {"test_one.py": ENDING, "test_three.py": WAITING, "test_two.py": ENDING}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    options = (f"-o{name}={value}" for name, value in TIME_LIMIT.items())
    done = run(tmp_path, "-q", "-n", "2", "--dist", "loadfile", *options)
    assert "3 failed, 6 passed" in done.stdout, done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout
    assert sorted(re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)) == [
        "test_one.py::test_that_ends_its_process",
        "test_three.py::test_that_never_ends",
        "test_two.py::test_that_ends_its_process",
    ]
    assert "in test_that_never_ends" in done.stderr, "where it waits"


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("faulthandler_timeout")) > 0
    assert pytestconfig.getini("faulthandler_exit_on_timeout")


def test_what_llama_cpp_said_last_is_shown_with_the_name_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(GIVING_UP)
    done = run(tmp_path)
    assert "test_one.py::test_that_gives_up (call): GGML_ASSERT(x) failed" in done.stderr
