"""Makes the policy from the cost curves of the loaded models: stored ones (`uad profile`), else what two seconds
show.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from uad.base.common.numbers import rounded
from uad.base.config import Config, ModelConfig
from uad.base.types import Clock, Origin, SpecPolicy
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.llama.context import Context
from uad.runtime.costs.profile import alike, as_at_rest, disturbance, quick
from uad.runtime.target import LoadedTarget
from uad.runtime.timing import Timing

_TARGET_SECONDS, _DRAFT_SECONDS = 1.7, 0.3
_MOST_SEQUENCES = 16
_SINGLE = range(1, 2)
_TELLING = (2, 4, 8, 16)
_FIRST_PAUSE_S, _MOST_PAUSE_S = 3.0, 600.0  # seconds before it is measured again where the machine was busy
_log = logging.getLogger("uad")


class Policies:
    """Makes the policy from what was measured at start; after a failure, a fresh one that has learned nothing yet.
    `last` is in use now.
    """

    def __init__(self, machine: Callable[[], Machine], weighed: frozenset[Origin], window: int) -> None:
        self._machine = machine
        self._weighed = weighed
        self._window = window
        self._target: tuple[CostSample, ...] = ()
        self.last = self()

    def __call__(self) -> AutoPolicy:
        machine = self._machine()
        if self._target:
            machine.remeasured(CostCurve(self._target))
        self.last = AutoPolicy(machine, self._weighed, self._window)
        return self.last

    def remeasured(self, target: tuple[CostSample, ...]) -> None:
        """The target's passes were measured again, for this policy and all that follow."""
        self._target = target
        self.last.known.machine.remeasured(CostCurve(target))


class Remeasurement:
    """Measures the target's passes again while nothing runs, until that looks like a machine at rest.

    first: what was measured at start; measure: takes a sequence, its positions and what says when to stop.
    """

    def __init__(
        self,
        policies: Policies,
        first: tuple[CostSample, ...],
        measure: Callable[[int, int, Callable[[], bool]], tuple[CostSample, ...]],
        clock: Clock = perf_counter,
    ) -> None:
        self._policies, self._last, self._measure, self._clock = policies, first, measure, clock
        self._pause = _FIRST_PAUSE_S
        self._due: float | None = clock() + _FIRST_PAUSE_S

    @property
    def wait(self) -> float | None:
        """Seconds until it should be called, if nothing runs then; None: no more."""
        return None if self._due is None else max(self._due - self._clock(), 0.0)

    def __call__(self, spare: tuple[int, int] | None, stop: Callable[[], bool]) -> None:
        """Measure in this place, if there is one, until there is other work. Raises what decoding does, and
        does not measure again then.
        """
        self._due = None
        samples = self._measure(*spare, stop) if spare is not None else ()
        if samples and not stop():
            if not disturbance(samples) or alike(samples, self._last):
                self._policies.remeasured(samples)
                _log.info("measured again: %s", _curve_note(self._policies.last.known.machine, _TELLING))
                return
            self._last = samples
            self._pause = min(2 * self._pause, _MOST_PAUSE_S)
        self._due = self._clock() + self._pause


@dataclass(frozen=True, slots=True)
class Steps:
    """The costs of steps of a drafter that writes, and whether they were measured on a busy machine."""

    samples: tuple[CostSample, ...]
    is_rough: bool


def draft_steps(
    config: Config, draft: Context, draft_config: ModelConfig, timing: Timing, role: str = "draft"
) -> Steps:
    """Stored, else as a short look shows. Raises what decoding does."""
    sizes = range(1, min(config.n_parallel, _MOST_SEQUENCES) + 1)
    samples, stored = timing.curve(draft, draft_config, role, sizes, _DRAFT_SECONDS)
    return Steps(samples, not stored and bool(disturbance(samples)))


def open_policy(
    config: Config,
    target: LoadedTarget,
    steps: Mapping[Origin, Steps],
    timing: Timing,
    is_seldom: bool = False,
) -> tuple[Policies, tuple[str, ...], Remeasurement | None]:
    """The policies, the lines that say what decoding several tokens at once costs here, and what measures it again
    where the machine was busy.

    steps: of each drafter that writes. is_seldom: only few requests draft, so their own rounds show what several tokens
    at once cost; at start single ones are decoded, and no line is worth that.
    """
    context, least = target.context, target.least
    # sizes of longer automatic drafts take too long for a quick look; the curve follows them while it runs
    usual = replace(config.drafting.defaults, policy=SpecPolicy.FIXED).longest
    n_max = min(context.n_alike, config.n_parallel * (1 + usual))
    sizes, seconds = (_SINGLE, 0.0) if is_seldom else (range(1, n_max + 1), _TARGET_SECONDS)
    samples, stored = timing.curve(context, target.config, "target", sizes, seconds)
    why = "" if stored else disturbance(samples)
    used = as_at_rest(samples) if why else samples

    def machine() -> Machine:
        made = Machine(
            CostCurve(used),
            {origin: CostCurve(cost.samples) for origin, cost in steps.items()},
            n_ubatch=context.n_ubatch,
            least=least.rows,
            of_each=least.of_each,
            n_free=context.n_free,
            keep_ms=context.keep_ms,
        )
        made.is_rough = bool(why)
        return made

    policies = Policies(machine, frozenset(map(Origin, config.drafting.weighed)), config.drafting.window)
    if is_seldom:
        return policies, (), None
    if why:
        again = Remeasurement(
            policies,
            samples,
            lambda seq, depth, stop: quick(context, sizes, seconds, timing.clock, seq=seq, depth=depth, stop=stop),
            timing.clock,
        )
        line = (
            f"one token takes about {rounded(policies.last.known.machine.target.ms(1))} ms, measured roughly, as other "
            f"programs use the machine ({why}); it is measured again when nothing runs"
        )
        return policies, (line,), again
    how = "" if stored else "; measured quickly, `uad profile` measures well and remembers"
    is_rough = any(cost.is_rough for cost in steps.values())
    busy = " (other programs use the machine: what drafts cost was measured roughly)" if is_rough else ""
    return policies, (_curve_note(policies.last.known.machine, [n for n in _TELLING if n <= n_max]) + busy + how,), None


def _curve_note(machine: Machine, sizes: Sequence[int]) -> str:
    single = machine.target.ms(1)
    times = ", ".join(f"{machine.target.ms(n) / single:.1f}" for n in sizes)
    passes = f"; a pass of {', '.join(map(str, sizes))} tokens takes {times} times that" if sizes else ""
    return f"one token takes {rounded(single, 3)} ms{passes}"
