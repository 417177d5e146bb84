"""Lines of the log: one form for all, which no client can break."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from uad.base.common.request_id import REQUEST_ID, about, request_id
from uad.base.config.load import load_config
from uad.base.console import LogLines, progress
from uad.tools.cli.serve import log_line

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "


def line(message: str, level: int = logging.INFO, form: LogLines | None = None, error: Exception | None = None) -> str:
    info = (type(error), error, None) if error else None
    record = logging.LogRecord("uad.request", level, __file__, 1, message, (), info)
    return (form or LogLines()).format(record)


@pytest.mark.parametrize(
    ("level", "name"),
    [(logging.DEBUG, "DEBUG"), (logging.INFO, "INFO "), (logging.WARNING, "WARN "), (logging.ERROR, "ERROR")],
)
def test_a_line_has_date_level_and_message(level: int, name: str) -> None:
    assert re.fullmatch(DATE + f"{name} a line", line("a line", level))


def test_a_line_about_a_request_has_its_name() -> None:
    with about("req_7"):
        assert re.fullmatch(DATE + r"INFO  \[req_7\] a line", line("a line"))
    assert REQUEST_ID.get() == ""


def test_date_and_level_can_be_left_to_systemd_and_docker() -> None:
    assert line("a line", form=LogLines(is_dated=False)) == "INFO  a line"
    assert line("a line", form=LogLines(is_dated=False, has_level=False)) == "a line"
    assert re.fullmatch(DATE + "a line", line("a line", form=LogLines(has_level=False)))


def test_what_a_client_sent_cannot_begin_a_line_or_paint_the_terminal() -> None:
    assert line("a\nERROR b\r\x1b[31m\x9b0m", form=LogLines(is_dated=False)) == (
        r"INFO  a\x0aERROR b\x0d\x1b[31m\x9b0m"
    )


def test_a_traceback_keeps_its_lines() -> None:
    assert line("failed", error=ValueError("why")).splitlines()[1:] == ["ValueError: why"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("colors", "is_terminal", "no_color", "has"),
    [
        ("auto", True, False, True),
        ("auto", False, False, False),
        ("auto", True, True, False),
        ("on", False, True, True),
        ("off", True, False, False),
    ],
)
def test_colours_are_for_terminals_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, colors: str, is_terminal: bool, no_color: bool, has: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal() if is_terminal else io.StringIO())
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    said = line("a line", logging.WARNING, LogLines(is_dated=False, colors=colors))
    assert said == ("\x1b[33mWARN \x1b[0m a line" if has else "WARN  a line")


def test_progress_of_a_server_is_told_in_its_log() -> None:
    told: list[str] = []
    with progress(io.StringIO(), tell=told.append) as report:
        report("loading target", 0.0)
        report("loading target", 1.0)
    assert told[0] == "loading target …"
    assert re.fullmatch(r"loading target: done in \d+\.\d s", told[1])


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        ((), {}, {"verbosity": 3, "timestamps": True, "prefix": True, "colors": "auto", "is_off": False}),
        (("-lv", "1"), {}, {"verbosity": 1}),
        (("--log-verbosity", "5"), {}, {"verbosity": 5}),
        (("--no-log-timestamps", "--no-log-prefix"), {}, {"timestamps": False, "prefix": False}),
        (("--log-colors", "off"), {}, {"colors": "off"}),
        (("--log-colors",), {}, {"colors": "on"}),
        (("--log-disable",), {}, {"is_off": True}),
        ((), {"LLAMA_ARG_LOG_COLORS": "on", "LLAMA_ARG_NO_LOG_TIMESTAMPS": "1"}, {"colors": "on", "timestamps": False}),
        ((), {"LLAMA_ARG_LOG_VERBOSITY": "2", "LLAMA_ARG_LOG_PREFIX": "off"}, {"verbosity": 2, "prefix": False}),
    ],
)
def test_the_flags_are_llama_servers(
    words: tuple[str, ...], environ: dict[str, str], expected: dict[str, object]
) -> None:
    log = load_config(["-m", "x.gguf", *words], environ).log
    assert {name: getattr(log, name) for name in expected} == expected


def test_names_that_are_made_differ() -> None:
    assert len({request_id(None) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("INFO  [req_1] request 3: read 9 tokens", "INFO", "[a] [req_1] request 3: read 9 tokens"),
        ("WARN  a template", "WARNING", "[a] a template"),
        ("ERROR the model thread stopped", "ERROR", "[a] the model thread stopped"),
        ("DEBUG llama_context: n_ctx", "DEBUG", "[a] llama_context: n_ctx"),
        ("uad: error: no such file", "ERROR", "[a] uad: error: no such file"),
        ("INFORMATION", "INFO", "[a] INFORMATION"),
        ("", "INFO", "[a] "),
    ],
)
def test_a_line_of_a_models_process_has_one_date_and_its_level(
    line: str, level: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "uad")
    log_line("a", line)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, text)]
