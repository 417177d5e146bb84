"""Whether the RPC workers of a server are still there while nothing is decoded: llama.cpp finds out in the next decode
only, and ends the process then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from uad.base.errors import UadError
from uad.llama.backend import rpc
from uad.runtime.commands import Commands

_log = logging.getLogger("uad")
_LOOK_S = 1.0


class WorkerWatch:
    """Looks at the connections to workers, on a thread of its own. Once one is lost, all requests are refused; once all
    workers can be reached again, the process ends, for a supervisor to start it again.
    """

    def __init__(
        self,
        commands: Commands,
        lost: Callable[[], Sequence[str]] = rpc.lost,
        are_back: Callable[[], bool] = rpc.are_back,
        pause: float = _LOOK_S,
    ) -> None:
        self._commands, self._lost, self._are_back, self._pause = commands, lost, are_back, pause
        self._closed, self._has_lost = threading.Event(), False
        threading.Thread(target=self._look, name="uad-workers", daemon=True).start()

    def close(self) -> bool:
        """Look no more; whether one was lost."""
        self._closed.set()
        return self._has_lost

    def _look(self) -> None:
        while not self._closed.wait(self._pause):
            rpc.watch()
            if lost := self._lost():
                self._refuse(" and ".join(lost))
                break
        while not self._closed.wait(self._pause):
            if self._are_back():
                _log.error("the RPC workers can be reached again: the process ends, so that it can be started again")
                self._commands.tell_stopped()
                return

    def _refuse(self, workers: str) -> None:
        error = UadError(f"the RPC worker {workers} was lost; start it again, then uad")
        with self._commands.lock:
            if self._commands.error is not None:
                return
            self._commands.error, self._has_lost = error, True
        _log.error("%s; until then requests get 503", error)
