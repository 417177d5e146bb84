"""GET /live: what the server does now, sent again and again as server-sent events. The page's live view reads it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from uad.base.common.json_out import Json, dumps, frame
from uad.base.errors import InvalidRequestError
from uad.base.events import DrafterView, EngineView
from uad.base.stats import DrafterStats
from uad.base.types import Origin
from uad.http.apis.problems import BusyError
from uad.http.edge.replies import begin_stream
from uad.http.requests.job import drafters_of
from uad.http.server.state import STATE, State

MAX_WATCHERS = 16
LEAST_SECONDS, USUAL_SECONDS, MOST_SECONDS = 0.2, 1.0, 60.0
_PATIENCE_S = 2.0
"""Seconds to wait for the model thread, which answers between two decodes; its last answer is sent then."""


class LiveWatch:
    """The engine's view of itself, asked for at most every 0.2 s however many listen."""

    def __init__(self) -> None:
        self.n_watchers = 0
        self.stopping = asyncio.Event()
        self._view = EngineView()
        self._at = 0.0
        self._lock = asyncio.Lock()

    async def view(self, state: State) -> EngineView:
        """The last one, or a new one where that is old."""
        async with self._lock:
            if time.monotonic() >= self._at + LEAST_SECONDS:
                await self._ask(state)
                self._at = time.monotonic()
            return self._view

    async def _ask(self, state: State) -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[EngineView] = loop.create_future()

        def answered(view: EngineView) -> None:
            if not answer.done():  # else it came too late
                answer.set_result(view)

        def tell(view: EngineView) -> None:
            loop.call_soon_threadsafe(answered, view)

        state.engine.look(tell)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                self._view = await answer


WATCH = web.AppKey("WATCH", LiveWatch)


async def start_watch(app: web.Application) -> None:
    """On start-up: streams need the loop's own events."""
    app[WATCH] = LiveWatch()


async def stop_watch(app: web.Application) -> None:
    """On shutdown: streams end at once."""
    app[WATCH].stopping.set()


async def live(request: web.Request) -> web.StreamResponse:
    """GET /live?every=SECONDS."""
    state, watch, pause = request.app[STATE], request.app[WATCH], _pause(request.query.get("every", ""))
    if watch.n_watchers >= MAX_WATCHERS:
        raise BusyError(f"{MAX_WATCHERS} live views are open; close one")
    watch.n_watchers += 1
    try:
        response = await begin_stream(request)
        while not watch.stopping.is_set():
            await response.write(frame(dumps(live_json(state, await watch.view(state)))))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await watch.stopping.wait()
        await response.write_eof()
        return response
    finally:
        watch.n_watchers -= 1


def _pause(text: str) -> float:
    try:
        seconds = float(text) if text else USUAL_SECONDS
    except ValueError:
        seconds = -1.0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise InvalidRequestError.at("every", f"must be {LEAST_SECONDS:g} to {MOST_SECONDS:g} seconds")
    return seconds


def live_json(state: State, view: EngineView) -> Json:
    """One event of the stream. Times are in milliseconds."""
    engine = state.engine
    (slots, totals, drafters, _), defaults = engine.snapshot(), engine.config.drafting.defaults
    n_busy = sum(slot.is_processing for slot in slots)
    views = {drafter.origin: drafter for drafter in view.drafters}
    asked, models = {*drafters_of(engine, defaults), Origin.GRAMMAR}, engine.info.drafts
    return {
        "time": time.time(),
        "asleep": engine.sleep.is_asleep,
        "policy": str(defaults.policy) if defaults.enabled else "off",
        "n_ctx": engine.info.n_ctx,
        "slots": [{"id": slot.id, "n_past": slot.n_past, "is_processing": slot.is_processing} for slot in slots]
        if state.config.slots
        else None,
        "busy": n_busy,
        "queue": max(state.admission.n_inside - n_busy, 0),
        "tokens": view.n_written,
        "rounds": view.n_rounds,
        "requests": totals.n_requests,
        "cache": {
            "memory": totals.cache.n_restored - totals.cache.n_from_disk,
            "disk": totals.cache.n_from_disk,
            "memory_bytes": totals.cache.n_bytes,
            "disk_bytes": totals.cache.n_disk_bytes,
            "saved_ms": round(1e3 * totals.cache.saved_seconds, 1),
        },
        "depth": view.depth,
        "curve": [round(ms, 4) for ms in view.curve],
        "plain": [[depth, round(ms, 4)] for depth, ms in view.plain if depth <= engine.info.n_ctx],
        "lengths": view.lengths,
        "drafters": [
            {
                **_drafter(drafter, views.get(drafter.origin) or DrafterView(drafter.origin)),
                "asked": drafter.origin in asked,
                "file": Path(models[drafter.origin].path).name if drafter.origin in models else "",
            }
            for drafter in drafters
        ],
    }


def _drafter(stats: DrafterStats, view: DrafterView) -> Json:
    return {
        "type": stats.origin,
        "calls": stats.n_calls,
        "drafts": stats.n_drafts,
        "draft_n": stats.n_drafted,
        "draft_n_accepted": stats.n_accepted,
        "ms": round(stats.ms, 1),
        "failures": stats.n_failures,
        "off": stats.is_off,
        "saves": None if view.saves is None else round(view.saves, 4),
        "costs": None if view.costs is None else round(view.costs, 4),
        "accepted": stats.accepted,
    }
