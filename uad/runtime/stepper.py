"""A loaded target whose rounds the caller makes, on one thread: for timing rounds, or making them in turns with those
of another.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Self

from uad.config import Config
from uad.events import Sink
from uad.runtime.loaded import Loaded
from uad.runtime.parts import Parts, alone, build
from uad.runtime.target import Progress
from uad.runtime.wiring import WIRING, Wiring
from uad.types import Request


class Stepper(Loaded):
    """The target, perhaps with a draft: `step` makes a round for all requests."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._numbers = itertools.count(1)

    @classmethod
    def open(cls, config: Config, progress: Progress | None = None, wiring: Wiring = WIRING) -> Self:
        """Load everything but a prompt cache; progress(what, share) reports long loads. Raises ModelLoadError,
        MappingError or ConfigError.
        """
        return cls(build(replace(config, cache_ram=0), progress or (lambda what, share: None), wiring))

    def alone(self) -> Self:
        """The same target and nothing that drafts: the same weights, slots of its own. Close it first."""
        return type(self)(alone(self._parts))

    def submit(self, request: Request, sink: Sink) -> int:
        """Queue a request; sink gets its events. Raises InvalidRequestError or ContextOverflowError."""
        self.check(request)
        number = next(self._numbers)
        self._engine.submit(number, request, sink)
        return number

    def cancel(self, request: int) -> None:
        """The request's slot is free at once; no event follows."""
        self._engine.cancel(request)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return self._engine.is_idle

    def step(self) -> None:
        """One round for all requests."""
        self._engine.step()
