"""Contexts beyond training: llama-server's rope and YaRN flags reach llama.cpp, and a line says what a model was
trained for.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from kit.models import TARGET, config
from words import words_of

from uad.base.config import ModelConfig, load_config
from uad.base.errors import ConfigError
from uad.base.types import Rows
from uad.llama.context import Context, context_params
from uad.llama.model import Model, trained_context, training_note
from uad.runtime.plan import plan
from uad.runtime.target import open_target

PLAIN = {"general.architecture": "llama"}
YARN = {
    **PLAIN,
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": "4",
    "llama.rope.scaling.original_context_length": "8192",
}


def load(*words: str, env: dict[str, str] | None = None) -> ModelConfig:
    return load_config(["-m", "t", "-md", "d", *words], env or {}).target


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--rope-scaling", "yarn"], "rope_scaling", "yarn"),
        (["--rope-scale", "4"], "rope_freq_scale", 0.25),
        (["--rope-freq-scale", "0.5"], "rope_freq_scale", 0.5),
        (["--rope-freq-base", "1e6"], "rope_freq_base", 1e6),
        (["--yarn-orig-ctx", "8192"], "yarn_orig_ctx", 8192),
        (["--yarn-ext-factor", "0"], "yarn_ext_factor", 0.0),
        (["--yarn-attn-factor", "1.5"], "yarn_attn_factor", 1.5),
        (["--yarn-beta-slow", "2"], "yarn_beta_slow", 2.0),
        (["--yarn-beta-fast", "16"], "yarn_beta_fast", 16.0),
    ],
)
def test_flags_variables_and_words_say_the_same(words, field, value):
    given = load(*words)
    assert getattr(given, field) == value
    assert getattr(context_params(given, 512, 1), field if field != "rope_scaling" else "rope_scaling_type") == (
        2 if value == "yarn" else value
    )
    name = "ROPE_SCALING_TYPE" if field == "rope_scaling" else words[0][2:].replace("-", "_").upper()
    assert getattr(load(env={f"LLAMA_ARG_{name}": words[1]}), field) == value
    assert load(*words_of(given)) == given


def test_the_draft_keeps_its_own():
    draft = load_config(["-m", "t", "-md", "d", "--rope-scale", "4", "--rope-scaling", "yarn"], {}).draft
    assert (draft.rope_scaling, draft.rope_freq_scale) == ("", 0.0)


@pytest.mark.parametrize(
    "words",
    [
        ["--rope-scale", "0"],
        ["--rope-scale", "inf"],
        ["--rope-scaling", "ntk"],
        ["--yarn-orig-ctx", "-1"],
        ["--rope-freq-base", "x"],
    ],
)
def test_what_is_no_setting_is_refused(words):
    with pytest.raises(ConfigError, match=words[0]):
        load(*words)


@pytest.mark.parametrize(
    ("meta", "words", "trained"),
    [
        (PLAIN, [], 32768),
        (PLAIN, ["--rope-scale", "4"], 131072),
        (PLAIN, ["--rope-freq-scale", "0.5", "--rope-scaling", "linear"], 65536),
        (PLAIN, ["--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "8192"], 32768),
        (PLAIN, ["--rope-scaling", "none"], 32768),
        (YARN, [], 32768),
        (YARN, ["--rope-scaling", "none"], 8192),
        (YARN, ["--rope-scale", "8"], 65536),
        (YARN, ["--rope-scaling", "linear"], 32768),
        ({}, [], 32768),
        ({**PLAIN, "llama.rope.scaling.original_context_length": "no number"}, ["--rope-scale", "2"], 65536),
    ],
)
def test_how_far_a_model_reaches(meta, words, trained):
    assert trained_context(load(*words), 32768, meta.get) == trained


def test_a_line_says_so_for_both_roles_and_names_the_way_out():
    (line,) = training_note(load(), "target", 131072, 32768, PLAIN.get)
    assert "131072" in line
    assert "32768" in line
    assert line.endswith("--rope-scaling yarn --rope-scale 4 stretches it")
    (line,) = training_note(load(), "draft", 65536, 32768, PLAIN.get)
    assert "rope" not in line
    (line,) = training_note(load("--rope-freq-base", "1e6"), "target", 65536, 32768, PLAIN.get)
    assert "--rope-freq-base has to bear that" in line
    assert training_note(load("--rope-scale", "4"), "target", 131072, 32768, PLAIN.get) == ()
    assert training_note(load(), "target", 32768, 32700, PLAIN.get) == ()


# --- with llama.cpp


def opened(stack: ExitStack, **changes: object) -> tuple[str, ...]:
    given = config(draft=None, n_ctx=33024)
    planned = plan(replace(given, target=replace(given.target, **changes)))
    return open_target(planned, stack, lambda what, share: None).notes


def test_the_target_says_it_at_start_unless_it_is_stretched():
    with ExitStack() as stack:
        assert any("33024 tokens is beyond the 32768" in line for line in opened(stack))
        assert not any("beyond" in line for line in opened(stack, rope_freq_scale=0.5))


def test_stretching_changes_what_the_model_computes():
    def logits(**changes: object) -> np.ndarray:
        given = ModelConfig(TARGET, n_ctx=512, n_threads=1, **changes)
        with Model(given) as model, Context(model, given, 1) as context:
            context.decode([Rows(0, 0, tuple(range(100, 140)), 1)])
            return context.logits().copy()

    plain = logits()
    assert np.array_equal(plain, logits(rope_freq_scale=1.0))
    for changes in (
        {"rope_freq_scale": 0.25},
        {"rope_freq_base": 5e5},
        {"rope_scaling": "yarn", "rope_freq_scale": 0.25, "yarn_orig_ctx": 256},
    ):
        assert not np.allclose(plain, logits(**changes), atol=0.01), changes
