"""Work that may take too long, or call too deeply for usual threads: on threads of its own, with a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TypeVar

from uad.base.common.threads import start_deep
from uad.base.errors import InvalidRequestError, UnavailableError

T = TypeVar("T")
MOST_CPU_S = 0.8
"""What is within the limits of size takes a third of this."""
LONGEST_S = 5.0
_LOOK_S = 0.1
_STACK = 256 << 20  # bytes
_MOST_AT_ONCE = 8

_running = threading.BoundedSemaphore(_MOST_AT_ONCE)


def limited(work: Callable[[], T]) -> T:
    """What `work` returns or raises.

    Raises InvalidRequestError where it computes for longer than MOST_CPU_S, or takes longer than LONGEST_S on a busy
    machine; then it is left to end by itself. Raises UnavailableError where too much is left so.
    """
    if not _running.acquire(blocking=False):
        raise UnavailableError(f"{_MOST_AT_ONCE} grammars are being compiled; try again later")
    done: Future[T] = Future()
    try:
        thread = start_deep(lambda: _work(work, done), "uad-grammar", _STACK)
    except BaseException:
        _running.release()
        raise
    began = monotonic()
    while True:
        try:
            return done.result(_LOOK_S)
        except TimeoutError:
            is_late = monotonic() - began > LONGEST_S or _cpu_seconds(thread, began) > MOST_CPU_S
            if is_late and not done.done():
                raise InvalidRequestError("it takes too long to compile; send something simpler") from None


def _cpu_seconds(thread: threading.Thread, began: float) -> float:
    """What a thread computed so far; where the system does not say, or it has ended, the time since it began."""
    try:
        return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return monotonic() - began


def _work(work: Callable[[], T], done: Future[T]) -> None:
    try:
        result = work()
    except BaseException as error:
        _running.release()
        done.set_exception(error)
    else:
        _running.release()
        done.set_result(result)
