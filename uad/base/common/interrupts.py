"""Ctrl-C at any moment: one line and exit code 130. Imports nothing that takes time."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
_IMPORTING = "<frozen importlib"


def catch() -> None:
    """From now on SIGINT raises KeyboardInterrupt, and ends the process at once while modules are imported: there
    Python loses exceptions in callbacks of its own, and nothing has to be tidied up yet. On the main thread.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a script started it in its background
        signal.signal(signal.SIGINT, _interrupted)
    if os.getpid() == 1:  # the first process of a container is sent only signals that it has handlers for
        signal.signal(signal.SIGTERM, _end)


def leave_at_once() -> None:
    """From now on SIGINT ends the process: all is tidied up."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, _leave)


def _interrupted(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            _leave(number, frame)
        frame = frame.f_back
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    with suppress(OSError):
        os.write(2, b"\nuad: interrupted\n")
    os._exit(INTERRUPTED)
