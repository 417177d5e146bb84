"""Settings of all tests: which of them need what, and what did not run; side by side, each process has one thread.

Speed is measured by lab/bench_servers.py, never by a deadline in a test.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from kit.not_run import not_run
from kit.signals import pass_signals_on
from kit.source_imports import TESTS, keep, needs_llama

pytest_plugins = ["kit.crashes"]

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before llama.cpp is loaded, here or in a process that a test starts: teams of OpenMP threads that share cores wait
    # for each other.
    os.environ.setdefault("OMP_THREAD_LIMIT", "1")

# in CI, where red is to mean the change; elsewhere each run tries new ones
HAS_SAME_EXAMPLES = "UAD_SAME_EXAMPLES" in os.environ
settings.register_profile("uad", deadline=None, derandomize=HAS_SAME_EXAMPLES)
settings.register_profile("unit", deadline=None, max_examples=40, derandomize=HAS_SAME_EXAMPLES)
settings.load_profile("uad")

NOT_UNIT = ("llama", "model", "long", "slow", "real", "emulated")
EMULATED = pytest.StashKey[int]()
"""How many tests in emulators and sanitizers were not wanted, here or in each worker."""
HAS_LLAMA = importlib.util.find_spec("llama_cpp") is not None


def pytest_configure(config: pytest.Config) -> None:
    """`-m unit` is the same where llama.cpp is installed: nobody can import it."""
    if not is_controller(config):
        pass_signals_on()
    if _only_unit(config):
        sys.modules["llama_cpp"] = None  # type: ignore[assignment]
        settings.load_profile("unit")


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command that a test runs in this process sets the level of uad's log; other tests count its lines."""
    log = logging.getLogger("uad")
    before = log.level
    yield
    log.setLevel(before)


@pytest.fixture(scope="session", autouse=True)
def templates_kept() -> Iterator[None]:
    """A hundred real templates are compiled once: a server keeps sixteen."""
    from uad.text.templates import render, sandbox

    kept = lru_cache(256)(sandbox.compile_template.__wrapped__)
    with pytest.MonkeyPatch.context() as patch:
        for module in (render, sandbox):
            patch.setattr(module, "compile_template", kept)
        yield


def is_controller(config: pytest.Config) -> bool:
    """Whether this process runs no tests, but has others run them: they are not to get signals that it ignores."""
    return bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Twelve thousand tests live to the end: the collector of garbage need not go over them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that need llama.cpp are left alone where there is none, or none is wanted."""
    is_test = collection_path.match("test_*.py")
    return True if is_test and not _has_llama(config) and needs_llama(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the unit tests."""
    for item in items:
        if not needs_llama(item.path) and not any(mark.name in NOT_UNIT for mark in item.iter_markers()):
            item.add_marker("unit")
    keep()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What did not run, and why: one line for each reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [(reason_of(report), "real" in report.keywords) for report in skipped]
    for line in not_run(reasons, len(left_out(config)), config.stash.get(EMULATED, 0)):
        terminalreporter.write_line(line)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Counts what `-m "not emulated"` leaves out."""
    for item in items:
        if "emulated" in item.config.option.markexpr and item.get_closest_marker("emulated"):
            item.config.stash[EMULATED] = item.config.stash.get(EMULATED, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["n_emulated"] = session.config.stash.get(EMULATED, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the count of a worker: all of them have read the same tests."""
    if n := getattr(node, "workeroutput", {}).get("n_emulated", 0):
        node.config.stash[EMULATED] = n


def _only_unit(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "unit")


def _has_llama(config: pytest.Config) -> bool:
    return HAS_LLAMA and not _only_unit(config)


def left_out(config: pytest.Config) -> set[Path]:
    """Test files that are not even read, for want of llama.cpp."""
    return set() if _has_llama(config) else {path for path in TESTS.rglob("test_*.py") if needs_llama(path)}


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped, as it said."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")
