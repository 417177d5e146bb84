"""A plugin of pytest: what a start measures of a model, measured once for many tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from uad.base.config import Config, ModelConfig
from uad.engine.decode.layout import Least
from uad.engine.policy.cost import CostSample

if TYPE_CHECKING:
    from uad.llama.context import Context

CURVES: dict[object, tuple[tuple[CostSample, ...], bool]] = {}
LEAST: dict[object, tuple[Least, tuple[str, ...], bool]] = {}


@pytest.fixture
def learned_once() -> Iterator[None]:
    with learning_once():
        yield


@contextmanager
def learning_once() -> Iterator[None]:
    """What a start measures of a model is measured once in a process: how long its passes take, and which of them give
    the same bits. Two thirds of a start are that. Not for tests of these measurements.
    """
    from uad.runtime import open as opening
    from uad.runtime import target
    from uad.runtime.costs import profile_store

    curve, exactness = profile_store.curve, target.exactness

    def curve_once(
        context: Context, config: ModelConfig, role: str, sizes: Sequence[int], seconds: float
    ) -> tuple[tuple[CostSample, ...], bool]:
        key = profile_store.key(config, role)
        if profile_store.load(key) is not None:
            return curve(context, config, role, sizes, seconds)
        asked = (key.name, tuple(sizes), seconds, context.n_seq, context.n_ctx)
        if asked not in CURVES:
            CURVES[asked] = curve(context, config, role, sizes, seconds)
        return CURVES[asked]

    def exactness_once(context: Context, config: Config) -> tuple[Least, tuple[str, ...], bool]:
        asked = (
            profile_store.key(config.target, "target").name,
            config.drafting.exact,
            config.n_parallel,
            (context.n_ctx, context.n_seq, context.n_batch, context.n_ubatch, context.rows_are_apart),
        )
        if asked not in LEAST:
            LEAST[asked] = exactness(context, config)
        return LEAST[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "curve", curve_once)
        patch.setattr(target, "exactness", exactness_once)
        yield
