"""The engine of experiments: it is given what to write, and asked what it noted, what rounds cost and what beliefs are
worth.
"""

from __future__ import annotations

from counted import Costs, Counting
from experiment import Experiment, Rounds
from facts import Bin, bins
from oracle import RoundCosts
from prescribed import Told
from recital import recital

from uad.config import Config
from uad.errors import InvalidRequestError
from uad.events import Sink
from uad.policy.drafter import CallCost
from uad.runtime import Stepper
from uad.runtime.target import Progress
from uad.types import Origin, Request


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
            policy.machine,
            policy.drafters[Origin.MODEL].cost if Origin.MODEL in policy.drafters else CallCost(),
        )
        draft = machine.draft if self.info.draft is not None else None
        return RoundCosts(machine.target, draft, cost.call_ms, cost.ids_per_step, machine.target.speeds())

    def calibration(self) -> list[Bin]:
        """Acceptance predicted and observed, for each bin of belief that has seen something."""
        kinds = self._parts.policies.last.calibrations.items() if self._parts.policies is not None else ()
        return [one for kind, calibration in kinds for one in bins(kind, calibration)]
