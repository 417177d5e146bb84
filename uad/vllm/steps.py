"""What the engine's steps take by rows, measured in its first rounds, and the policy that weighs drafts by it."""

from __future__ import annotations

from collections.abc import Sequence

from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine

_COLD, _ROUNDS = 2, 3
_NEVER_PADDED = (1 << 30) - 1  # ids that are free to take back; fewer than would have rows filled up


class StepTimes:
    """Times of steps with drafts of several lengths, until each length was seen three times.

    n_max: longest draft. Lengths take turns, so that a busy moment is not taken for the price of one of them. The first
    steps after a start are not counted.
    """

    def __init__(self, n_max: int) -> None:
        self._lengths = sorted({0, min(1, n_max), n_max // 2, n_max})
        self._n_cold = _COLD
        self._n_seen = dict.fromkeys(self._lengths, 0)
        self._asked = 0
        self.samples: list[CostSample] = []

    @property
    def is_done(self) -> bool:
        """Whether enough is known."""
        return min(self._n_seen.values()) >= _ROUNDS

    def length(self) -> int:
        """How long the drafts of the next step should be."""
        self._asked = min(self._lengths, key=lambda k: (self._n_seen[k], k))
        return self._asked

    def saw(self, n_rows: int, seconds: float) -> None:
        """The step that followed took so long for n_rows."""
        if self._n_cold:
            self._n_cold -= 1
            return
        self._n_seen[self._asked] += 1
        self.samples.append(CostSample(n_rows, 0, 1e3 * seconds))


def machine_of(samples: Sequence[CostSample], most_rows: int, draft: Sequence[CostSample] = ()) -> Machine:
    """Costs of an engine in which any rows of any requests share a step, up to most_rows. draft: steps of the draft
    model, if there is one.
    """
    return Machine(
        CostCurve(samples),
        CostCurve(draft) if draft else None,
        n_ubatch=most_rows,
        n_free=_NEVER_PADDED,
        is_one_pass=True,
    )
