"""Long work that no request waits for any more ends early: it calls `checkpoint()` between two pieces, a few
milliseconds apart.

Knows neither HTTP nor what the work is. Without `wanted_while` around it, a checkpoint does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_wanted: ContextVar[Callable[[], bool] | None] = ContextVar("is_wanted", default=None)


class DroppedError(Exception):
    """No request waits for the result of this work. Not an error that users see."""


@contextmanager
def wanted_while(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Work of this thread, inside the block, goes on only while `is_wanted()`, which is asked at every checkpoint."""
    token = _is_wanted.set(is_wanted)
    try:
        yield
    finally:
        _is_wanted.reset(token)


def checkpoint() -> None:
    """Raise DroppedError where the work of this thread is not wanted any more."""
    is_wanted = _is_wanted.get()
    if is_wanted is not None and not is_wanted():
        raise DroppedError
