"""What drafts gain that were chosen: read from idle processes, and kept, so that the next choice is a better one."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

from uad.pairs.records import PairRecord, add_record
from uad.router.connections import Connections
from uad.router.pool import ModelPool, RunningChild

log = logging.getLogger("uad")
_PATIENCE_S = 5.0
_COUNTER = r"^llamacpp:{}(?:\{{.*\}})? (\S+)$"
_TOKENS = re.compile(_COUNTER.format("tokens_predicted_total"), re.MULTILINE)
_SECONDS = re.compile(_COUNTER.format("tokens_predicted_seconds_total"), re.MULTILINE)
Keep = Callable[[Path, Path, PairRecord], PairRecord]


class GainWatch:
    """Looks at processes between requests. Those that write several answers at a time are left out: their time is
    shared.
    """

    def __init__(self, pool: ModelPool, connections: Connections, keep: Keep = add_record) -> None:
        self._pool, self._connections, self._keep = pool, connections, keep
        self._before: WeakKeyDictionary[RunningChild, tuple[float, float]] = WeakKeyDictionary()

    async def watch(self, pause: float) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(pause)
            await self.look()

    async def look(self) -> None:
        """Keep what has been written since the last look."""
        for running in [one.running for one in self._pool.models.values() if one.is_idle]:
            if running is not None and running.model.draft is not None:
                with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError):
                    await self._look_at(running, running.model.draft)

    async def _look_at(self, running: RunningChild, draft: Path) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            now = _counts(await self._text(running, "/metrics"))
            before = self._before.get(running, (0.0, 0.0))
            if now == before:
                return
            live = await self._first_event(running)
        self._before[running] = now
        plain_ms = _plain_ms(live)
        if len(live["slots"] or []) != 1 or plain_ms is None or running.model.path is None:
            return
        tokens, seconds = now[0] - before[0], now[1] - before[1]
        more = PairRecord(tokens, seconds, tokens * plain_ms / 1e3)
        known = await asyncio.to_thread(self._keep, running.model.path, draft, more)
        if known.gain is not None:
            log.info("%s with %s: %.2f times the speed without it", running.model.name, draft.name, known.gain)

    async def _text(self, running: RunningChild, path: str) -> str:
        async with self._connections.ask(running.child, path) as answer:
            return (await answer.content.read()).decode()

    async def _first_event(self, running: RunningChild) -> dict[str, Any]:
        async with self._connections.ask(running.child, "/live") as answer:
            event: dict[str, Any] = json.loads((await answer.content.readline()).removeprefix(b"data: "))
            return event


def _plain_ms(live: dict[str, Any]) -> float | None:
    """What a token takes alone: at the depths that were measured, else at the last one."""
    depths = [ms for _, ms in live["plain"]] or live["curve"][:1]
    return median(depths) if depths else None


def _counts(metrics: str) -> tuple[float, float]:
    """Tokens written, and the seconds that they took. Raises ValueError where they are not there."""
    found = _TOKENS.search(metrics), _SECONDS.search(metrics)
    if found[0] is None or found[1] is None:
        raise ValueError("no counters of tokens")
    return float(found[0][1]), float(found[1][1])
