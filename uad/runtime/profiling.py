"""Full cost curves of a configuration's models, measured and stored, for `uad profile`. Knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from uad.config import Config, ModelConfig
from uad.costs.fit import fitted, fitted_alone
from uad.errors import ConfigError
from uad.llama import native
from uad.llama.context import Context
from uad.llama.model import Model
from uad.policy.cost import CostSample
from uad.runtime import profile, profile_store
from uad.runtime.remote import connected

Progress = Callable[[str, float], None]
"""Told what is being done and the share of it that is done."""


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """One model's curve: a sample for each size and depth, the file that keeps it, and how much single decodes differed
    (uad.costs.profile.spread)."""

    role: str
    model: str
    samples: tuple[CostSample, ...]
    file: Path
    spread: float


def measure_profiles(
    config: Config, n_max: int, depths: Sequence[int] | None, progress: Progress
) -> tuple[MeasuredCurve, ...]:
    """Measure passes of 1 to n_max rows behind each depth (None: the usual ones, as far as the context goes) and store
    the curves.

    The target first, then the draft, each alone in memory. Raises ModelLoadError or ConfigError; what was measured
    before is stored.
    """
    native.start().verbose = config.verbose
    config = connected(config)
    native.use_numa(config.numa)
    target, n_ctx = _measure_target(config, n_max, depths, progress)
    if config.draft is None:
        return (target,)
    return target, _measure_draft(config, config.draft, n_ctx, n_max, depths, progress)


def curve(
    context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
) -> tuple[tuple[CostSample, ...], bool]:
    """The stored curve of a loaded model, else a quick one; and whether it was stored. On the thread that owns the
    context.
    """
    stored = profile_store.load(profile_store.key(config, role))
    return (profile.quick(context, sizes, seconds), False) if stored is None else (stored, True)


def _measure_target(
    config: Config, n_max: int, depths: Sequence[int] | None, progress: Progress
) -> tuple[MeasuredCurve, int]:
    """The target's curve, and the context of a slot."""
    config = fitted(replace(config, draft=None)).config
    with (
        Model(config.target, "target", lambda share: progress("loading target", share)) as model,
        Context(model, config.target, config.n_parallel, "target") as context,
    ):
        at = profile.fitting_depths(context, n_max) if depths is None else depths
        return _measure(context, config.target, "target", model.info.desc, n_max, at, progress), context.n_ctx


def _measure_draft(
    whole: Config, config: ModelConfig, n_ctx: int, n_max: int, depths: Sequence[int] | None, progress: Progress
) -> MeasuredCurve:
    """The draft's curve, with the threads and the context that a server would choose: it may have less room than the
    target, and then drafts from a window.
    """
    with Model(config, "draft", lambda share: progress("loading draft", share)) as model:
        own = fitted_alone(whole, config, "draft", 1, min(n_ctx, model.info.n_ctx_train))
        with Context(model, own, 1, "draft") as context:
            context.choose_threads(own)
            at = profile.fitting_depths(context, n_max, profile.DEPTHS if depths is None else depths)
            return _measure(context, config, "draft", model.info.desc, n_max, at, progress)


def _measure(
    context: Context, config: ModelConfig, role: str, name: str, n_max: int, depths: Sequence[int], progress: Progress
) -> MeasuredCurve:
    if not context.can_take_back:
        raise ConfigError(
            f"{role} {name}: its memory cannot take drafts back: nothing can be drafted, and nothing measured"
        )
    every = profile.full(context, range(1, n_max + 1), depths, lambda share: progress(f"measuring {role}", share))
    samples = profile.medians(every)
    return MeasuredCurve(
        role, name, samples, profile_store.save(profile_store.key(config, role), samples), profile.spread(every)
    )
