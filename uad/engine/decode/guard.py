"""Keeps the failures of what only helps (a drafter, the policy) from the answers: a part that fails is off, and tried
again after a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import extract_tb
from typing import Generic, TypeVar

from uad.base.errors import UadError
from uad.base.events import Event, Sink
from uad.base.types import Clock

_log = logging.getLogger("uad.draft")
_request_log = logging.getLogger("uad.request")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 300.0
_SOUND_S = 60.0  # a part that worked this long, and longer than its last pause, begins with a short pause again

_shown: set[tuple[str, str]] = set()
"""Kinds of bugs whose traceback is in the log."""

T = TypeVar("T")
X = TypeVar("X")


class Guarded(Generic[T]):
    """Runs calls of a part that may fail. An exception turns the part off, is logged and counted.

    It may be brought back after a pause. Each failure doubles the pause, from a second to five minutes.
    """

    def __init__(self, name: str, part: T, clock: Clock) -> None:
        self.part = part
        self.is_on = True
        self.n_failures = 0
        self.is_held = False
        """Whether it stays off, whatever its pause: what it needs is not loaded."""
        self._name = name
        self._clock = clock
        self._pause = 0.0
        self._since = 0.0  # when it was last turned on or off

    def do(self, work: Callable[[T], X]) -> X | None:
        """The result of work(part); None if the part is off, or fails."""
        if self.is_on:
            try:
                return work(self.part)
            except Exception as error:
                self._failed(error)
        return None

    def bring_back(self, work: Callable[[T], None]) -> bool:
        """Turn it on where its pause is over; `work` makes it ready. Whether it came back."""
        if self.is_on or self.is_held or self._clock() < self._since + self._pause:
            return False
        self.is_on, self._since = True, self._clock()
        self.do(work)
        if self.is_on:
            _log.info("%s is asked again", self._name)
        return self.is_on

    def hold(self, is_held: bool) -> None:
        """Keep it off from now on, or let it go again."""
        if is_held or self.is_held:
            self.is_held, self.is_on, self._since = is_held, not is_held, self._clock()

    def _failed(self, error: Exception) -> None:
        now = self._clock()
        is_sound = now - self._since > max(self._pause, _SOUND_S)
        self._pause = _FIRST_PAUSE_S if is_sound or not self._pause else min(2 * self._pause, _LONGEST_PAUSE_S)
        self.is_on, self._since = False, now
        self.n_failures += 1
        text = "%s failed (%s) and is left alone for %.0f s; answers go on without it"
        warn(_log, error, text, self._name, reason(error), self._pause)


def reason(error: Exception) -> str:
    """An exception in a few words; of an unexpected one, its type and place, too."""
    if isinstance(error, UadError):
        return str(error)
    place = _place(error)
    return f"{type(error).__name__}: {error}" + (f", {place.rpartition('/')[2]}" if place else "")


def warn(log: logging.Logger, error: Exception, text: str, *args: object) -> None:
    """A warning about what works on without the part that failed. The first unexpected error of a kind, which
    must be a bug, comes with its traceback; a kind is a type at a place.
    """
    kind = type(error).__name__, _place(error)
    is_new = not isinstance(error, UadError) and kind not in _shown
    _shown.add(kind)
    log.warning(text, *args, exc_info=error if is_new else None)


def _place(error: Exception) -> str:
    """The file and the line that raised it."""
    trace = extract_tb(error.__traceback__)
    return f"{trace[-1].filename}:{trace[-1].lineno}" if trace else ""


# --- failures of requests


@contextmanager
def logged(what: str) -> Iterator[None]:
    """An exception that concerns no other request ends here."""
    try:
        yield
    except Exception:
        _request_log.exception("%s", what)


def deliver(sink: Sink, event: Event) -> None:
    """The last event of a request."""
    with logged("the last event of a request could not be delivered"):
        sink(event)


def known(error: Exception) -> UadError:
    """The error, as users may see it; the log has the rest of an unexpected one."""
    if isinstance(error, UadError):
        return error
    _request_log.error("a request failed for an unexpected reason", exc_info=error)
    return UadError(f"internal error: {reason(error)}")
