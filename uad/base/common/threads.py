"""Threads with a stack of a given size, for what calls itself deeply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
_lock = threading.Lock()


def start_deep(work: Callable[[], T], name: str, n_bytes: int) -> tuple[threading.Thread, Future[T]]:
    """Do `work` on a thread with a stack of n_bytes, of which only what is used takes memory; it does not outlive the
    process. With it comes what the work returns or raises.

    Raises RuntimeError or ValueError where the system gives none.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    # The size is a setting of the process for all new threads, so two that change it must not do so at once.
    with _lock:
        usual = threading.stack_size(n_bytes)
        try:
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            return thread, done
        finally:
            threading.stack_size(usual)
