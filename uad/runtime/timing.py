"""How a runtime is timed: its clock, and where the costs of passes come from. Checks and tests put their own here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from uad.base.config import ModelConfig
from uad.engine.policy.cost import CostSample
from uad.llama.context import Context
from uad.runtime.costs.profile_store import curve


class Timing:
    """A server's: the machine's clock, and costs that were stored or are measured at start."""

    clock: Callable[[], float] = staticmethod(perf_counter)

    def curve(
        self, context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
    ) -> tuple[tuple[CostSample, ...], bool]:
        """The costs of passes, for the policy, and whether they were stored. Raises what decoding does."""
        return curve(context, config, role, sizes, seconds)


TIMING = Timing()
