"""Threads with a stack of a given size, for what calls itself deeply."""

from __future__ import annotations

import threading
from collections.abc import Callable

_lock = threading.Lock()


def start_deep(target: Callable[[], None], name: str, n_bytes: int) -> threading.Thread:
    """Start a thread with a stack of n_bytes, of which only what is used takes memory; it does not outlive the process.

    Raises RuntimeError or ValueError where the system gives none.
    """
    # The size is a setting of the process for all new threads, so two that change it must not do so at once.
    with _lock:
        usual = threading.stack_size(n_bytes)
        try:
            thread = threading.Thread(target=target, name=name, daemon=True)
            thread.start()
            return thread
        finally:
            threading.stack_size(usual)
