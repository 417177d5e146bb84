"""The sequences of one HTTP request, from submit to the last event. Whatever is unfinished at the end is cancelled."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from types import TracebackType

from uad.errors import SlowReaderError, UadError
from uad.server.engine import Engine
from uad.server.inbox import Inbox
from uad.types import Delta, Done, Event, Failed, Request

log = logging.getLogger("uad.server")

Arrival = tuple[int, Delta | Done]


class Generation:
    """A context manager around submitted requests; `take` hands out their events, numbered by position in `requests`."""

    def __init__(self, engine: Engine, requests: Sequence[Request]) -> None:
        self._engine = engine
        self._requests = requests
        self._inbox = Inbox(asyncio.get_running_loop(), self._overflow)
        self._running: dict[int, int] = {}
        self._failure: UadError | None = None

    def __enter__(self) -> Generation:
        try:
            for index, request in enumerate(self._requests):
                self._running[index] = self._engine.submit(request, functools.partial(self._inbox.put, index))
        except BaseException:
            self.cancel()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cancel()

    @property
    def is_open(self) -> bool:
        """Whether `take` has something to say still: events to come, or a failure."""
        return bool(self._running) or self._failure is not None

    def cancel(self) -> None:
        """Free the slots of all unfinished sequences."""
        running, self._running = self._running, {}
        for request in running.values():
            self._engine.cancel(request)

    def abort(self, failure: UadError) -> None:
        """Cancel, and raise `failure` from the next `take`; the first one counts."""
        self.cancel()
        self._failure = self._failure or failure
        self._inbox.wake()

    async def take(self, timeout: float | None) -> list[Arrival]:
        """The events that have arrived, at least one; empty after `timeout` seconds of silence. Raises what a sequence failed with."""
        if self._failure is None:
            arrivals = self._sort(await self._inbox.take(timeout))
            if arrivals:
                return arrivals
        if self._failure is not None:
            raise self._failure
        return []

    def _sort(self, events: list[tuple[int, Event]]) -> list[Arrival]:
        arrivals: list[Arrival] = []
        for index, event in events:
            if isinstance(event, Failed):
                self._running.pop(index, None)
                self.abort(_expected(event.error))
                break
            if isinstance(event, Done):
                self._running.pop(index, None)
            arrivals.append((index, event))
        return arrivals

    def _overflow(self) -> None:
        self.abort(SlowReaderError("the client reads its stream too slowly; the request was cancelled"))


def _expected(error: Exception) -> UadError:
    if isinstance(error, UadError):
        return error
    log.error("a request failed for an unexpected reason", exc_info=error)
    return UadError("the request failed for an internal reason; the server's log has the details")


def merge(arrivals: list[Arrival]) -> list[Arrival]:
    """The same events with neighbouring deltas of one sequence joined: a reader that fell behind gets fewer, larger pieces."""
    if len(arrivals) < 2:
        return arrivals
    merged: list[Arrival] = []
    last: dict[int, int] = {}
    for index, event in arrivals:
        at = last.get(index)
        before = merged[at][1] if at is not None else None
        if at is not None and isinstance(event, Delta) and isinstance(before, Delta):
            merged[at] = index, _joined(before, event)
        else:
            last[index] = len(merged)
            merged.append((index, event))
    return merged


def _joined(a: Delta, b: Delta) -> Delta:
    return Delta(a.request, a.ids + b.ids, a.origins + b.origins, a.text + b.text, a.probs + b.probs)
