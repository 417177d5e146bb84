"""Parts that fail while answers go on: a bug's traceback is in the log once, what was foreseen is one line."""

import logging

import pytest

from uad.base.errors import DecodeError
from uad.engine.decode import guard
from uad.engine.decode.guard import Guarded


@pytest.fixture(autouse=True)
def _nothing_was_shown(monkeypatch):
    monkeypatch.setattr(guard, "_shown", set())


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def crash(part):
    raise ZeroDivisionError(part)


def other_crash(part):
    raise ZeroDivisionError(part)


def refuse(part):
    raise DecodeError("no room")


def failures(caplog, *works):
    """The records of a part that fails in these ways, and comes back each time."""
    clock = Clock()
    with caplog.at_level(logging.WARNING, "uad.draft"):
        guarded = Guarded("suffix", "part", clock)
        for work in works:
            clock.now += 1000
            guarded.bring_back(lambda part: None)
            guarded.do(work)
    assert guarded.n_failures == len(works)
    return caplog.records


def test_the_first_failure_of_a_kind_comes_with_its_traceback_and_later_ones_are_lines(caplog):
    records = failures(caplog, crash, crash, other_crash, crash, other_crash)
    assert [record.levelname for record in records] == ["WARNING"] * 5
    assert [bool(record.exc_info) for record in records] == [True, False, True, False, False]
    assert records[0].exc_info[1].args == ("part",)
    assert all(
        record.getMessage().startswith("suffix failed (ZeroDivisionError: part, test_guard.py:") for record in records
    )


def test_an_error_that_was_foreseen_is_one_line(caplog):
    records = failures(caplog, refuse, refuse)
    assert [record.exc_info for record in records] == [None, None]
    assert records[0].getMessage() == "suffix failed (no room) and is left alone for 1 s; answers go on without it"


def test_a_kind_is_known_in_all_parts(caplog):
    failures(caplog, crash)
    assert [bool(record.exc_info) for record in failures(caplog, crash)] == [True, False]
