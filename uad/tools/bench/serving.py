"""`uad serve` in a process of its own, for as long as something is measured on it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from uad.base.common.children import python
from uad.base.errors import ConfigError, UnavailableError
from uad.tools.bench.client import Client

_LISTENING = re.compile(r"listening on (https?://\S+)")
_STOP_SECONDS = 20.0
_WRONG_USAGE = 2  # exit code
# a plain start: no page, and of its log only what people should know
_WORDS = ("--host", "127.0.0.1", "--port", "0", "--no-ui", "--verbosity", "2")


@contextmanager
def serving(words: Sequence[str], environ: Mapping[str, str], key: str | None = None) -> Iterator[Client]:
    """A server on any free port of this machine until the block ends, however it does: by its end, an error, Ctrl-C, or
    a signal that ends this process. words: flags of `uad serve`; what it warns of goes to this process's stderr.
    key: what it asks of its clients, if these flags say so.

    Raises ConfigError where the server refuses its flags or files, and UnavailableError where it ends otherwise; it has
    then said why itself.
    """
    command = python("uad", "serve", *_WORDS, *words)
    with (
        ended_by_signals(),
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environ, encoding="utf-8"
        ) as process,
    ):
        try:
            yield Client(_address(process), key)
        finally:
            _stop(process)


def _address(process: subprocess.Popen[str]) -> str:
    """Waits until the server has loaded its models and says where it listens, or ends."""
    assert process.stdout is not None
    for line in process.stdout:
        if match := _LISTENING.search(line):
            return match[1]
    code = process.wait()
    kind = ConfigError if code == _WRONG_USAGE else UnavailableError
    raise kind(f"`uad serve` ended with code {code} before it was ready; what it said is above")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process as SystemExit meanwhile, so that the server is stopped on the way. Without
    it they would end this process at once, and the server would be left. So does SIGINT where a script started this
    process in its background, and Python leaves it ignored: Ctrl-C stops the server all the same.
    """
    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():  # only it may set handlers
        numbers = []
    old = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            if number == signal.SIGINT or old[number] is not signal.SIG_IGN:  # `nohup` has SIGHUP ignored
                signal.signal(number, _leave)
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
