"""Kernels of uad in models of each kind of memory: a row's logits have the bits that they have alone, whatever rows and
sequences are beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kit import tiny_models
from kit.tiny_models import EXPERTS, NAMES, Kind, make
from numpy.typing import NDArray

from uad.base.config import ModelConfig
from uad.base.types import Rows
from uad.llama.context import Context
from uad.llama.kernels import use
from uad.llama.kernels.library import ACTIVATIONS, ATTENTION, OF_PASSES
from uad.llama.model import Model

pytestmark = pytest.mark.model
N_SEQ = 3
IDS = [[(7 + 31 * seq + i * (5 + seq)) % 250 for i in range(24)] for seq in range(N_SEQ)]


def config(path: Path, flash_attn: str = "on") -> ModelConfig:
    one = ModelConfig(path, n_ctx=256 * N_SEQ, n_threads=2, flash_attn=flash_attn)
    if not set(OF_PASSES) <= set(use.of(one).parts):
        pytest.skip(use.of(one).note())
    return one


def logits(context: Context, ids: Sequence[Sequence[int]], size: int) -> NDArray[np.uint32]:
    """Of the first sequence, decoded in passes of this size."""
    for seq in range(N_SEQ):
        context.clear(seq)
    found = []
    for at in range(0, len(ids[0]), size):
        parts = [one[at : at + size] for one in ids]
        context.decode([Rows(seq, at, part, len(part)) for seq, part in enumerate(parts)])
        found.append(context.logits()[: len(parts[0])].view(np.uint32).copy())
    return np.concatenate(found)


@pytest.mark.parametrize("flash_attn", ["on", "off"])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_the_bits_that_it_has_alone(name: str, flash_attn: str, tmp_path: Path) -> None:
    one = config(make(name, tmp_path), flash_attn)
    before = use.counts()
    with Model(one) as model, Context(model, one, N_SEQ) as context:
        alone = logits(context, IDS[:1], 1)
        for n_seq in (1, N_SEQ):
            for size in (24, 7, 2, 1):
                assert np.array_equal(logits(context, IDS[:n_seq], size), alone), (n_seq, size)
    ran = {what for what, n in use.counts().items() if n > before[what]}
    assert "products" in ran
    if NAMES[name] is not Kind.RECURRENT:
        assert ran & set(OF_PASSES) == {ATTENTION if flash_attn == "on" else ACTIVATIONS}


def test_factors_beside_matrices_stay_with_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp's loader asks for them as if they were matrices, and its graphs multiply by them without MUL_MAT."""
    tensors = tiny_models._tensors
    factors = {"attn_output.scale": (1,), "attn_output.input_scale": (1,), "ffn_down_exps.scale": (EXPERTS,)}
    more = {f"blk.{i}.{name}": sizes for i in range(2) for name, sizes in factors.items()}
    monkeypatch.setattr(tiny_models, "_tensors", lambda *given: tensors(*given) | more)
    one = ModelConfig(make("qwen3moe", tmp_path), n_ctx=256 * N_SEQ, n_threads=2)
    if not use.of(one).types:
        pytest.skip(use.of(one).note())
    with Model(one) as model, Context(model, one, N_SEQ) as context:
        assert np.isfinite(logits(context, IDS[:1], 24).view(np.float32)).all()
