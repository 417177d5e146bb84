"""Weights that llama.cpp cannot use rearranged: found in a model's graphs, and kept as they are in the file.

Where there is no AMX, what would happen there is imitated: lab/amx_emulated.h has the whole of it.
"""

from __future__ import annotations

import json
from contextlib import closing
from ctypes import c_bool, c_void_p
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from kit.models import TARGET
from kit.tiny_models import make

from uad.base.config import ModelConfig
from uad.base.types import Rows
from uad.llama import placement, rearranged, rearranging
from uad.llama.backend import amx, symbols
from uad.llama.backend.ggml import function
from uad.llama.context import Context
from uad.llama.kernels.library import BUFFER
from uad.llama.model import Model, model_params

K_B, V_B = "blk.0.attn_k_b.weight", "blk.1.attn_v_b.weight"
GAVE_UP = b"some line\nuad: error: llama.cpp gave up: GGML_ASSERT(*cur_backend_id != -1) failed (ggml-backend.cpp)\n"


@pytest.fixture
def children(monkeypatch):
    """What the other process prints, once for each time that it is started; returns the words it was given."""
    answers: list[SimpleNamespace] = []
    started: list[list[str]] = []

    def run(command, **options):
        started.append(command[4:])
        return answers.pop(0)

    monkeypatch.setattr(amx, "is_broken", lambda: False)
    monkeypatch.setattr(amx, "choosy_buffers", lambda: frozenset({"AMX"}))
    monkeypatch.setattr(rearranged.subprocess, "run", run)
    rearranged._tried.cache_clear()
    yield answers, started
    rearranged._tried.cache_clear()


def ended(code: int, out: bytes = b"", said: bytes = b"") -> SimpleNamespace:
    return SimpleNamespace(returncode=code, stdout=out, stderr=said)


def test_weights_that_were_found_stay_as_they_are_and_a_line_says_so(children) -> None:
    answers, started = children
    answers += [ended(0, json.dumps([K_B, V_B]).encode())]
    found = rearranged.rearranged(ModelConfig(TARGET))
    assert (found.is_on, found.plain) == (True, (K_B, V_B))
    (line,) = rearranged.notes(ModelConfig(TARGET), "target")
    assert line.startswith("target: attn_k_b, attn_v_b stay as they are")
    assert started == [[]], "asked once"


def test_nothing_is_rearranged_where_llama_cpp_gives_up_all_the_same(children) -> None:
    answers, started = children
    answers += [ended(1, b"[]", GAVE_UP)]
    found = rearranged.rearranged(ModelConfig(TARGET))
    assert not found.is_on
    assert "cur_backend_id" in rearranged.notes(ModelConfig(TARGET), "target")[0]
    assert started == [[]]
    assert not model_params(ModelConfig(TARGET)).use_extra_bufts


def test_where_looking_at_the_graph_ends_the_process_it_is_only_tried(children) -> None:
    answers, started = children
    answers += [ended(-11), ended(0, b"[]")]
    assert rearranged.rearranged(ModelConfig(TARGET)) == rearranged.Rearranged(True)
    assert started == [[], [rearranged.ONLY_TRY]]
    assert rearranged.notes(ModelConfig(TARGET), "target") == ()


def test_who_says_no_repack_is_asked_nothing(children) -> None:
    assert rearranged.rearranged(ModelConfig(TARGET, repack=False)) == rearranged.Rearranged(False)
    assert rearranged.notes(ModelConfig(TARGET, repack=False), "target") == ()


def test_a_changed_file_is_tried_again(children, tmp_path) -> None:
    answers, started = children
    answers += [ended(0, b"[]"), ended(0, b"[]")]
    path = tmp_path / "model.gguf"
    for content in (b"GGUF", b"GGUF2"):
        path.write_bytes(content)
        for n_ctx in (512, 4096):
            assert rearranged.rearranged(ModelConfig(path, n_ctx=n_ctx)).is_on
    assert len(started) == 2


def test_patterns_fit_the_named_tensors_alone() -> None:
    names = ["blk.0.attn_k_b.weight", "blk.12.attn_k_b.weight", "blk.3.attn_v_b.weight", "altup_proj.weight"]
    assert list(rearranged.patterns(names)) == [
        r"^altup_proj\.weight$",
        r"^blk\.(0|12)\.attn_k_b\.weight$",
        r"^blk\.(3)\.attn_v_b\.weight$",
    ]


# --- the other process


def test_the_graphs_of_the_installed_llama_cpp_can_be_looked_at() -> None:
    """Where this fails for a newer one, models with latent attention lose all rearranged weights on AMX: see
    `symbols.UNSTABLE` and `NativeTensor`.
    """
    assert rearranging.can_look()


@pytest.mark.parametrize(("name", "wanted"), [("deepseek2", {"attn_k_b", "attn_v_b"}), ("llama", set())])
def test_weights_are_found_that_a_choosy_buffer_refuses(name, wanted, tmp_path, monkeypatch) -> None:
    """AMX as its sources say: it takes what can be multiplied, and then wants contiguous inputs."""
    monkeypatch.setitem(symbols.GGML, "ggml_is_contiguous", (c_bool, c_void_p))
    contiguous = function("ggml_is_contiguous")

    def can(self, node, weight, name):
        return contiguous(rearranging.NativeTensor.from_address(node).src[1])

    monkeypatch.setattr(rearranging.Buffers, "_can", can)
    found = set(rearranging.refused(ModelConfig(make(name, tmp_path), n_threads=1)))
    layers = {one.split(".")[1] for one in found}
    assert found == {f"blk.{layer}.{kind}.weight" for layer in layers for kind in wanted}
    assert bool(found) == bool(wanted)


@pytest.mark.parametrize(("n_seq", "is_apart"), [(0, True), (2, True), (1, False)])
def test_weights_that_several_sequences_multiply_apart_stay_out_of_amx(n_seq, is_apart, tmp_path, monkeypatch) -> None:
    def can(self, node, weight, name):
        return True

    def buffers(self):
        self.by_name = {"AMX": 0}

    monkeypatch.setattr(rearranging.Buffers, "__init__", buffers)
    monkeypatch.setattr(rearranging.Buffers, "close", lambda self: None)
    monkeypatch.setattr(rearranging.Buffers, "_can", can)
    found = set(rearranging.refused(ModelConfig(make("mamba", tmp_path), n_threads=1, n_seq=n_seq)))
    wanted = {"ssm_in", "ssm_out", "ssm_x", "ssm_dt"} if is_apart else set()
    assert {one.split(".")[2] for one in found} == wanted


def test_a_context_has_no_more_sequences_than_its_model_was_loaded_for() -> None:
    config = ModelConfig(TARGET, n_ctx=512, n_threads=1, n_seq=1)
    with Model(config) as model, pytest.raises(ValueError, match="for 1 sequences"):
        Context(model, config, 2)


def test_this_machines_own_buffers_take_all_that_they_want(tmp_path) -> None:
    """The tied embedding of the bundled target is looked up as well as multiplied by: it is loaded twice."""
    assert set(rearranging.refused(ModelConfig(TARGET, n_threads=1))) == set()


def test_a_buffer_is_asked_about_the_very_operation() -> None:
    """A weight that CPU_REPACK takes and a view into it that it would read wrongly."""
    with closing(rearranging.Buffers()) as buffers, closing(rearranging.Scratch()) as scratch:
        weight = scratch.tensor(2, 64, 64)  # Q4_0
        product = scratch.product(weight, scratch.tensor(0, 64, 8))
        batch = scratch.product(weight, scratch.tensor(0, 64, 8, 3))
        for name in buffers.by_name:
            if buffers.takes(weight, name):
                assert buffers.does(weight, [(product, False)], name)
                # uad's kernels read rows of their own weights
                assert buffers.does(weight, [(product, False), (product, True)], name) == (name == BUFFER)
                assert not buffers.does(weight, [(scratch.product(weight, weight), False)], name)
                assert buffers.does(weight, [(batch, False)], name) == (name != "AMX")
        assert rearranging.NativeTensor.from_address(weight).buffer is None, "as it was"


def test_a_model_with_plain_weights_computes_what_it_does_without_rearranged_ones(
    tmp_path, children, monkeypatch
) -> None:
    monkeypatch.setattr(placement, "is_understood", lambda: True)  # its process would be one of the children
    config = ModelConfig(make("deepseek2", tmp_path), n_ctx=512, n_threads=1)
    names = [f"blk.{layer}.attn_{kind}_b.weight" for layer in (0, 1) for kind in "kv"]
    children[0].append(ended(0, json.dumps(names).encode()))
    logits = []
    for one in (config, replace(config, repack=False)):
        with Model(one) as model, Context(model, one, 1) as context:
            context.decode([Rows(0, 0, [7, 8, 9], 1)])
            logits.append(context.logits().copy())
    assert np.allclose(*logits, atol=0.05)
