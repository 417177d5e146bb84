"""Machines that are disturbed for a while, for the policy: answers one after the other, in simulated milliseconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kit.simulator import Cost, Position, Simulation, text
from uad.base.types import Origin
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine

ANSWER = 80
"""Ids of one answer."""

REAL: Cost = lambda n: 90.0 + 10.0 * n  # noqa: E731
"""A 1.5B target in BF16 that waits for memory: eight rows cost 1.7 times a single one."""

DEAR: Cost = lambda n: 2.0 + 58.0 * n  # noqa: E731
"""A quantized target that is bound by arithmetic: no draft pays."""

Factor = Callable[[float, bool], float]
"""How many times slower the machine is at this simulated second, for the target or (True) for the draft model."""


def quiet(second: float, is_draft: bool) -> float:
    return 1.0


def slow_start(seconds: float, target: float, draft: float) -> Factor:
    """For so many seconds calls of target and draft take so many times as long."""
    return between(0.0, seconds, target, draft)


def between(begin: float, end: float, target: float, draft: float) -> Factor:
    return lambda second, is_draft: (draft if is_draft else target) if begin <= second < end else 1.0


def every(period: float, seconds: float, target: float, draft: float) -> Factor:
    """A neighbour that comes back after each period and stays for so many seconds."""
    return lambda second, is_draft: (draft if is_draft else target) if second % period < seconds else 1.0


def one_call(after: float, times: float) -> Factor:
    """The first call of the draft model after this second takes so many times as long."""
    left = [times]
    return lambda second, is_draft: left.pop() if is_draft and left and second >= after else 1.0


@dataclass
class Disturbed(Simulation):
    """A simulation whose speed is `factor`'s; costs were measured at the factor of the first second. cold: so many
    first draft calls take 100 times as long, and so many first target decodes.
    """

    factor: Factor = quiet
    cold: int = 0
    measured_at: float = 0.0
    drafted: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    n_cold: int = 0
    is_draft: bool = False

    def __post_init__(self) -> None:
        target, draft = self.factor(self.measured_at, False), self.factor(self.measured_at, True)
        curve = CostCurve([CostSample(n, 0, target * self.cost(n)) for n in range(1, self.n_max + 2)])
        self.policy = AutoPolicy(Machine(curve, {Origin.MODEL: CostCurve([CostSample(1, 0, draft * self.step_ms)])}))
        self.rng = random.Random(self.seed)

    def _spend(self, ms: float) -> float:
        return super()._spend(ms * self.factor(self.ms / 1e3, self.is_draft))

    def _catch_up(self, n_read: int = 0) -> float:
        self.is_draft = True
        usual = self.call_ms
        if self.n_cold < self.cold:
            self.n_cold += 1
            self.call_ms = 100 * usual
        seconds = super()._catch_up(n_read)
        self.call_ms = usual
        return seconds

    def _draft(self, n_max: int, n_read: int = 0) -> None:
        super()._draft(n_max, n_read)
        self.is_draft = False

    def answers(self, n_prompt: int = 100, wanted: int | None = None, after: float = 0.0) -> Disturbed:
        """All positions as answers of 80 ids; `drafted` has the submitted ids of each, `seconds` when each began.
        wanted: no more than so many that begin after that second.
        """
        for end in range(ANSWER, len(self.positions) + 1, ANSWER):
            if len(self.after(after)) == wanted:
                break
            n_before = len(self.lengths)
            self.seconds.append(self.ms / 1e3)
            self.run_text(end, n_prompt)
            self.drafted.append(sum(k for _, k in self.lengths[n_before:]))
        return self

    def after(self, second: float) -> list[int]:
        """Ids drafted in the answers that began after this second."""
        return [n for n, began in zip(self.drafted, self.seconds, strict=True) if began >= second]


def real_pair(positions: list[Position], **more: Any) -> Disturbed:
    """Costs like those of a 1.5B target in BF16 and a 135M draft."""
    kept: dict[str, Any] = {
        "cost": REAL,
        "step_ms": 7.4,
        "call_ms": 9.0,
        "pause_ms": 10.0,
        "read_ms": 3.2,
        "n_max": 16,
    } | more
    return Disturbed(positions=positions, **kept)


def real_text(n_answers: int, seed: int = 0) -> list[Position]:
    """What a small draft of another family is like: right now and then for a while."""
    return text(n_answers * ANSWER, ((0.85, 0.99), (0.2, 0.7)), stay=0.9, seed=seed)
