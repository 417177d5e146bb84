"""What a draft gains on real requests, kept for the next choice of one. The server that has loaded both says it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from uad.base.events import EngineSnapshot, EngineView
from uad.pairs.records import PairRecord, add_record

_log = logging.getLogger("uad")
_PAUSE_S = 2.0
"""Between two looks; those at which nothing was written cost nothing."""
_PATIENCE_S = 2.0
"""For the thread that decodes, which answers between two decodes."""
Keep = Callable[[Path, Path, PairRecord], PairRecord]


class Watched(Protocol):
    """An engine, as far as it is looked at. From any thread."""

    def snapshot(self) -> EngineSnapshot:
        """What it has counted."""

    def look(self, show: Callable[[EngineView], None]) -> None:
        """Call `show` soon, on another thread."""


class GainWatch:
    """Keeps what a pair writes, on a thread of its own; use with `with`. An engine that writes several answers at a
    time is left out: their time is shared.
    """

    def __init__(self, engine: Watched, target: Path, draft: Path, keep: Keep = add_record) -> None:
        self._engine, self._target, self._draft, self._keep = engine, target, draft, keep
        self._before = (0, 0.0)
        self._is_known = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gains", daemon=True)

    def __enter__(self) -> GainWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            self.look()
        self.look()

    def look(self) -> None:
        """Keep what has been written since the last look."""
        slots, totals, _, _ = self._engine.snapshot()
        now = totals.n_next, totals.predicted_ms / 1e3
        if len(slots) != 1 or now == self._before:
            return
        plain_ms = self._plain_ms()
        if plain_ms is None:
            return
        (tokens, seconds), self._before = (now[0] - self._before[0], now[1] - self._before[1]), now
        known = self._keep(self._target, self._draft, PairRecord(tokens, seconds, tokens * plain_ms / 1e3))
        if known.gain is not None:
            level = logging.DEBUG if self._is_known and not self._stop.is_set() else logging.INFO
            text = "%s with %s: %.2f times the speed without it"
            _log.log(level, text, self._target.name, self._draft.name, known.gain)
            self._is_known = True

    def _plain_ms(self) -> float | None:
        """What a token takes alone, where the last answer ended. None where nobody knows."""
        shown: queue.SimpleQueue[EngineView] = queue.SimpleQueue()
        self._engine.look(shown.put)
        try:
            view = shown.get(timeout=_PATIENCE_S)
        except queue.Empty:
            return None
        return view.curve[0] if view.curve else None
