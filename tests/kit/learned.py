"""What a start measures of a model, measured once for many tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from uad.base.config import ModelConfig
from uad.base.model_files import fingerprint
from uad.engine.policy.cost import CostSample

if TYPE_CHECKING:
    from uad.llama.context import Context
    from uad.runtime.target import Measured

CURVES: dict[object, tuple[tuple[CostSample, ...], bool]] = {}
LEAST: dict[object, Measured] = {}


@contextmanager
def learning_once() -> Iterator[None]:
    """What a start measures of a model is measured once in a process: up to nine tenths of a start are that. Tests of
    these measurements call them themselves.
    """
    with curves_once(), exactness_once():
        yield


@contextmanager
def curves_once() -> Iterator[None]:
    """How long the passes of a model take is measured once, whatever the settings: of one row, and of several. Sizes
    that a curve has not are guessed from those that it has, as those that a start has no time for.
    """
    from uad.runtime import timing
    from uad.runtime.costs import profile_store

    curve = profile_store.curve

    def once(
        context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
    ) -> tuple[tuple[CostSample, ...], bool]:
        if profile_store.load(profile_store.key(config, role)) is not None:
            return curve(context, config, role, sizes, seconds)
        asked = (fingerprint(config.path), role, len(sizes) > 1)
        if asked not in CURVES:
            CURVES[asked] = curve(context, config, role, sizes, seconds)
        return CURVES[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "curve", once)
        yield


@contextmanager
def exactness_once() -> Iterator[None]:
    """Which passes of a model give the same bits is measured once for each of its settings."""
    from uad.runtime import target
    from uad.runtime.costs import profile_store

    agreeing = target.agreeing

    def once(context: Context, config: ModelConfig) -> Measured:
        asked = (
            profile_store.key(config, "target").name,
            (context.n_ctx, context.n_seq, context.n_batch, context.n_ubatch, context.rows_are_apart),
        )
        if asked not in LEAST:
            LEAST[asked] = agreeing(context, config)
        return LEAST[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "agreeing", once)
        yield
