"""llama.cpp's own log: whole lines among those of the program, and where there is no log on stderr."""

from __future__ import annotations

import logging

import pytest

from uad.llama.backend.native import Log

PIECES = [(3, b"a warning\n"), (2, b"loading "), (5, b"."), (5, b".\nnext\n"), (1, b"detail\n"), (4, b"an error\n")]


def receive(log: Log) -> None:
    for level, text in PIECES:
        log._receive(level, text, None)


def test_pieces_become_lines_with_their_level(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.verbose = True
    with caplog.at_level(logging.DEBUG, "uad.llama"):
        receive(log)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "a warning"),
        ("INFO", "loading .."),
        ("INFO", "next"),
        ("DEBUG", "detail"),
        ("ERROR", "an error"),
    ]


def test_nothing_is_said_unless_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    with caplog.at_level(logging.DEBUG, "uad.llama"):
        receive(log)
    assert caplog.records == []
    assert log.reason() == "an error"


def test_without_a_log_the_lines_are_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    log.verbose = True
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    receive(log)
    assert capsys.readouterr().err == "a warning\nloading ..\nnext\ndetail\nan error\n"
