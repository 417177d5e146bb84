"""The thread that drafts: work in order, and what may be of use between."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from uad.vllm.thread import DraftThread


def test_work_runs_on_one_thread_and_gives_what_it_returns() -> None:
    thread = DraftThread()
    names = {thread.do(lambda: threading.current_thread().name) for _ in range(3)}
    thread.close()
    assert names == {"uad drafts"}


def test_an_error_is_the_caller_s_and_work_goes_on() -> None:
    thread = DraftThread()
    with pytest.raises(ZeroDivisionError):
        thread.do(lambda: 1 / 0)
    assert thread.do(lambda: 7) == 7
    thread.close()


def test_what_runs_between_stops_when_work_waits() -> None:
    begun, n_turns = threading.Event(), 0

    def between(go_on: Callable[[], bool]) -> None:
        nonlocal n_turns
        n_turns += 1
        begun.set()
        while go_on():
            threading.Event().wait(0.0005)

    thread = DraftThread(between)
    thread.do(lambda: None)
    assert begun.wait(120)
    assert thread.do(lambda: n_turns) == 1
    thread.close()


def test_nothing_runs_between_after_the_last_work() -> None:
    """It may have freed what that works on."""
    done: list[str] = []
    thread = DraftThread(lambda go_on: done.append("between"))
    thread.do(lambda: done.append("work"))
    thread.close(lambda: done.append("last"))
    assert done == ["work", "between", "last"]


def test_what_fails_between_is_left_alone() -> None:
    n_turns = 0

    def between(go_on: Callable[[], bool]) -> None:
        nonlocal n_turns
        n_turns += 1
        raise RuntimeError("no")

    thread = DraftThread(between)
    for _ in range(3):
        thread.do(lambda: None)
    thread.close()
    assert n_turns == 1
