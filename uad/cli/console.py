"""What the commands share at the terminal: lines on stderr, progress of loading, logging. Knows no model and no flag."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from time import monotonic
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

Report = Callable[[str, float], None]
"""Told what is being done and the share of it that is done."""


def prepare_streams() -> None:
    """Let stdout and stderr show any text in any encoding: what it lacks is written as \\u6771. A stream that is closed goes nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it lives as long as the process
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def note(line: str) -> None:
    """One line for people, on stderr."""
    say(sys.stderr, f"uad: {line}")


def say(err: TextIO, line: str) -> None:
    """A line for people. Where nobody reads them any more the work goes on."""
    with suppress(OSError):
        print(line, file=err, flush=True)


def set_up_logging(level: int) -> None:
    """The program's own log on stderr, from this level on; other libraries only warn."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
    logging.getLogger("uad").setLevel(level)


@contextmanager
def progress(err: TextIO, quiet: bool = False) -> Iterator[Report]:
    """A bar per step on a terminal; elsewhere one line when a step begins and one when it is done."""
    if quiet:
        yield lambda what, share: None
    elif err.isatty():
        with _Bars(err) as bars:
            yield bars.report
    else:
        yield _Lines(err).report


class _Bars:
    """Progress bars that leave their last state on the screen."""

    def __init__(self, err: TextIO) -> None:
        columns = (TextColumn("uad: {task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(file=err))
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def report(self, what: str, share: float) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=1.0)
        self._progress.update(self._tasks[what], completed=share)


class _Lines:
    """Two lines per step, for logs."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._started: dict[str, float] = {}
        self._done: set[str] = set()

    def report(self, what: str, share: float) -> None:
        if what not in self._started:
            self._started[what] = monotonic()
            say(self._err, f"uad: {what} …")
        if share >= 1.0 and what not in self._done:
            self._done.add(what)
            say(self._err, f"uad: {what}: done in {monotonic() - self._started[what]:.1f} s")
