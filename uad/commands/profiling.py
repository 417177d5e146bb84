"""Full cost curves of a configuration's models, measured and stored, for `uad profile`. Knows no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from uad.backend import native
from uad.config import Config, ModelConfig
from uad.costs import profile, profile_store
from uad.costs.fit import fitted, fitted_alone
from uad.errors import ConfigError
from uad.llama.context import Context
from uad.llama.model import Model
from uad.policy.cost import CostSample
from uad.runtime.heads import PlannedHead, open_context, plan_head
from uad.runtime.remote import connected
from uad.runtime.target import Progress, open_target

_HEAD_WINDOW = 1  # positions whose hidden rows are kept: none is read


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """One model's curve: a sample for each size and depth, the file that keeps it, and how much single decodes differed
    (uad.costs.profile.spread)."""

    role: str
    model: str
    samples: tuple[CostSample, ...]
    file: Path
    spread: float


@dataclass(frozen=True, slots=True)
class _Measuring:
    """Passes of 1 to n_max rows after each depth. depths: None for the usual ones, as far as a context goes; progress:
    called with what is being done and the share of it that is done.
    """

    n_max: int
    depths: Sequence[int] | None
    progress: Progress

    def curve(
        self, context: Context, config: ModelConfig, role: str, name: str, depths: Sequence[int] | None
    ) -> MeasuredCurve:
        """Measure and store. Raises ConfigError."""
        if not context.can_take_back:
            raise ConfigError(
                f"{role} {name}: its memory cannot take drafts back: nothing can be drafted, and nothing measured"
            )
        at = profile.fitting_depths(context, self.n_max) if depths is None else depths
        every = profile.full(
            context, range(1, self.n_max + 1), at, lambda share: self.progress(f"measuring {role}", share)
        )
        samples = profile.medians(every)
        file = profile_store.save(profile_store.key(config, role), samples)
        return MeasuredCurve(role, name, samples, file, profile.spread(every))

    def fitting(self, context: Context) -> Sequence[int] | None:
        """The depths after which this context has room: it may have less than the target's."""
        return None if self.depths is None else profile.fitting_depths(context, self.n_max, self.depths)


def measure_profiles(
    config: Config, n_max: int, depths: Sequence[int] | None, progress: Progress
) -> tuple[MeasuredCurve, ...]:
    """Measure passes of 1 to n_max rows after each depth (None: the usual ones, as far as the context goes) and store
    the curves: the target's, that of a head which is to draft, and after these, alone in memory, the draft model's.

    Raises ModelLoadError or ConfigError; what was measured before is stored.
    """
    native.start().verbose = config.verbose
    planned = plan_head(connected(config))
    native.use_numa(config.numa)
    measuring = _Measuring(n_max, depths, progress)
    curves, n_ctx = _measure_target(planned, measuring)
    if (draft := planned.config.draft) is not None:
        curves.append(_measure_draft(planned.config, draft, n_ctx, measuring))
    return tuple(curves)


def _measure_target(planned: PlannedHead, measuring: _Measuring) -> tuple[list[MeasuredCurve], int]:
    """The curves of the target and of its head, and the context of a slot."""
    config = fitted(replace(planned.config, draft=None), head=planned.file).config
    with ExitStack() as stack:
        target = open_target(config, stack, measuring.progress)
        name = target.model.info.desc
        curves = [measuring.curve(target.context, target.config, "target", name, measuring.depths)]
        if planned.is_wanted:
            head, own = open_context(planned, stack, target, _HEAD_WINDOW, measuring.progress)
            curves.append(measuring.curve(head, own, "head", name, measuring.fitting(head)))
        return curves, target.context.n_ctx


def _measure_draft(whole: Config, config: ModelConfig, n_ctx: int, measuring: _Measuring) -> MeasuredCurve:
    """The draft's curve, with the threads and the context that a server would choose: it may have less room than the
    target, and then drafts from a window.
    """
    with Model(config, "draft", lambda share: measuring.progress("loading draft", share)) as model:
        own = fitted_alone(whole, config, "draft", 1, min(n_ctx, model.info.n_ctx_train))
        with Context(model, own, 1, "draft") as context:
            context.choose_threads(own)
            return measuring.curve(context, config, "draft", model.info.desc, measuring.fitting(context))
