"""Which adapters the target has while a request runs. All rows of a decode have the same, so requests that want others
take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from uad.base.errors import UadError
from uad.base.events import Failed, Sink
from uad.base.types import Request
from uad.engine.decode.engine import Engine
from uad.engine.decode.guard import deliver, known
from uad.engine.decode.scheduler import log_left

Scales = tuple[float, ...]


class AdapterTurns:
    """Requests reach the engine in the order of their arrival, side by side as long as they want the same adapters.

    add: has the target add so much of each adapter. `default` are the scales of requests that name none; it may be read
    and set anywhere, all else happens on the model thread.
    """

    def __init__(self, engine: Engine, add: Callable[[Scales], None], scales: Scales) -> None:
        self._engine, self._add = engine, add
        self.default = self._active = scales
        self._waiting: deque[tuple[int, Request, Sink]] = deque()

    @property
    def active(self) -> Scales:
        """The scales of the adapters that the target adds now. On the model thread."""
        return self._active

    def resolved(self, request: Request) -> Request:
        """The request with its adapters, where there are any. From any thread."""
        return replace(request, adapters=self.default) if self.default and request.adapters is None else request

    def can_default(self) -> bool:
        """Whether `use_default` would change nothing that runs. On the model thread."""
        return self._active == self.default or (self._engine.is_idle and not self._waiting)

    def use_default(self) -> None:
        """Have the target add what requests add that name no adapters, though none came yet. On the model thread, where
        `can_default`.
        """
        if self._active != self.default:
            self._switch(self.default)

    def submit(self, number: int, request: Request, sink: Sink) -> None:
        """The request, as `resolved` gave it, waits for its adapters, then in the engine for a slot; it was checked."""
        self._waiting.append((number, request, sink))
        self.settle()

    def cancel(self, number: int, why: str = "cancelled") -> None:
        """The request is cancelled. No event follows; the log says why."""
        for entry in [entry for entry in self._waiting if entry[0] == number]:
            self._waiting.remove(entry)
            log_left(number, entry[1], why)
        self._engine.cancel(number, why)
        self.settle()

    def settle(self) -> None:
        """Hand over what can run now; where the next request wants other adapters, the engine has to be idle first."""
        while self._waiting:
            number, request, sink = self._waiting[0]
            if request.adapters is not None and request.adapters != self._active:
                if not self._engine.is_idle:
                    return
                self._switch(request.adapters)
            self._waiting.popleft()
            self._engine.submit(number, request, sink)

    def fail_all(self, error: UadError) -> None:
        """Every request, here and in the engine, ends with this error."""
        self._tell_waiting(error)
        self._engine.requests.fail_all(error)

    def tell_all(self, error: UadError) -> None:
        """See `Scheduler.tell_all`: the target is not touched."""
        self._tell_waiting(error)
        self._engine.requests.tell_all(error)

    def _tell_waiting(self, error: UadError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for number, _, sink in waiting:
            deliver(sink, Failed(number, known(error)))

    def _switch(self, scales: Scales) -> None:
        self._add(scales)
        self._active = scales
        self._engine.texts.forget()  # keys and values are those of the adapters before
