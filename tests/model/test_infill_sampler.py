"""llama.cpp's sampler for code in the middle: what it leaves, and that nobody makes it compare a whole vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from kit.models import TARGET

from uad.base.config import ModelConfig
from uad.base.types import SamplingParams
from uad.engine.sampling.stages import SamplerStage, stages
from uad.llama.model import Model
from uad.llama.samplers import SamplerChain

pytestmark = pytest.mark.model


def names(*samplers: str, top_k: int = 40) -> list[str]:
    chain = stages(SamplingParams(samplers=samplers, top_k=top_k), frozenset(), 64)
    return [f"{one.sampler.name} {one.args}" for one in chain if isinstance(one, SamplerStage)]


def test_only_the_likeliest_ids_reach_it() -> None:
    assert names("infill") == ["top_k (128,)", "infill ()"]
    assert names("top_k", "infill", top_k=7) == ["top_k (7,)", "top_k (128,)", "infill ()"]
    assert names("top_k") == ["top_k (40,)"]


def test_a_clear_winner_stays_and_ends_win_where_they_are_likely() -> None:
    with Model(ModelConfig(TARGET)) as model:
        n_vocab, end = model.info.n_vocab, min(model.vocab.eog)
        chain = SamplerChain(n_vocab, stages(SamplingParams(samplers=("infill",)), frozenset(), 64), model.native_vocab)
        try:
            row = np.random.default_rng(1).standard_normal(n_vocab).astype(np.float32)
            row[end] = -20.0
            row[300] = 20.0
            assert 300 in chain.apply(row)[0]
            row[end] = 18.0
            assert set(chain.apply(row)[0]) <= set(model.vocab.eog)
        finally:
            chain.close()
