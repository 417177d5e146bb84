"""The runtime's door, on a scripted target: what is told to requests that come while it closes."""

from __future__ import annotations

import threading

import pytest
from kit.runtime_parts import parts_on
from kit.toys import TARGET_VOCAB, Collector, ScriptedModel, make_engine

from uad.base.config import Config
from uad.base.errors import DecodeError, UadError, UnavailableError
from uad.base.types import Request
from uad.runtime import runtime
from uad.runtime.runtime import Runtime


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    engine = make_engine(ScriptedModel(TARGET_VOCAB))
    parts = parts_on(engine)
    monkeypatch.setattr(runtime, "build", lambda *_: parts)
    return Runtime.open(Config(target=None))


def test_a_request_that_meets_the_close_is_refused_and_not_forgotten(
    opened: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened._engine.requests, "check", lambda request: opened.close())
    with pytest.raises(UnavailableError, match="shutting down"):
        opened.submit(Request((1,)), Collector())


def test_who_was_let_in_before_a_fatal_error_is_told_of_it_though_clearing_away_fails(
    opened: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One request runs into the error, another one's command is still queued behind it, and a third cannot be cancelled
    any more.
    """
    first, second, reached = Collector(), Collector(), threading.Event()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("broken")

    def step(*_: object) -> None:
        real_step()
        opened._commands.put(lambda: engine.cancel(7))
        opened.submit(Request((1,)), second)
        monkeypatch.setattr(engine.requests, "_close", broken)
        reached.set()
        broken()

    engine = opened._engine
    real_step = engine.step
    monkeypatch.setattr(engine, "cancel", broken)
    monkeypatch.setattr(engine, "step", step)
    opened.submit(Request((1, 2)), first)
    assert reached.wait(120)
    opened.close()
    assert "ZeroDivisionError" in str(first.failed.error)
    assert isinstance(second.failed.error, UadError)
    with pytest.raises(UnavailableError, match="must be restarted"):
        opened.submit(Request((1,)), Collector())


def test_a_close_does_not_wait_for_ever_for_a_pass_that_does_not_end(
    opened: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does not whose RPC worker is a stopped process: the system says that it lives."""
    reached, go_on = threading.Event(), threading.Event()

    def step(*_: object) -> None:
        reached.set()
        go_on.wait()

    monkeypatch.setattr(opened._engine, "step", step)
    monkeypatch.setattr(runtime, "LONGEST_ROUND_S", 0.01)
    opened.submit(Request((1,)), Collector())
    assert reached.wait(120)
    with pytest.raises(DecodeError, match=r"one pass for 0\.01 s; a device or an RPC worker stands still"):
        opened.close()
    go_on.set()
    opened._thread.join(120)
    assert not opened._thread.is_alive()
