"""The double of the sampler chain (`kit/chain.py`) leaves what llama.cpp's chain leaves: the same ids and logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kit.chain import FUNCTIONS, NumpyChain

from uad.base.common.samplers import INFILL, SAMPLERS
from uad.base.types import SamplingParams
from uad.engine.sampling.stages import stages
from uad.llama.samplers import SamplerChain

N_VOCAB = 400
SETTINGS: dict[str, dict[str, Any]] = {
    "logit_bias": {"logit_bias": ((3, 2.5), (7, float("-inf")), (399, -1.0)), "samplers": ("temperature",)},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": -0.4, "repeat_last_n": 12},
    "top_n_sigma": {"top_n_sigma": 1.2},
    "top_k": {"top_k": 17},
    "typ_p": {"typical_p": 0.6},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.04},
    "temperature": {"temperature": 1.7},
    "temperature by entropy": {"samplers": ("temperature",), "dynatemp_range": 0.6, "dynatemp_exponent": 1.4},
}


def rows(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2.5, (n, N_VOCAB)).astype(np.float32)


def both(params: SamplingParams) -> tuple[NumpyChain, SamplerChain]:
    chain = stages(params, frozenset(), 512)
    assert chain, "nothing to compare"
    return NumpyChain(N_VOCAB, chain), SamplerChain(N_VOCAB, chain)


def drawable(ids: np.ndarray, logits: np.ndarray) -> dict[int, float]:
    """Candidates without banned ones: which of those are kept among equals is up to the algorithm that sorts."""
    return {id_: logit for id_, logit in zip(ids.tolist(), logits.tolist(), strict=True) if logit > -np.inf}


def compare(params: SamplingParams, seed: int, n: int = 60) -> int:
    """How many candidates were compared. Where a bound lies between two candidates rounding may put either side."""
    double, native = both(params)
    n_compared = n_apart = 0
    for row, id_ in zip(rows(n, seed), np.random.default_rng(seed).integers(0, 40, n).tolist(), strict=True):
        ids, logits = (part.copy() for part in native.apply(row))
        kept, ours = double.apply(row)
        theirs, mine = drawable(ids, logits), drawable(kept, ours)
        n_apart += len(theirs.keys() ^ mine.keys())
        n_compared += len(shared := theirs.keys() & mine.keys())
        np.testing.assert_allclose([mine[i] for i in shared], [theirs[i] for i in shared], rtol=2e-5, atol=2e-5)
        native.accept(id_)
        double.accept(id_)
    native.close()
    double.close()
    assert n_apart <= n / 20
    return n_compared


@pytest.mark.parametrize("name", SETTINGS)
def test_each_stage_leaves_the_same_candidates(name: str) -> None:
    params = replace(SamplingParams(samplers=(name,)), **SETTINGS[name])
    n = 60
    n_compared = compare(params, seed=len(name), n=n)
    assert n <= n_compared <= n * N_VOCAB
    keeps_all = name in ("penalties", "temperature", "temperature by entropy")
    assert (n_compared == n * N_VOCAB) == keeps_all


@pytest.mark.parametrize("seed", range(20))
def test_chains_of_several_stages_leave_the_same_candidates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [name for name in SETTINGS if name not in ("logit_bias", "temperature by entropy")]
    chosen = [str(name) for name in rng.permutation(names)[: rng.integers(2, len(names) + 1)]]
    order = tuple(sorted(chosen, key=lambda name: name != "typ_p"))  # `StepMaker` lets no banned id come to it
    fields = {field: value for name in order for field, value in SETTINGS[name].items()}
    compare(replace(SamplingParams(samplers=order, min_keep=int(rng.integers(0, 4))), **fields), seed)


def test_the_usual_chain_leaves_the_same_candidates() -> None:
    compare(SamplingParams(), seed=1)


def test_candidates_that_are_given_are_all_that_is_left() -> None:
    double, native = both(SamplingParams(samplers=("top_p",), top_p=0.8))
    ids = np.array([5, 9, 200, 301], np.intp)
    (row,) = rows(1, 3)
    theirs, _ = native.apply(row[ids], ids)
    mine, _ = double.apply(row[ids], ids)
    assert set(mine.tolist()) == set(theirs.tolist()) < set(ids.tolist())


def test_every_native_sampler_has_its_double() -> None:
    named = {entry.native.removeprefix("llama_sampler_init_") for entry in SAMPLERS if entry.native}
    of_its_own = INFILL.native.removeprefix("llama_sampler_init_")
    assert named - {"penalties", of_its_own} == FUNCTIONS.keys()
