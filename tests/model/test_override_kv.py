"""--override-kv and what else is handed to llama.cpp as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.tiny_models import N_CTX, make

from uad.config import KvOverride, ModelConfig
from uad.llama.context import context_params
from uad.llama.footprint import Footprint
from uad.llama.model import Model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("llama", tmp_path_factory.mktemp("override"))


def test_a_value_of_the_file_is_replaced_and_the_file_is_not(tiny: Path) -> None:
    before = tiny.read_bytes()
    longer = (KvOverride("llama.context_length", 2 * N_CTX),)
    config = ModelConfig(tiny, overrides=longer, check_tensors=True, no_host=True)
    with Model(config) as model, Footprint(config, "target", 1) as footprint:
        assert (model.info.n_ctx_train, footprint.n_ctx_train) == (2 * N_CTX, 2 * N_CTX)
    with Model(ModelConfig(tiny)) as model:
        assert model.info.n_ctx_train == N_CTX
    assert tiny.read_bytes() == before


@pytest.mark.parametrize("wanted", [True, False])
def test_where_caches_and_operations_lie_reaches_llama_cpp(tiny: Path, wanted: bool) -> None:
    params = context_params(ModelConfig(tiny, kv_offload=wanted, op_offload=wanted), 256, 1)
    assert (params.offload_kqv, params.op_offload) == (wanted, wanted)
