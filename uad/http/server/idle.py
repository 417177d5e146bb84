"""When the models are unloaded: once no request has needed them for a number of seconds. On the event loop's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

from uad.http.requests.generation import Backend

_SOON_S = 0.05  # seconds, while a worker thread still does what a client who left had asked for
_LEAST_S = 1.0  # seconds between two looks at models that would not be unloaded, or are
FOREVER_S = 100 * 365 * 86400.0
"""Seconds that are as good as for ever: the year after them is one that dates may not have."""


class IdleTimer:
    """The models stay loaded while `n_users` requests need them, and `seconds` more.

    usual: those seconds unless a request says otherwise; inf: they are never unloaded. is_working: whether other
    threads may still read the vocabulary.
    """

    def __init__(self, engine: Backend, usual: float, is_working: Callable[[], bool]) -> None:
        self.n_users = 0
        self.seconds = self._usual = inf if usual >= FOREVER_S else usual
        self._engine, self._is_working = engine, is_working
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def awake(self, wakes: bool = True) -> AsyncIterator[None]:
        """The models are loaded in this block, after waiting for them where they were not. Raises UnavailableError
        where they cannot be. wakes: False: they stay as they are.
        """
        self.n_users += 1
        self.stop()
        try:
            if wakes and self._engine.sleep.is_asleep:
                self.seconds = self._usual
                await asyncio.wrap_future(self._engine.wake())
            yield
        finally:
            self.n_users -= 1
            if not self.n_users:
                self.start()

    def keep(self, seconds: float | None) -> None:
        """From now on, until the models are loaded again, they are kept for so long; None: as before. Inside of
        `awake`.
        """
        if seconds is not None:
            self.seconds = inf if seconds >= FOREVER_S else seconds

    @property
    def expires_at(self) -> float | None:
        """When the models will be unloaded if nothing comes, in seconds since 1970; None: never."""
        if self.seconds == inf:
            return None
        left = self.seconds if self._timer is None else self._timer.when() - asyncio.get_running_loop().time()
        return time.time() + max(left, 0.0)

    def start(self) -> None:
        """Nothing needs the models from now on."""
        self._again(self.seconds)

    def stop(self) -> None:
        """They stay as they are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self, seconds: float) -> None:
        self.stop()
        if seconds < inf:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        if self._is_working():
            self._again(_SOON_S)
            return
        self._engine.fall_asleep()
        self._again(max(self.seconds, _LEAST_S))  # they may have been needed, or be loaded for somebody who left
