"""Tests run the same in the background of a script and under `nohup`, where signals are ignored."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kit.signals import pass_signals_on

NUMBERS = [number for name in ("SIGINT", "SIGHUP", "SIGQUIT") if (number := getattr(signal, name, None)) is not None]
CHILD = f"import signal; print([signal.getsignal(one) is signal.SIG_IGN for one in {[int(one) for one in NUMBERS]}])"


@pytest.fixture(params=NUMBERS, ids=lambda number: number.name)
def ignored(request) -> Iterator[signal.Signals]:
    """A signal that this process ignores."""
    before = signal.signal(request.param, signal.SIG_IGN)
    yield request.param
    signal.signal(request.param, before)


def ignored_by_a_child() -> bool:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    return "True" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
def test_what_tests_start_ignores_no_signal_though_they_do(ignored) -> None:
    assert ignored_by_a_child(), "it is inherited"
    pass_signals_on()
    assert not ignored_by_a_child()
    signal.raise_signal(ignored)  # this process goes on


def test_handlers_of_others_are_left_alone() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    pass_signals_on()
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_the_tests_themselves_were_started_with_no_signal_that_is_inherited_as_ignored() -> None:
    assert signal.SIG_IGN not in [signal.getsignal(number) for number in NUMBERS]
