"""Gains of a draft on real requests, kept for the next choice of one. The server that has loaded both reports them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from uad.base.events import EngineSnapshot, EngineView, Totals
from uad.pairs.conditions import Conditions
from uad.pairs.records import PairRecord, add_record

_log = logging.getLogger("uad")
_PAUSE_S = 2.0
"""Between two looks; those at which nothing was written cost nothing."""
_PATIENCE_S = 2.0
"""For the thread that decodes, which answers between two decodes."""
Keep = Callable[[Path, Path | None, PairRecord, Conditions], PairRecord]


class Watched(Protocol):
    """An engine, as far as it is looked at. From any thread."""

    def snapshot(self) -> EngineSnapshot:
        """Counts of the engine so far."""

    def look(self, show: Callable[[EngineView], None]) -> None:
        """Call `show` soon, on another thread."""


class GainWatch:
    """Keeps what a target writes, with a draft model or without one, on a thread of its own; use with `with`. An engine
    that writes several answers at a time is left out: their time is shared. No answer needs it: a failure costs a line.
    """

    def __init__(
        self, engine: Watched, target: Path, draft: Path | None, under: Conditions, keep: Keep = add_record
    ) -> None:
        self._engine, self._target, self._draft, self._under, self._keep = engine, target, draft, under, keep
        self._before = _own(Totals())
        self._is_known = self._has_failed = False
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
            self._look()
        self._look()

    def _look(self) -> None:
        try:
            self.look()
        except Exception as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            _log.log(level, "what drafts gain is not measured now: %s: %s", type(error).__name__, error)
            self._has_failed = True

    def look(self) -> None:
        """Keep what has been written since the last look. Raises anything."""
        slots, totals, _, _ = self._engine.snapshot()
        now = _own(totals)
        if len(slots) != 1 or now == self._before:
            return
        plain_ms = 0.0 if self._draft is None else self._plain_ms()
        if plain_ms is None:
            return
        tokens, seconds = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        more = PairRecord(tokens, max(seconds, 0.0), tokens * plain_ms / 1e3)
        kept = self._keep(self._target, self._draft, more, self._under)
        if self._draft is not None and kept.gain is not None:
            level = logging.DEBUG if self._is_known and not self._stop.is_set() else logging.INFO
            text = "%s with %s: %.2f times the speed without it"
            _log.log(level, text, self._target.name, self._draft.name, kept.gain)
            self._is_known = True

    def _plain_ms(self) -> float | None:
        """Milliseconds of a token that is decoded alone, where the last answer ended. None if unknown."""
        shown: queue.SimpleQueue[EngineView] = queue.SimpleQueue()
        self._engine.look(shown.put)
        try:
            view = shown.get(timeout=_PATIENCE_S)
        except queue.Empty:
            return None
        return view.curve[0] if view.curve else None


def _own(totals: Totals) -> tuple[int, float]:
    """Tokens and seconds of the rounds in which nothing but the draft model drafted. A text that repeats itself is
    looked up: 4,000 tokens in 10 s say nothing of the model that drafted 100 of them.
    """
    drafted = totals.draft
    return totals.n_next - drafted.n_aided, (totals.predicted_ms - drafted.aided_ms) / 1e3
