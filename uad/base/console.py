"""Terminal output of commands and measurements: lines on stderr, progress, width of tables, logging, words and colours
of drafters. Knows no model and no flag.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Self, TextIO

from uad.base.common.request_id import REQUEST_ID
from uad.base.log_writer import writer_of

if TYPE_CHECKING:  # rich is imported where something is drawn: a server draws nothing
    from rich.console import Console
    from rich.progress import TaskID

Report = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""
_LEVELS = {
    logging.DEBUG: ("DEBUG", "2"),
    logging.INFO: ("INFO", ""),
    logging.WARNING: ("WARN", "33"),
    logging.ERROR: ("ERROR", "31"),
    logging.CRITICAL: ("ERROR", "31"),
}
"""Names of levels, and their colours on terminals."""
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 9}


def heed_interrupts() -> None:
    """SIGINT raises KeyboardInterrupt also where a script started this process in its background: the shell has it
    ignored there, and Python leaves that so. On the main thread.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def prepare_streams() -> None:
    """Let stdout and stderr show any text in any encoding: what it lacks is written as \\u6771. A stream that is closed
    goes nowhere.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # else the next socket would be what llama.cpp prints to
        pass
    os.close(fd)
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
    """A line on stderr. Where that is closed the work goes on."""
    with suppress(OSError):
        print(line, file=err, flush=True)


class LogLines(logging.Formatter):
    """How each line of the log is written: date, level, the request it is about, what happened."""

    def __init__(self, is_dated: bool = True, has_level: bool = True, colors: str = "off") -> None:
        """colors: of levels; on, off, or auto, which is on where stderr is a terminal."""
        super().__init__("%(message)s", "%Y-%m-%d %H:%M:%S")
        self._is_dated, self._has_level = is_dated, has_level
        can_show = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        self._is_coloured = colors == "on" or (colors == "auto" and can_show)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds: no client can write a line of its own, or move the cursor."""
        name, colour = _LEVELS.get(record.levelno, (record.levelname, ""))
        level = f"\x1b[{colour}m{name:5}\x1b[0m" if self._is_coloured and colour else f"{name:5}"
        request = REQUEST_ID.get()
        message = record.message.translate(_CONTROLS)
        date = f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03}"
        parts = (date * self._is_dated, level * self._has_level, f"[{request}]" if request else "", message)
        return " ".join(part for part in parts if part)


def level_of(line: str) -> tuple[int, str]:
    """The level that a line of a log begins with, and the rest; of others INFO, of a command's last words ERROR."""
    word, _, rest = line.partition(" ")
    for number, (name, _) in _LEVELS.items():
        if word == name:
            return number, rest.lstrip()
    return (logging.ERROR if line.startswith("uad: error: ") else logging.INFO), line


def set_up_logging(
    level: int = logging.WARNING, file: Path | None = None, lines: LogLines | None = None, is_off: bool = False
) -> None:
    """The program's own log on stderr, unless `is_off`, and in a file, from this level on; other libraries only warn.

    lines: their form on stderr. Raises OSError where the file cannot be written.
    """
    shown: logging.Handler = logging.NullHandler() if is_off else logging.StreamHandler(sys.stderr)
    shown.setFormatter(lines or LogLines())
    logging.basicConfig(handlers=[shown], level=logging.WARNING)
    if file is not None:
        handler = logging.StreamHandler(writer_of(_opened(file)))
        handler.setFormatter(LogLines())
        logging.getLogger().addHandler(handler)
    logging.getLogger("uad").setLevel(level)


def _opened(file: Path) -> int:
    """Raises OSError. A pipe is opened for reading, too: else opening it waits for a reader."""
    access = os.O_RDWR if file.is_fifo() else os.O_WRONLY
    return os.open(file, access | os.O_APPEND | os.O_CREAT, 0o666)


def console_on(stream: TextIO | None = None, width: int = 160) -> Console:
    """A console for tables on this stream, or on stdout; `width` columns where that is a pipe or a file."""
    from rich.console import Console

    out = stream or sys.stdout
    return Console(file=out, width=None if out.isatty() else width)


@contextmanager
def progress(err: TextIO, quiet: bool = False, tell: Callable[[str], None] | None = None) -> Iterator[Report]:
    """A bar per step on a terminal; elsewhere one line when a step begins and one when it is done, which go to `tell`
    where there is one.
    """
    if quiet:
        yield lambda what, share: None
    elif err.isatty():
        with Bar(err) as bar:
            yield bar.report
    else:
        yield _Lines(tell or (lambda line: say(err, f"uad: {line}"))).report


class Bar:
    """Progress on a terminal: a bar for each step that is reported, and one that counts `n_runs` runs, which is gone at
    the end.

    Use it as a context manager. On a stream that is no terminal it draws nothing.
    """

    def __init__(self, stream: TextIO, n_runs: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        bar, share = BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f} %")
        columns = (TextColumn("uad: {task.description}"), bar, share, TimeElapsedColumn(), TimeRemainingColumn())
        console = Console(file=stream)
        self._progress = Progress(*columns, console=console, transient=n_runs > 0, disable=not console.is_terminal)
        self._runs = self._progress.add_task("starting", total=n_runs, visible=n_runs > 0)
        self._steps: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def report(self, what: str, share: float) -> None:
        """So much of a step is done (0 to 1); from any thread."""
        if what not in self._steps:
            self._steps[what] = self._progress.add_task(what, total=1.0)
        self._progress.update(self._steps[what], completed=share)

    def at(self, what: str) -> None:
        """Say what the next run measures."""
        self._progress.update(self._runs, description=what)

    def step(self) -> None:
        """One run is done."""
        self._progress.advance(self._runs)


class _Lines:
    """Two lines per step, for logs."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._started: dict[str, float] = {}
        self._done: set[str] = set()

    def report(self, what: str, share: float) -> None:
        if what not in self._started:
            self._started[what] = monotonic()
            self._tell(f"{what} …")
        if share >= 1.0 and what not in self._done:
            self._done.add(what)
            self._tell(f"{what}: done in {monotonic() - self._started[what]:.1f} s")


# --- what an origin of tokens is called and coloured as, as on the page (`page/origins.js`)


TARGET: Final = "target"
GRAMMAR: Final = "grammar"
MODEL: Final = "model"
BESIDE: Final = "beside"
LOOK_UP: Final = "text"

WORDS: Final = {
    MODEL: "draft model",
    BESIDE: "draft model beside it",
    LOOK_UP: "look-up",
    GRAMMAR: "grammar",
    TARGET: "target",
}
COLOURS: Final = {MODEL: 32, BESIDE: 98, LOOK_UP: 172, GRAMMAR: 36}
"""Numbers of a terminal's 256 colours: blue, violet, orange and green, which colour-blind readers can distinguish."""
_PLAIN: Final = "\x1b[0m"


def kind_of(origin: str) -> str:
    """The kind of a name of --spec-type, or of `target`: one of `WORDS`."""
    if origin in (TARGET, GRAMMAR):
        return origin
    if origin.startswith("draft-simple-"):  # the second draft model, and so on
        return BESIDE
    return MODEL if origin.startswith("draft-") else LOOK_UP


def painted(text: str, origin: str) -> str:
    """The text as a terminal shows it: drafted text underlined, in its colour."""
    kind = kind_of(origin)
    return _painted(text, kind) if kind in COLOURS else text


def _painted(text: str, kind: str) -> str:
    return f"\x1b[4;38;5;{COLOURS[kind]}m{text}{_PLAIN}"


def legend() -> str:
    """The meaning of the colours, in one line."""
    drafted = ", ".join(_painted(WORDS[kind], kind) for kind in COLOURS)
    return f"guessed by: {drafted}; plain: {WORDS[TARGET]}"
