"""A loaded target whose rounds the caller makes, on one thread: for timing rounds, or making them in turns with those
of another.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from uad.base.config import Config
from uad.base.console import Report
from uad.base.events import Sink
from uad.base.types import Request
from uad.llama.context import Context
from uad.runtime.costs.fit import fitted_beside
from uad.runtime.draft_model import OpenedDrafts
from uad.runtime.loaded import Loaded
from uad.runtime.open import Parts, build, engine_on, turns_on
from uad.runtime.timing import TIMING, Timing


class Stepper(Loaded):
    """The target, perhaps with a draft: `step` makes a round for all requests."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._numbers = itertools.count(1)

    @classmethod
    def open(cls, config: Config, progress: Report | None = None, timing: Timing = TIMING) -> Self:
        """Load everything but a prompt cache; progress(what, share) reports long loads. Raises ModelLoadError,
        MappingError or ConfigError.
        """
        return cls(build(replace(config, cache_ram=0, cache_disk=None), progress or (lambda what, share: None), timing))

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


def alone(parts: Parts) -> Parts:
    """The same target by itself: its weights, a context and slots of its own, nothing that drafts. To be closed before
    `parts`.
    """
    target, info, timing = parts.target, parts.info, parts.timing
    with ExitStack() as stack:
        own = fitted_beside(target.config, "target", info.n_slots, parts.config.fit)
        context = stack.enter_context(Context(target.model, own, info.n_slots, "target"))
        target = replace(target, context=context)
        engine = engine_on(target, None, parts.samplers, timing)
        return replace(
            parts,
            engine=engine,
            turns=turns_on(engine, target),
            target=target,
            info=replace(info, draft=None, more_drafts=(), drafters=(), notes=(*target.notes, *parts.text.notes)),
            drafts=OpenedDrafts((), ()),
            policies=None,
            again=None,
            timing=timing,
            stack=stack.pop_all(),
        )
