"""The owners of llama.cpp's handles, on the bundled models: return codes, rows in batches, samplers, threads,
attention.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from kit.models import DRAFTS, TARGET

from uad.base.common.samplers import SAMPLERS, SETTINGS
from uad.base.config import ModelConfig, load_config
from uad.base.errors import ConfigError, DecodeError
from uad.base.types import Rows, SamplingParams
from uad.engine.sampling.noise import Position, token_keys
from uad.engine.sampling.sampler import Sampler
from uad.engine.sampling.stages import LogitBias, SamplerStage, Stage, stages
from uad.llama.backend import amx
from uad.llama.context import Context, _are_rows_apart, attention
from uad.llama.memory import Way
from uad.llama.model import Model
from uad.llama.probe import least_agreeing_rows
from uad.llama.samplers import SamplerChain
from uad.llama.vocab import load_vocab
from uad.runtime import plan as plan_module
from uad.runtime.open import open_parts
from uad.runtime.plan import attention_note, plan
from uad.runtime.target import open_target

pytestmark = pytest.mark.model
CONFIG = ModelConfig(TARGET, n_ctx=512, n_batch=64, n_threads=2)


@pytest.fixture(scope="module")
def model():
    with Model(CONFIG) as loaded:
        yield loaded


@pytest.fixture
def context(model):
    with Context(model, CONFIG, 2) as opened:
        yield opened


def test_rows_come_back_in_batch_order_also_from_several_passes(model, context) -> None:
    a, b = model.vocab.tokenize(b"def add(self, item):\n"), model.vocab.tokenize(b"class Cart")
    alone = []
    for ids in (a, b):
        context.clear(0)
        context.decode([Rows(0, 0, ids, len(ids))])
        alone.append(context.logits().copy())
    context.clear(0)
    context.decode([Rows(0, 0, a, 3), Rows(1, 0, b, 2)])
    rows = context.logits()
    assert rows.shape == (5, model.info.n_vocab)
    assert np.allclose(rows[:3], alone[0][-3:], atol=0.05)
    assert np.allclose(rows[3:], alone[1][-2:], atol=0.05)


def test_a_gap_in_positions_and_too_many_rows_are_errors(context) -> None:
    with pytest.raises(DecodeError, match="llama_decode failed"):
        context.decode([Rows(0, 0, (1, 2), 1), Rows(0, 5, (1,), 1)])
    with pytest.raises(ValueError, match="do not fit"):
        context.decode([Rows(0, 0, (1,) * 65, 1)])


def test_truncated_positions_can_be_written_again(model, context) -> None:
    ids = model.vocab.tokenize(b"the quick brown fox jumps over")
    context.decode([Rows(0, 0, ids, 1)])
    want = context.logits().copy()
    context.take_back(0, 3)
    context.decode([Rows(0, 3, [7] * 5, 1)])
    context.take_back(0, 3)
    context.decode([Rows(0, 3, ids[3:], 1)])
    assert np.allclose(context.logits(), want, atol=0.05)
    assert context.memory.way is Way.POSITIONS


def test_float_weights_agree_from_two_rows_on(context) -> None:
    # 1 where AMX kernels take F16 weights, whatever the number of rows
    assert least_agreeing_rows(context) in ((1, False), (2, False))


def test_amx_multiplies_right_or_is_left_alone(model) -> None:
    if amx.is_broken():
        assert not amx.rearranges(CONFIG)
    elif (product := amx.multiply()) is not None:
        assert np.allclose(product, 64, rtol=0.02)


@pytest.mark.parametrize(
    ("code", "said", "broken"),
    [
        (0, b"", False),
        (-11, b"", True),
        (-4, b"", True),
        (3, b"", True),
        (1, b"", False),
        (1, b"uad: error: llama.cpp gave up: x", True),
    ],
)
def test_amx_is_left_alone_where_trying_it_ended_a_process(monkeypatch, code, said, broken) -> None:
    monkeypatch.setattr(amx, "extra_buffers", lambda device: {"AMX": 1})
    monkeypatch.setattr(
        amx.subprocess, "run", lambda *command, **options: SimpleNamespace(returncode=code, stderr=said)
    )
    monkeypatch.setattr(amx, "_crashes", amx._crashes.__wrapped__)
    assert amx.is_broken() == broken
    assert amx.rearranges(CONFIG) == (not broken)
    assert not amx.rearranges(replace(CONFIG, repack=False))
    assert bool(amx.notes()) == broken


def test_without_buffers_of_amx_nothing_is_tried(monkeypatch) -> None:
    """They are not there on other processors, nor where uad's kernels took them off the list."""
    monkeypatch.setattr(amx, "extra_buffers", lambda device: {"CPU_UAD": 1, "CPU_REPACK": 2})
    monkeypatch.setattr(amx.subprocess, "run", None)
    assert not amx.is_broken()


def test_padding_for_exactness_must_fit_into_the_batch(monkeypatch) -> None:
    monkeypatch.setattr("uad.runtime.target.least_agreeing_rows", lambda *_: (8, False))
    config = load_config(["-m", str(TARGET), "-c", "256", "-b", "15", "-np", "2", "--exact"], {})
    with ExitStack() as stack, pytest.raises(ConfigError, match=r"2 slots to 8 rows .* -b 16 or more"):
        open_target(plan(config), stack, lambda what, share: None)


def test_a_bias_on_a_token_that_the_target_has_not_is_found_at_start() -> None:
    config = load_config(["-m", str(TARGET), "-c", "256", "-l", "7+1", "-l", "4096-1"], {})
    with pytest.raises(ConfigError, match=r"--logit-bias 4096: .* \(0 to 4095\)"):
        open_parts(plan(config), lambda what, share: None)


@pytest.mark.parametrize(
    ("cores", "fields", "expected"),
    [
        (2, {}, {(1, 2), (2, 2)}),
        (2, {"n_threads_batch": 1}, {(1, 1), (2, 1)}),
        (2, {"n_threads": 1}, {None}),
        (1, {}, {None}),
    ],
)
def test_threads_are_chosen_where_nobody_said_how_many(context, monkeypatch, cores, fields, expected) -> None:
    set_threads, told = lib.llama_set_n_threads, []
    monkeypatch.setattr("uad.llama.context.usable_cores", lambda: cores)
    monkeypatch.setattr(
        "uad.llama.context.lib.llama_set_n_threads", lambda *args: told.append(args[1:]) or set_threads(*args)
    )
    context.choose_threads(ModelConfig(TARGET, **fields))
    assert (told[-1] if told else None) in expected


def test_attention_settings() -> None:
    plain = ModelConfig(TARGET, kernels=False)
    assert attention(plain, on_cpu=True) == ("on", 60)
    assert attention(replace(plain, flash_attn="off"), on_cpu=True) == ("off", 128)
    assert attention(plain, on_cpu=False) == ("auto", 512)


def test_with_attention_of_the_kernels_whole_passes_are_alike(monkeypatch) -> None:
    parts = {"attention", "activations"}
    monkeypatch.setattr("uad.llama.context.kernels.certain_parts", lambda config: parts if config.kernels else set())
    assert attention(CONFIG, on_cpu=True) == ("on", 512)
    assert attention(replace(CONFIG, flash_attn="off"), on_cpu=True) == ("off", 512)
    parts.remove("activations")
    assert attention(replace(CONFIG, flash_attn="off"), on_cpu=True) == ("off", 128)
    monkeypatch.setattr("uad.runtime.plan.kernels.attends", lambda config: config.kernels)
    assert attention_note(CONFIG, 8192, on_cpu=True) == ()


@pytest.mark.parametrize(
    ("change", "ours", "on_cpu", "expected"),
    [
        ({}, True, True, True),
        ({}, False, True, False),
        ({"n_threads": 1}, False, True, True),
        ({"type_k": "q8_0", "type_v": "q8_0"}, False, True, True),
        ({"type_k": "q8_0"}, False, True, True),
        ({"flash_attn": "off"}, False, True, False),
        ({"flash_attn": "off"}, True, True, True),
        ({}, False, False, True),
    ],
)
def test_single_rows_of_long_texts_are_computed_otherwise_where_threads_share_them_out(
    change: dict[str, Any], ours: bool, on_cpu: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = frozenset(("attention", "activations") if ours else ())
    monkeypatch.setattr("uad.llama.context.kernels.certain_parts", lambda config: parts)
    config = replace(ModelConfig(TARGET, n_threads=2), **change)
    assert _are_rows_apart(config, "off" if config.flash_attn == "off" else "on", on_cpu) == expected


def test_who_can_have_long_texts_on_a_cpu_hears_of_flash_attention() -> None:
    plain = ModelConfig(TARGET, kernels=False)
    (line,) = attention_note(plain, 8192, on_cpu=True)
    assert "-fa off" in line
    assert attention_note(plain, 2048, on_cpu=True) == attention_note(plain, 8192, on_cpu=False) == ()
    assert attention_note(replace(plain, flash_attn="on"), 8192, on_cpu=True) == ()
    assert attention_note(replace(plain, type_v="q8_0"), 8192, on_cpu=True) == (), "a quantized cache needs it"


@pytest.mark.parametrize(
    ("quota", "words", "line"),
    [
        (None, [], None),
        (8.0, [], None),
        (8.0, ["-t", "8"], None),
        (1.5, [], "threads: 1, since the control group has the time of 1.5 processors (--threads says otherwise)"),
        (1.5, ["-t", "1"], None),
        (2.0, ["-t", "3"], "--threads 2 suits it"),
        (2.0, ["-t", "1", "-tb", "4"], "threads: 4 were asked for, but the control group has the time of 2 processors"),
        (2.0, ["-t", "1", "-td", "5", "-md", str(TARGET)], "threads: 5 were asked for"),
    ],
)
def test_who_has_a_quota_hears_of_it(quota, words, line, monkeypatch) -> None:
    monkeypatch.setattr(plan_module, "cpu_quota", lambda: quota)
    monkeypatch.setattr(plan_module, "physical_cores", lambda: 4)
    monkeypatch.setattr(plan_module, "usable_cores", lambda: int(min(4.0, quota or 4.0)))
    said = plan_module.quota_note(load_config(["-m", str(TARGET), *words], {}))
    assert (line is None and said == ()) or (line is not None and len(said) == 1 and line in said[0])


NEUTRAL = SamplingParams(**{name: one.off[0] for name, one in SETTINGS.items() if one.off})


def chain_of(**sampling) -> list[Stage]:
    """The stages of these parameters alone."""
    return stages(replace(NEUTRAL, **sampling), frozenset(), 64)


def kept(row, **sampling) -> list[int]:
    """Ids that these stages leave a chance, in the order of ids."""
    chain = SamplerChain(len(row), chain_of(**sampling))
    ids, logits = chain.apply(np.array(row, np.float32))
    left = sorted(int(id_) for id_, logit in zip(ids, logits, strict=True) if logit > -np.inf)
    chain.close()
    return left


def test_top_n_sigma_keeps_what_is_within_standard_deviations_of_the_best() -> None:
    row = np.random.default_rng(1).normal(0, 2, 50).astype(np.float32)
    for n in (0.5, 1.0, 2.0):
        assert kept(row, top_n_sigma=n) == np.flatnonzero(row >= row.max() - n * row.std()).tolist()
    assert len(kept(row, top_n_sigma=0.5)) < len(kept(row, top_n_sigma=2.0)) < 50


def test_xtc_drops_the_likely_ids_but_the_least_likely_of_them() -> None:
    p = [0.05, 0.4, 0.15, 0.3, 0.1]
    row = np.log(p)
    assert kept(row, xtc_probability=1.0, xtc_threshold=0.12) == [0, 2, 4]
    assert kept(row, xtc_probability=1.0, xtc_threshold=0.35) == [0, 1, 2, 3, 4], "one likely id is never dropped"
    assert kept(row, xtc_probability=0.5, xtc_threshold=0.12) == [0, 2, 4], "the draw is not llama.cpp's"


def test_stages_do_what_their_names_say() -> None:
    row = np.array([1.0, 3.0, 2.0, 0.0], np.float32)
    chain = SamplerChain(4, [LogitBias(((0, 10.0),)), *chain_of(top_k=2, temperature=0.5)])
    ids, logits = chain.apply(row)
    assert sorted(zip(ids.tolist(), logits.tolist(), strict=True)) == [(0, 22.0), (1, 6.0)]
    assert row.tolist() == [1.0, 3.0, 2.0, 0.0]
    chain.close()
    penal = SamplerChain(4, chain_of(repeat_last_n=8, frequency_penalty=0.5, presence_penalty=1.0))
    for _ in range(2):
        penal.accept(1)
    ids, logits = penal.apply(row)
    assert logits[ids.tolist().index(1)] == 3.0 - 2 * 0.5 - 1.0
    penal.close()
    penal.close()


@pytest.mark.parametrize(("prompt", "chosen"), [((), 1), ((1,), 2), ((1, 3), 2), ((1, 3, 0, 3), 1)])
def test_penalties_count_the_last_ids_of_the_prompt(prompt, chosen) -> None:
    params = SamplingParams(temperature=0.0, presence_penalty=1.5, repeat_last_n=3)
    keys = token_keys((b"a", b"b", b"c", b"d"))
    sampler = Sampler(params, 1, frozenset(), 64, lambda stages: SamplerChain(4, stages), keys, prompt)
    assert sampler.pick(np.array([1.0, 3.0, 2.0, 0.0], np.float32), Position()) == chosen
    sampler.close()


@pytest.mark.parametrize(("asked", "kept"), [(-1, 64), (7, 7), (2**31 - 1, 64)])
def test_penalties_look_back_no_further_than_the_context(asked, kept) -> None:
    params = SamplingParams(temperature=0, repeat_last_n=asked, repeat_penalty=1.1)
    assert stages(params, frozenset(), n_ctx=64) == [SamplerStage(next(iter(SAMPLERS)), (kept, 1.1, 0.0, 0.0))]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names there are text")
def test_a_file_name_that_is_no_text_is_a_name_too(tmp_path) -> None:
    path = tmp_path / os.fsdecode(b"t\xff.gguf")
    path.symlink_to(TARGET)
    assert load_vocab(path).n_vocab == 4096
    with Model(ModelConfig(path)) as loaded:
        assert loaded.vocab.n_vocab == 4096


@pytest.mark.parametrize("path", [TARGET, *DRAFTS.values()])
def test_the_vocabulary_is_a_table_of_bytes(path) -> None:
    with Model(ModelConfig(path)) as loaded:
        vocab = loaded.vocab
        text = "def naïve(x):\n    return '東京 😀'\t<|im_end|> <end_of_turn>".encode()
        ids = vocab.tokenize(text)
        assert vocab.join(ids) == text
        assert not any(vocab.is_special(id_) for id_ in ids)
        assert all(vocab.pieces[id_] == b"" for id_ in vocab.special_ids)
        assert vocab.eog
        assert {bytes([i]) for i in range(256)} <= set(vocab.by_bytes) | {
            bytes([i]) for i in range(256) if i > 0xF4 or i in (0xC0, 0xC1)
        }
        lo, hi = vocab.range_of(b"re")
        pieces, _ = vocab.sorted_pieces
        assert all(piece.startswith(b"re") for piece in pieces[lo:hi])
        assert sum(piece.startswith(b"re") for piece in vocab.pieces) == hi - lo > 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [(("--spec-draft-n-max", "100"), "at most 58 tokens, not 100"), (("--spec-draft-n-max", "58"), "")],
)
def test_drafts_that_cannot_be_as_long_as_was_asked_for_are_named(flags, said) -> None:
    config = load_config(["-m", str(TARGET), "-c", "256", "--no-kernels", *flags], {})
    with ExitStack() as stack:
        notes = open_target(plan(config), stack, lambda what, share: None).notes
    found = [note for note in notes if "drafts have" in note]
    assert found == [] if not said else said in found[0]
