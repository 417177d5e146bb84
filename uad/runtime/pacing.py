"""Makes the policy from the cost curves of the loaded models: stored ones (`uad profile`), else what two seconds tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uad.config import Config, ModelConfig
from uad.llama.context import Context
from uad.policy.auto import AutoPolicy
from uad.policy.cost import CostCurve, CostSample
from uad.policy.machine import Machine
from uad.runtime.counted import Costs
from uad.runtime.profile import BUSY, spread
from uad.runtime.profiling import curve
from uad.runtime.target import Target
from uad.types import Origin, SpecPolicy

_TARGET_SECONDS, _DRAFT_SECONDS = 1.7, 0.3
_MOST_SEQUENCES = 16


def open_policy(
    config: Config, target: Target, draft: Context | None, draft_config: ModelConfig | None, costs: Costs | None = None
) -> tuple[AutoPolicy, tuple[str, ...]]:
    """The policy, and the lines that say what decoding several tokens at once costs here; costs: those that time is counted by."""
    context, least = target.context, target.least
    # sizes of longer automatic drafts take too long for a quick look; the curve follows them while it runs
    usual = replace(config.drafting.defaults, policy=SpecPolicy.FIXED).longest
    n_max = min(context.n_ubatch, config.n_parallel * (1 + usual))
    sizes = range(1, n_max + 1)
    samples, stored = (costs.target, True) if costs is not None else curve(context, target.config, "target", sizes, _TARGET_SECONDS)
    is_rough = _is_rough(samples, stored)
    draft_curve = None
    if draft is not None and draft_config is not None:
        sizes = range(1, min(config.n_parallel, _MOST_SEQUENCES) + 1)
        steps = (costs.draft, True) if costs is not None else curve(draft, draft_config, "draft", sizes, _DRAFT_SECONDS)
        is_rough = is_rough or _is_rough(*steps)
        draft_curve = CostCurve(steps[0])
    machine = Machine(
        CostCurve(samples), draft_curve, n_ubatch=context.n_ubatch, least=least.rows, of_each=least.of_each, is_rough=is_rough
    )
    how = "" if stored else "; measured quickly, `uad profile` measures well and remembers"
    busy = " (the machine is busy: these times are rough)" if is_rough else ""
    return AutoPolicy(machine, frozenset(map(Origin, config.drafting.weighed))), (_curve_note(machine, n_max) + busy + how,)


def _is_rough(samples: Sequence[CostSample], stored: bool) -> bool:
    return not stored and spread(samples) > BUSY


def _curve_note(machine: Machine, n_max: int) -> str:
    one = machine.target.ms(1)
    sizes = ", ".join(f"{n} at once {machine.target.ms(n) / one:.1f}" for n in (2, 4, 8, 16) if n <= n_max)
    return f"one token takes {one:.1f} ms" + (f"; times that: {sizes}" if sizes else "")
