"""A loaded target whose rounds the caller makes, on one thread: for timing rounds, or making them in turns with those
of another. And the engine of experiments: it is given what to write, and asked what it noted and what rounds cost.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from counted import Costs, Counting
from experiment import Experiment, Rounds
from facts import Bin, bins
from oracle import RoundCosts
from prescribed import Told
from recital import recital

from uad.base.config import Config
from uad.base.errors import InvalidRequestError
from uad.base.events import Sink
from uad.base.types import Origin, Request
from uad.engine.policy.drafter import CallCost
from uad.llama.context import Context
from uad.runtime.costs.fit import fitted_beside
from uad.runtime.loaded import Loaded
from uad.runtime.open import Parts, engine_on, open_parts, turns_on
from uad.runtime.plan import plan
from uad.runtime.target import Progress
from uad.runtime.wiring import WIRING, Wiring


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
        uncached = plan(replace(config, cache_ram=0, cache_disk=None))
        return cls(open_parts(uncached, progress or (lambda what, share: None), wiring))

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
    target, info, wiring = parts.target, parts.info, parts.wiring
    if isinstance(wiring, Experiment):
        wiring = wiring.twin()
    with ExitStack() as stack:
        own = fitted_beside(target.config, "target", info.n_slots, parts.config.fit)
        context = stack.enter_context(Context(target.model, own, info.n_slots, "target"))
        target = replace(target, context=context)
        engine = engine_on(target, None, parts.samplers, wiring)
        return replace(
            parts,
            engine=engine,
            turns=turns_on(engine, target),
            target=target,
            info=replace(info, draft=None, drafters=(), notes=(*target.notes, *parts.text.notes)),
            drafter=None,
            policies=None,
            again=None,
            wiring=wiring,
            stack=stack.pop_all(),
        )


class LabStepper(Stepper):
    """Use with `with`, or call `close()`."""

    @classmethod
    def load(cls, config: Config, progress: Progress | None = None, costs: Costs | None = None) -> LabStepper:
        """Load everything; costs: count time by these instead of measuring it. Raises ModelLoadError, MappingError or
        ConfigError.
        """
        return cls.open(config, progress, Experiment() if costs is None else Counting(costs))

    def recital(self) -> LabStepper:
        """The same draft model beside a target that computes nothing, for prescribed answers; see `recital.recital`."""
        return LabStepper(recital(self._parts))

    def submit(self, request: Request, sink: Sink) -> int:
        if isinstance(request, Told) and request.needs_end and not self._parts.target.model.vocab.eog:
            raise InvalidRequestError(
                "an answer can be prescribed to a target only that has an id to end it with", "answer"
            )
        return super().submit(request, sink)

    @property
    def rounds(self) -> Rounds:
        """See `experiment.Rounds`."""
        wiring = self._parts.wiring
        assert isinstance(wiring, Experiment)
        return wiring.rounds

    def costs(self) -> RoundCosts | None:
        """What rounds cost, as it is known now; None where nothing drafts."""
        if self._parts.policies is None:
            return None
        policy = self._parts.policies.last
        machine, cost = (
            policy.known.machine,
            policy.known.drafters[Origin.MODEL].cost if Origin.MODEL in policy.known.drafters else CallCost(),
        )
        draft = machine.draft if self.info.draft is not None else None
        return RoundCosts(machine.target, draft, cost.call_ms, machine.target.speed)

    def calibration(self) -> list[Bin]:
        """Acceptance predicted and observed, for each bin of belief that has seen something."""
        kinds = self._parts.policies.last.known.calibrations.items() if self._parts.policies is not None else ()
        return [one for kind, calibration in kinds for one in bins(kind, calibration)]
