"""Streams for logs that never make the writer wait: a bounded queue, and a thread that writes to the file."""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, cast

MOST_BYTES = 1 << 20
"""Bytes that wait for a reader; what comes after them is lost."""
_PIECE_BYTES = 1 << 16
_DRAIN_S = 1.0


class LogWriter(io.TextIOBase):
    """Text for an open file, in this order. A reader that is gone or reads nothing costs lines, never time: a line in
    the file says how many are missing.
    """

    def __init__(self, fd: int, encoding: str = "utf-8", most_bytes: int = MOST_BYTES) -> None:
        """fd: copied, and never closed here."""
        self._fd, self._shown_fd, self._text_encoding, self._most = os.dup(fd), fd, encoding, most_bytes
        self._waiting: list[bytes] = []
        self._n_bytes = 0  # that wait or are being written
        self._n_lost = 0  # lines after those that wait
        self._is_cut = False  # the last write was lost and ended no line
        self._changed = threading.Condition()
        threading.Thread(target=self._write_on, name="uad-log", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Name of the encoding that texts are written in."""
        return self._text_encoding

    def fileno(self) -> int:
        """The descriptor that this writer stands for."""
        return self._shown_fd

    def isatty(self) -> bool:
        """Whether the file is a terminal."""
        return os.isatty(self._fd)

    def writable(self) -> bool:
        """Always: a write that fails costs lines."""
        return True

    def write(self, text: str) -> int:
        """Have the text written, or lost where too much waits."""
        data = text.encode(self._text_encoding, "backslashreplace")
        with self._changed:
            if self._is_cut or self._n_lost or self._n_bytes + len(data) > self._most:
                self._n_lost += text.count("\n")
                self._is_cut = not text.endswith("\n")
            else:
                self._waiting.append(data)
                self._n_bytes += len(data)
            self._changed.notify_all()
        return len(text)

    def drain(self, seconds: float) -> None:
        """Wait until all is written, for at most this long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._n_bytes and not self._n_lost, seconds)

    def _write_on(self) -> None:
        n_failed = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._n_lost)
                text, self._waiting = b"".join(self._waiting), []
                n_lost, self._n_lost = self._n_lost, 0
            n_failed = self._written(_missing(n_failed) + text + _missing(n_lost))
            with self._changed:
                self._n_bytes -= len(text)
                self._changed.notify_all()

    def _written(self, text: bytes) -> int:
        """Write all of it; returns how many lines could not be written."""
        while text:
            try:
                text = text[os.write(self._fd, text[:_PIECE_BYTES]) :]
            except BlockingIOError:  # another process made the terminal or pipe non-blocking
                select.select([], [self._fd], [])
            except OSError:
                return text.count(b"\n")
        return 0


def _missing(n: int) -> bytes:
    lines = "1 line is" if n == 1 else f"{n} lines are"
    return f"uad: {lines} missing here: nothing could be written\n".encode() * bool(n)


_writers: dict[tuple[int, int], LogWriter] = {}
"""By device and number of the file."""


def never_wait() -> None:
    """From now on writing to stdout and stderr neither waits nor fails, whatever becomes of their readers: lines may be
    lost. For servers; `drain` before the process ends.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        with suppress(OSError, ValueError):  # a test's, which is no file
            setattr(sys, name, cast(TextIO, writer_of(stream.fileno(), stream.encoding)))


def writer_of(fd: int, encoding: str = "utf-8") -> LogWriter:
    """The one of this file: what two streams write to the same file stays in order."""
    status = os.fstat(fd)
    key = status.st_dev, status.st_ino
    if key not in _writers:
        _writers[key] = LogWriter(fd, encoding)
    return _writers[key]


def drain() -> None:
    """Wait until what was written has been taken, for a moment at most."""
    for writer in _writers.values():
        writer.drain(_DRAIN_S)


@contextmanager
def kept_streams() -> Iterator[None]:
    """At the end all is written, and stdout and stderr are what they were."""
    before = sys.stdout, sys.stderr
    try:
        yield
    finally:
        drain()
        _writers.clear()
        sys.stdout, sys.stderr = before
