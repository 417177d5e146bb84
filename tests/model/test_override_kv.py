"""--override-kv and what else is handed to llama.cpp as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.tiny_models import N_CTX, make, split

from uad.base.config import KvOverride, ModelConfig, Place
from uad.base.errors import ConfigError
from uad.llama import placement
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


def test_tensors_lie_where_they_were_put_and_an_unknown_buffer_names_those_that_are(tiny: Path, tmp_path: Path) -> None:
    places = (Place("ffn_down", "CPU"), Place(r"ffn_", "CPU"))
    with Model(ModelConfig(tiny, places=places)) as model, Footprint(ModelConfig(tiny, places=places), "x", 1):
        assert model.info.n_vocab
    with pytest.raises(ConfigError, match=r"no buffer 'GPU9'; there are CPU"):
        Model(ModelConfig(tiny, places=(Place("ffn", "GPU9"),)))
    sizes = [placement.bytes_beside_cpu(tiny, chosen) for chosen in (places[:1], places, ())]
    assert 0 < sizes[0] < sizes[1]
    assert sizes[2] == 0
    assert placement.bytes_beside_cpu(split(tiny, tmp_path)[0], places) == sizes[1]
