"""The command line on consoles of any encoding, and with readers that leave: no traceback, whatever the text."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.process import ENV

from uad.base.console import set_up_logging
from uad.base.log_writer import drain
from uad.tools.cli import main

TEXT = "naïve 東京 \N{FOX FACE}"
# one answer with any text: an answer of the stand-in runtime of test_cli, in a process with a real console
PROGRAM = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[2])!r}, {str(Path(__file__).parent)!r}]
import test_cli
from types import ModuleType
from uad.base.events import Delta
from uad.base.types import Origin
runtime = test_cli.FakeRuntime((Delta(5, (8, 1), (Origin.TARGET, Origin.TARGET), {TEXT!a}), test_cli.DONE))
module = ModuleType("uad.runtime.runtime")
def opened(config, report, planned):
    runtime.config = config
    return runtime
module.Runtime = type("Runtime", (), {{"open": staticmethod(opened)}})
sys.modules["uad.runtime.runtime"] = module
from uad.tools.cli import main
code = main(sys.argv[1:])
print("asked", ascii(runtime.requests), file=sys.stderr)
sys.exit(code)
"""
GENERATE = ("generate", "-m", "x", "-p", "Hi")


def run(
    *words: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(
        command, capture_output=True, timeout=240, env={**ENV, **(env or {})}, input=stdin, check=False
    )


@pytest.mark.parametrize(
    ("env", "encoding", "color"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, "cp1252", "off"),
        ({"PYTHONIOENCODING": "ascii"}, "ascii", "off"),
        ({"PYTHONIOENCODING": "ascii"}, "ascii", "on"),
        ({"PYTHONIOENCODING": "cp437:strict"}, "cp437", "off"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "ascii", "off"),
    ],
)
def test_an_answer_is_written_on_any_console(env, encoding, color):
    done = run(*GENERATE, "--color", color, env=env)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    if color == "off":
        assert (
            done.stdout.decode(encoding).splitlines()[0]
            == TEXT.encode(encoding, "backslashreplace").decode(encoding) + "!"
        )


@pytest.mark.parametrize(
    "words",
    [("--help",), ("serve", "--help"), ("mapping", "list"), ("mapping", "show", "chatml"), ("serve", "-m", "東京")],
)
def test_every_command_speaks_ascii_where_it_must(words):
    done = subprocess.run(
        [sys.executable, "-m", "uad", *words],
        capture_output=True,
        timeout=240,
        env={**ENV, "PYTHONIOENCODING": "ascii"},
    )
    assert b"Traceback" not in done.stderr, done.stderr
    assert all(byte < 128 for byte in done.stdout + done.stderr)


def test_words_are_utf_8_where_the_locale_knows_none():
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("generate", "-m", "x", "-p", "é", env=env)
    assert b"(7, 1)" in done.stderr, done.stderr  # one character, not two bytes


@pytest.mark.parametrize(
    ("words", "named"),
    [(("generate", "-m", "x", "-p", b"a\xff"), b"-p"), (("serve", "-m", "x", "--alias", b"\xff"), b"--alias")],
)
def test_a_word_that_is_no_text_is_wrong_usage(words, named):
    done = run(*words)
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False), done.stderr
    assert named + b": not UTF-8 text" in done.stderr


def test_a_prompt_from_stdin_is_utf_8_on_any_console():
    for data in ("é".encode(), "\ufeffé".encode()):
        done = run("generate", "-m", "x", "-f", "-", stdin=data, env={"PYTHONIOENCODING": "cp1252"})
        assert b"(7, 1)" in done.stderr, done.stderr


CLOSED = (
    ">&-",
    "2>&-",
    ">&- 2>&-",
    "<&-",
    ">/dev/full",
    "2>/dev/full",
    "| true",
    "2>&1 | true",
    "2>&1 >/dev/null | true",
)


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        *(("generate -m x -p Hi", one) for one in CLOSED),
        *(("--help", one) for one in (">&-", ">/dev/full", "| true")),
        *(("serve -m x --port no", one) for one in ("2>&-", "2>/dev/full", "2>&1 >/dev/null | true")),
    ],
)
def test_closed_and_full_outputs_end_without_a_traceback(tmp_path, closed, words):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace('print("asked", ascii(runtime.requests), file=sys.stderr)', ""))
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} {program} {words} {closed}"],
        capture_output=True,
        timeout=240,
        env=dict(ENV),
        check=False,
    )
    assert b"Traceback" not in done.stderr + done.stdout, done.stderr
    assert b"Exception ignored" not in done.stderr


def test_the_log_goes_into_a_file_too(tmp_path):
    file = tmp_path / "uad.log"
    root, own = logging.getLogger(), logging.getLogger("uad")
    before, level = list(root.handlers), own.level
    try:
        set_up_logging(logging.INFO, file)
        own.info("a line")
        drain()
    finally:
        for handler in [one for one in root.handlers if one not in before]:
            root.removeHandler(handler)
            handler.close()
        own.setLevel(level)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO  a line\n", file.read_text())


def test_a_log_that_cannot_be_written_is_told(tmp_path, capsys):
    assert main(["serve", "-m", "x", "--log-file", str(tmp_path / "no" / "uad.log")]) == 2
    assert "--log-file" in capsys.readouterr().err
