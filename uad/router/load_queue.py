"""Who waits for which model, which one is loaded next and which makes room. It has no processes, clock or event loop:
each method takes one event and its time in seconds, and returns what is to be done.

First come, first loaded: a later model passes none that lacks room. An idle model makes room at once, the one used
longest ago first. Where all are busy, the one used longest ago takes no new requests after `PATIENCE_S`, and ends after
its running answers; after each further `PATIENCE_S` so does one more. Those whose place is not needed any more open
again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uad.http.apis.problems import Problem
from uad.router.instances import Instance, PooledModel
from uad.router.refusal import later

PATIENCE_S = 5.0
"""How long a model waits before a busy one closes for it, and how long a loaded one takes requests before that."""
SOON_S = 5.0
"""When to come again where the queue is full or the router stops."""


@dataclass(frozen=True, slots=True)
class Load:
    """Start the process of an instance."""

    instance: Instance


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process of an instance, loaded or not. makes_room_for: the model that gets its place."""

    instance: Instance
    makes_room_for: PooledModel | None = None


@dataclass(frozen=True, slots=True)
class Serve:
    """A request goes to an instance, which counts it until `done`."""

    request: object
    instance: Instance


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request ends with an error."""

    request: object
    problem: Problem


Action = Load | Stop | Serve | Refuse


class LoadQueue:
    """most: how many instances there are at a time, 0: any number. most_waiting: requests that may wait. memory_left:
    bytes for a new instance beside those that are loaded; what is loading is not subtracted yet.
    """

    def __init__(self, most: int, most_waiting: int, memory_left: Callable[[], float] = lambda: math.inf) -> None:
        self.instances: dict[Instance, None] = {}
        self.wake_at: float | None = None
        """When to call `step`, though nothing happens."""
        self._most, self._most_waiting, self._memory_left = most, most_waiting, memory_left
        self._wanted: dict[PooledModel, None] = {}
        self._actions: list[Action] = []
        self._uses = itertools.count(1)

    @property
    def n_waiting(self) -> int:
        """Requests that wait."""
        return sum(len(model.waiters) for model in self._wanted)

    # --- events

    def ask(self, model: PooledModel, request: object, now: float) -> list[Action]:
        """A request came; None: the model is to be loaded, though no request waits for it."""
        if request is None:
            model.asked_at = now
        elif not model.is_open and (n := self.n_waiting) >= self._most_waiting:
            text = f"{n} requests wait for models to be loaded, which --max-queue allows; try again later"
            self._actions.append(Refuse(request, later(text, SOON_S).problem))
        else:
            model.waiters[request] = now
        self._wanted[model] = None
        return self.step(now)

    def leave(self, model: PooledModel, request: object, now: float) -> list[Action]:
        """The client of a request that waits is gone."""
        model.waiters.pop(request, None)
        return self.step(now)

    def done(self, instance: Instance, now: float) -> list[Action]:
        """An answer of an instance has ended."""
        instance.n_busy -= 1
        if instance.is_retired and not instance.n_busy:
            self._stop(instance)
        return self.step(now)

    def planned(self, instance: Instance, n_bytes: int, now: float) -> list[Action]:
        """A process says how much memory it is about to take."""
        instance.n_bytes = n_bytes
        if instance.owner.instance is instance:
            instance.owner.planned_bytes = n_bytes
        return self.step(now)

    def loaded(self, instance: Instance, now: float) -> list[Action]:
        """The process of an instance is ready."""
        instance.is_loaded, instance.loaded_at = True, now
        self._serve(instance)
        return self.step(now)

    def ended(self, instance: Instance, problem: Problem | None, now: float) -> list[Action]:
        """The process of an instance is gone. Whoever waits for its model ends with the problem; without one they wait
        for the next instance.
        """
        del self.instances[instance]
        if instance.owner.instance is instance:
            instance.owner.instance = None
        self._actions += _refusals(instance.owner, problem)
        return self.step(now)

    def retire(self, model: PooledModel, problem: Problem | None, now: float) -> list[Action]:
        """A model is changed, or gone: then there is a problem for whoever waits for it. Its instance ends after its
        last answer, a load at once.
        """
        instance, model.instance = model.instance, None
        if instance is not None:
            instance.is_retired = True
            if not instance.n_busy:
                self._stop(instance)
        self._actions += _refusals(model, problem)
        return self.step(now)

    def unload(self, model: PooledModel, problem: Problem, now: float) -> list[Action]:
        """All instances of a model end now, even where they answer, and whoever waits for it has a problem."""
        self._actions += _refusals(model, problem)
        for instance in self.instances:
            if instance.owner is model:
                self._stop(instance)
        return self.step(now)

    # --- what follows from them

    def step(self, now: float) -> list[Action]:
        """Load, close and serve as it is due."""
        self._wanted = {model: None for model in self._wanted if model.is_wanted}
        lacking: list[PooledModel] = []
        for model in sorted(self._wanted, key=lambda model: model.since):
            if model.is_ready and model.instance is not None:
                if not lacking:  # a model that came later does not close it before
                    self._serve(model.instance)
            elif model.is_loading:
                continue
            elif lacking or not self._has_room(model):
                lacking.append(model)
            else:
                model.asked_at = None
                model.instance = Instance(model, model.model, model.n_bytes, now, next(self._uses))
                self.instances[model.instance] = None
                self._actions.append(Load(model.instance))
        self._make_room(lacking, now)
        actions, self._actions = self._actions, []
        return actions

    def _has_room(self, model: PooledModel) -> bool:
        if self._most and len(self.instances) >= self._most:
            return False
        if not self.instances:
            return True  # alone: its process says itself whether it fits
        loading = sum(instance.n_bytes for instance in self.instances if not instance.is_loaded)
        return model.n_bytes <= self._memory_left() - loading

    def _make_room(self, lacking: Sequence[PooledModel], now: float) -> None:
        """Stop idle instances and close busy ones for models that have no room, and open all others."""
        n_ending = sum(instance.is_stopping for instance in self.instances)
        is_full = bool(self._most) and len(self.instances) >= self._most
        lacking = lacking[n_ending:] if is_full else lacking[:1]
        usable = [instance for instance in self.instances if instance.is_ready and not instance.is_retired]
        usable.sort(key=lambda instance: instance.last_used)
        busy = [instance for instance in usable if instance.n_busy]
        # where memory lacks one ends after the other, since each may be enough
        idle = [instance for instance in usable if not instance.n_busy] if is_full or not n_ending else []
        for victim, model in zip(idle, lacking, strict=False):
            self._stop(victim, model)
        waits = [model.since + n * PATIENCE_S for model in lacking[len(idle) :] for n in range(1, len(busy) + 1)]
        tenures = [instance.loaded_at + PATIENCE_S for instance in busy]
        due = [instance for instance, end in zip(busy, tenures, strict=True) if end <= now]
        closed = due[: sum(time <= now for time in waits)]
        for instance in usable:
            instance.is_closed = instance in closed
            if not instance.is_closed and not instance.is_stopping:
                self._serve(instance)
        self.wake_at = min((time for time in (*waits, *tenures) if time > now), default=None) if waits else None

    def _stop(self, instance: Instance, makes_room_for: PooledModel | None = None) -> None:
        if instance in self.instances and not instance.is_stopping:
            instance.is_stopping = True
            self._actions.append(Stop(instance, makes_room_for))

    def _serve(self, instance: Instance) -> None:
        """Whoever waits for its model goes there."""
        waiters = instance.owner.waiters
        for request in waiters:
            instance.n_busy += 1
            instance.last_used = next(self._uses)
            self._actions.append(Serve(request, instance))
        waiters.clear()
        instance.owner.asked_at = None


def _refusals(model: PooledModel, problem: Problem | None) -> list[Action]:
    """Whoever waits for a model ends with the problem, where there is one, and it is not wanted any more."""
    if problem is None:
        return []
    refused: list[Action] = [Refuse(request, problem) for request in model.waiters]
    model.waiters.clear()
    model.asked_at = None
    return refused
