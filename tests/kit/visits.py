"""Servers in the tests' own process: a visitor on another thread asks, and has the server stopped.

A signal that comes while a server loads, or once it is stopping, ends the process: of pytest's worker too, without a
word. A visitor that fails without a signal leaves the server waiting for one.
"""

from __future__ import annotations

import signal
import threading
import time
import urllib.request
from collections.abc import Callable

WAIT_S = 120.0


class Visits:
    """Runs visitors of one server. `check` after the server has stopped: what they raised is raised."""

    def __init__(self) -> None:
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._before = signal.getsignal(signal.SIGTERM)

    def start(
        self,
        visit: Callable[[], object],
        url: str,
        finish: Callable[[], object] = lambda: None,
        stops: bool = False,
    ) -> None:
        """Have `visit` run on a thread, then `finish`. stops: it stops the server at `url` by its own signal. If it
        does not, or fails, the server is stopped here, once it has loaded.
        """

        def work() -> None:
            try:
                visit()
            except BaseException as error:
                self._failures.append(error)
            finally:
                finish()
                if self._failures and stops:
                    time.sleep(1.0)  # it may have sent its signal: then the handler is gone soon
                if self._failures or not stops:
                    self._stop(url)

        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()

    def _stop(self, url: str) -> None:
        end = time.monotonic() + WAIT_S
        while self._waits_for_a_signal() and time.monotonic() < end:
            if answers(url, 0.0):
                signal.raise_signal(signal.SIGTERM)
                return
            time.sleep(0.01)

    def check(self) -> None:
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        if self._failures:
            raise self._failures[0]

    def _waits_for_a_signal(self) -> bool:
        """Whether a server has its handler in place: before it starts, and once it stops, there is another."""
        return signal.getsignal(signal.SIGTERM) not in (self._before, signal.SIG_DFL)


def answers(url: str, seconds: float = WAIT_S) -> bool:
    """Whether the server at `url` has loaded, or does within so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=WAIT_S):
                return True
        except OSError:  # 503, or not yet there
            if time.monotonic() >= end:
                return False
            time.sleep(0.01)
