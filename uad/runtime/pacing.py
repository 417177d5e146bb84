"""Makes the policy from the cost curves of the loaded models: stored ones (`uad profile`), else what two seconds
tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from uad.config import Config, ModelConfig
from uad.costs.profile import BUSY, spread
from uad.llama.context import Context
from uad.policy.auto import AutoPolicy
from uad.policy.cost import CostCurve, CostSample
from uad.policy.machine import Machine
from uad.runtime.target import LoadedTarget
from uad.runtime.wiring import Wiring
from uad.types import Origin, SpecPolicy

_TARGET_SECONDS, _DRAFT_SECONDS = 1.7, 0.3
_MOST_SEQUENCES = 16
_SINGLE = range(1, 2)


class Policies:
    """Makes the policy from what was measured at start; after a failure, a fresh one that has learned nothing yet.
    `last` rules now.
    """

    def __init__(self, machine: Callable[[], Machine], weighed: frozenset[Origin], window: int) -> None:
        self._machine = machine
        self._weighed = weighed
        self._window = window
        self.last = self()

    def __call__(self) -> AutoPolicy:
        self.last = AutoPolicy(self._machine(), self._weighed, self._window)
        return self.last


@dataclass(frozen=True, slots=True)
class Steps:
    """What steps of a drafter that writes cost, and whether that was measured on a busy machine."""

    samples: tuple[CostSample, ...]
    is_rough: bool


def draft_steps(
    config: Config, draft: Context, draft_config: ModelConfig, wiring: Wiring, role: str = "draft"
) -> Steps:
    """Stored, else as a short look tells. Raises what decoding does."""
    sizes = range(1, min(config.n_parallel, _MOST_SEQUENCES) + 1)
    samples, stored = wiring.curve(draft, draft_config, role, sizes, _DRAFT_SECONDS)
    return Steps(samples, _is_rough(samples, stored))


def open_policy(
    config: Config,
    target: LoadedTarget,
    steps: Steps | None,
    head_steps: Steps | None,
    wiring: Wiring,
    is_seldom: bool = False,
) -> tuple[Policies, tuple[str, ...]]:
    """The policies, and the lines that say what decoding several tokens at once costs here.

    is_seldom: only few requests draft, so their own rounds tell what several tokens at once cost; at start single ones
    are decoded, and no line is worth that.
    """
    context, least = target.context, target.least
    # sizes of longer automatic drafts take too long for a quick look; the curve follows them while it runs
    usual = replace(config.drafting.defaults, policy=SpecPolicy.FIXED).longest
    n_max = min(context.n_alike, config.n_parallel * (1 + usual))
    sizes, seconds = (_SINGLE, 0.0) if is_seldom else (range(1, n_max + 1), _TARGET_SECONDS)
    samples, stored = wiring.curve(context, target.config, "target", sizes, seconds)
    is_rough = _is_rough(samples, stored) or any(one is not None and one.is_rough for one in (steps, head_steps))

    def machine() -> Machine:
        return Machine(
            CostCurve(samples),
            CostCurve(steps.samples) if steps is not None else None,
            head=CostCurve(head_steps.samples) if head_steps is not None else None,
            n_ubatch=context.n_ubatch,
            least=least.rows,
            of_each=least.of_each,
            n_free=context.n_free,
            keep_ms=context.keep_ms,
        )

    policies = Policies(machine, frozenset(map(Origin, config.drafting.weighed)), config.drafting.window)
    if is_seldom:
        return policies, ()
    how = "" if stored else "; measured quickly, `uad profile` measures well and remembers"
    busy = " (the machine is busy: these times are rough)" if is_rough else ""
    return policies, (_curve_note(policies.last.machine, n_max) + busy + how,)


def _is_rough(samples: Sequence[CostSample], stored: bool) -> bool:
    return not stored and spread(samples) > BUSY


def _curve_note(machine: Machine, n_max: int) -> str:
    one = machine.target.ms(1)
    sizes = [n for n in (2, 4, 8, 16) if n <= n_max]
    times = ", ".join(f"{machine.target.ms(n) / one:.1f}" for n in sizes)
    passes = f"; a pass of {', '.join(map(str, sizes))} tokens takes {times} times that" if sizes else ""
    return f"one token takes {one:.1f} ms{passes}"
