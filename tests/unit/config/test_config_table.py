"""The table of flags as such: names that do not clash, places that exist, help that mentions everything."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from uad.base.common.settings import INT32_MAX, Setting
from uad.base.config import Config, ModelConfig
from uad.base.config.argv import Parser, add_flags
from uad.base.config.flags import CONFIG_FILE, FLAGS, GROUPS
from uad.base.config.foreign import IGNORED, REFUSED

NAMES = [name for flag in FLAGS for name in (*flag.names.split(), *flag.off.split())]
DEFAULTS = Config(target=ModelConfig(Path()), draft=ModelConfig(Path()))


def value_at(path):
    value = DEFAULTS
    for part in path.split("."):
        value = getattr(value, part)
    return value


def leaves(value, prefix=""):
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        path = f"{prefix}{field.name}"
        yield from leaves(inner, f"{path}.") if dataclasses.is_dataclass(inner) else [path]


def test_no_name_is_used_twice():
    foreign = [name for names in (*IGNORED.values(), *REFUSED.values()) for name in names.split()]
    assert [name for name, n in Counter(NAMES + foreign).items() if n > 1] == []


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag is not CONFIG_FILE], ids=lambda flag: flag.name)
def test_every_place_exists(flag):
    assert [value_at(path) for path in flag.paths] != []
    assert flag.help[:1].islower() or flag.help.startswith(("GGUF", "GET"))


def test_every_setting_of_the_target_and_the_server_has_a_flag():
    inherited = {
        f"draft.{name}"
        for name in ("n_batch", "n_ubatch", "flash_attn", "mmap", "mlock", "repack", "kernels", "swa_full")
    }
    # the draft file's own
    inherited |= {path for path in leaves(DEFAULTS) if path.startswith(("draft.rope_", "draft.yarn_"))}
    inherited |= {"more_drafts"}  # what --draft adds up to
    inherited |= {"target.n_snapshots", "draft.n_snapshots"}  # as many as fit
    inherited |= {"target.n_seq", "draft.n_seq"}  # as many as there are slots
    inherited |= {"draft.tensor_split"}  # a draft is small: what llama.cpp chooses will do
    inherited |= {"target.with_head", "draft.with_head"}  # where --spec-type asks for it
    inherited |= {"target.embeds", "draft.embeds"}  # where the model is one that embeds
    inherited |= {"draft.n_checkpoints", "draft.checkpoint_step"}  # nothing of a draft is kept for later prompts
    inherited |= {
        f"draft.{name}" for name in ("kv_offload", "op_offload", "no_host", "check_tensors", "backend_sampling")
    }
    inherited |= {"draft.overrides"}  # the target's file is meant
    inherited |= {"target.hub", "draft.hub"}  # part of their paths
    inherited |= {"draft.loras", "draft.apply_loras"}  # adapters are the target's
    reachable = (
        {path for flag in FLAGS for path in flag.paths}
        | inherited
        | {"vision.is_found", "notes", "drafting.weighed", "drafting.defaults.types"}
        | {"sampling.min_keep", "sampling.bad_words", "sampling.allowed"}  # of requests only, as in llama-server
    )
    assert set(leaves(DEFAULTS)) - reachable == set()


def test_help_mentions_every_flag_once_with_its_variable():
    parser = Parser("uad serve", "")
    add_flags(parser, tuple(GROUPS))
    text = parser.format_help()
    words = text.replace(",", " ").split()
    assert [name for name in NAMES if words.count(name) < 1] == []
    assert [flag.name for flag in FLAGS if flag.variables and flag.variables[0] not in text] == []
    assert not any(name in words for names in IGNORED.values() for name in names.split())


def test_help_shows_defaults_from_the_slices():
    by_name = {flag.name: flag for flag in FLAGS}
    assert by_name["--port"].help_text().endswith("(default: 8080; env: LLAMA_ARG_PORT)")
    assert "default: 0.95" in by_name["--top-p"].help_text()
    assert "default: on" in by_name["--mmap"].help_text()
    assert "default" not in by_name["--api-key"].help_text()


def test_defaults_in_the_help_are_words_of_users():
    texts = [flag.help_text() for flag in FLAGS]
    assert [text for text in texts if "default: (" in text or "default: default" in text] == []


def test_names_of_a_setting_are_flags_and_variables() -> None:
    said = Setting(1, "what it does", "-x --xyz LLAMA_ARG_XYZ XYZ_TOKEN", low=0)
    assert said.flags == "-x --xyz"
    assert said.variables == ("LLAMA_ARG_XYZ", "XYZ_TOKEN")
    assert said.high == INT32_MAX, "a whole number has a bound"


def test_a_flag_of_the_draft_checks_what_that_of_the_target_does() -> None:
    by_name = {flag.name: flag for flag in FLAGS}
    own, inherited = by_name["--ctx-size-draft"], by_name["--cache-type-k-draft"]
    assert (own.path, own.kind.expects) == ("draft.n_ctx", "a whole number of 0 or more")
    assert inherited.kind is by_name["--cache-type-k"].kind
