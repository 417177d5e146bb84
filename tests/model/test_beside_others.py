"""Under `--exact` log-probabilities are equal to the bit beside other sequences, also those of recurrent models."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit.tiny_models import make
from kit.toys import Collector
from stepper import Stepper

from uad.base.config import Config, DraftingConfig, ModelConfig
from uad.base.types import Request, SamplingParams, SpeculativeParams

pytestmark = pytest.mark.model
N_SLOTS = 4


def request(seed: int) -> Request:
    rng = random.Random(seed)
    ids = tuple(rng.randrange(3, 400) for _ in range(8 + 5 * seed % 50))
    sampling = SamplingParams(temperature=0.7 * (seed % 2), seed=seed)
    off = SpeculativeParams(enabled=False)
    return Request(ids, sampling, off, max_tokens=30 + seed, logprobs=True, cache_prompt=False)


def logprobs(stepper: Stepper, asked: Sequence[Request], pause: int) -> list[list[tuple[int, float]]]:
    """Of all answers; each request begins so many rounds after the one before."""
    sinks = [Collector() for _ in asked]
    for one, sink in zip(asked, sinks, strict=True):
        stepper.submit(one, sink)
        for _ in range(pause):
            stepper.step()
    while not stepper.is_idle:
        stepper.step()
    return [[(prob.id, prob.logprob) for delta in sink.deltas for prob in delta.probs] for sink in sinks]


@pytest.mark.parametrize("name", ["jamba", "falcon-h1", "mamba2", "mamba"])
def test_a_recurrent_model_has_the_same_bits_beside_others_as_alone(name: str, tmp_path: Path) -> None:
    own = ModelConfig(make(name, tmp_path), n_ctx=256 * N_SLOTS, n_threads=1, kernels=False)
    with Stepper.open(Config(target=own, n_parallel=N_SLOTS, drafting=DraftingConfig(exact=True))) as stepper:
        assert any(note.startswith("--exact: ") and "of each slot" in note for note in stepper.info.notes)
        asked = [request(seed) for seed in range(N_SLOTS)]
        alone = [logprobs(stepper, [one], 0)[0] for one in asked]
        for pause in (0, 3):
            assert logprobs(stepper, asked, pause) == alone
