"""A plan says what a start opens without opening it, and `uad plan` prints it."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from kit.broken_files import TEXT, rewritten
from kit.embedding_models import make as make_embedding
from kit.head_models import make_with_head
from kit.models import DRAFTS, HEADS, TARGET, config
from kit.tiny_models import make

from uad.base.common.available import Limit
from uad.base.config import ModelConfig
from uad.base.types import Origin, Rows
from uad.llama.context import Context
from uad.llama.model import Model
from uad.runtime.open import open_parts
from uad.runtime.plan import plan
from uad.tools.cli import plan as plan_command
from uad.tools.cli import run

pytestmark = pytest.mark.model
MIB = 1 << 20


def limit_of(n_bytes: int) -> Limit:
    """A limit that leaves so much for weights and contexts."""
    return Limit(int((n_bytes + 128 * MIB) / 0.98), "left")


def uad_plan(*words: str) -> int:
    return run(plan_command.main, [str(word) for word in words])


def test_a_plan_loads_no_weights_and_cannot_be_changed(monkeypatch):
    monkeypatch.setattr(Model, "__init__", None)
    made = plan(config())
    with pytest.raises(FrozenInstanceError):
        made.memory = None  # type: ignore[misc]


@pytest.mark.parametrize("slots", [1, 4])
def test_contexts_are_opened_as_they_were_planned(slots):
    made = plan(config(slots=slots, n_ctx=0))
    parts = open_parts(made, lambda what, share: None)
    with parts.stack:
        assert parts.target.context.n_ctx == made.n_ctx
        assert parts.config is made.config
        assert parts.drafts.drafters
        draft = made.config.draft
        assert draft is not None
        assert parts.contexts[-1].n_ctx * slots == draft.n_ctx


def test_every_part_has_its_bytes():
    made = plan(config(n_ctx=0))
    assert made.memory is not None
    names = [part.name for part in made.memory.parts]
    assert names == [f"{role} {part}" for role in ("target", "draft") for part in ("weights", "KV cache", "buffers")]
    assert all(part.n_bytes > 0 for part in made.memory.parts)
    cache = next(part for part in made.memory.parts if part.name == "target KV cache")
    assert cache.host == pytest.approx(32768 * 3072, rel=0.01)


def test_without_fit_the_context_is_what_was_asked_for_and_nothing_is_computed():
    made = plan(replace(config(n_ctx=0), fit=False))
    assert (made.config.target.n_ctx, made.memory) == (32768, None)


def test_a_head_in_the_targets_file_is_part_of_the_plan(tmp_path):
    own = config(n_ctx=512, draft=None, types=(str(Origin.HEAD),))
    made = plan(replace(own, target=replace(own.target, path=make_with_head("qwen35", tmp_path))))
    assert made.head is not None
    assert made.head_file is None
    assert made.memory is not None
    assert {"head KV cache", "head buffers"} <= {part.name for part in made.memory.parts}
    assert "head weights" not in {part.name for part in made.memory.parts}, "they are in the target's file"


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_that_was_trained_apart_is_part_of_the_plan(kind):
    made = plan(config(n_ctx=512, draft=HEADS[kind], types=("draft-simple",)))
    assert made.head is not None
    assert made.head_file is not None
    assert made.config.draft is None
    assert made.config.drafting.types == (f"draft-{kind}",)
    parts = {part.name: part for part in made.memory.parts}
    assert {"head weights", "head KV cache", "head buffers"} <= set(parts)
    assert parts["head weights"].n_bytes > 2048 * 3 * 256 * 4 + 800_000


def test_exact_plans_a_second_attempt_only_where_weights_are_rearranged(monkeypatch):
    own = config(n_ctx=512, exact=True)
    for is_on, n in ((True, 2), (False, 1)):
        monkeypatch.setattr("uad.runtime.plan.rearranged", lambda model, is_on=is_on: type("R", (), {"is_on": is_on}))
        targets = plan(own).targets
        assert len(targets) == n
        assert [target.repack for target in targets] == [True, False][:n]


def test_recurrent_states_keep_fewer_snapshots_where_memory_is_short(tmp_path):
    path = make("qwen35", tmp_path)
    own = replace(config(n_ctx=512, draft=None, types=("suffix",)), target=ModelConfig(path, n_ctx=512, n_threads=1))
    roomy = plan(own, (Limit(1 << 40, "left"),))
    assert roomy.memory is not None
    short = plan(own, (limit_of(roomy.memory.host - 1024),))
    assert short.config.target.n_snapshots < roomy.config.target.n_snapshots
    assert any("snapshots of" in note for note in short.notes)


@pytest.mark.parametrize("n_ubatch", [1, 2, 3, 8, 10])
def test_a_pass_holds_the_rows_whose_states_are_kept(n_ubatch: int, tmp_path: Path) -> None:
    """llama.cpp ends the process where it does not."""
    target = ModelConfig(make("qwen35", tmp_path), n_ctx=512, n_threads=1, n_ubatch=n_ubatch)
    own = plan(replace(config(n_ctx=512, draft=None, types=("suffix",)), target=target, n_parallel=2)).config.target
    with Model(own) as model, Context(model, own, 2) as context:
        context.decode([Rows(seq, 0, (5,) * (3 + seq), 1) for seq in range(2)])
    assert own.n_snapshots == min(max(n_ubatch - 2, 0), 8)


# --- uad plan


def test_it_prints_memory_by_part_beside_what_is_free(capsys):
    assert uad_plan(TARGET, DRAFTS["zephyr"], "-c", "8192", "-np", "2") == 0
    out = capsys.readouterr().out
    for words in ("target weights", "draft KV cache", "sum", "available in this machine", "4,096 tokens in each of 2"):
        assert words in out
    assert "chat format chatml" in out
    assert "times as fast as the target alone" in out


def test_it_says_the_same_in_json(capsys):
    assert uad_plan(TARGET, DRAFTS["zephyr"], "-c", "8192", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["fits"], said["n_ctx_slot"], said["n_slots"]) == (True, 8192, 1)
    assert sum(part["host"] for part in said["memory"]) == said["host_bytes"] > 10 * MIB
    assert said["limits"][0]["bytes"] > 0
    assert said["expected_gain"] > 0


def test_where_it_does_not_fit_it_says_with_which_changes_it_does(capsys, monkeypatch):
    whole = plan(config(n_ctx=32768)).memory
    assert whole is not None
    monkeypatch.setattr(plan_command, "available", lambda: (limit_of(whole.host - 20 * MIB),))
    assert uad_plan(TARGET, DRAFTS["zephyr"], "-c", "32768", "--json") == 2
    said = json.loads(capsys.readouterr().out)
    assert not said["fits"]
    assert "--ctx-size 32768 does not fit" in said["reason"]
    assert said["host_bytes"] > 100 * MIB
    assert any(line.startswith("without -c: a context of") for line in said["ways_out"])
    assert any(line.startswith("-ctk q8_0 -ctv q8_0: a context of 32,768 tokens fits") for line in said["ways_out"])
    assert uad_plan(TARGET, DRAFTS["zephyr"], "-c", "32768") == 2
    assert "does not fit" in capsys.readouterr().out


@pytest.mark.parametrize("as_draft", [False, True])
def test_a_model_that_embeds_is_no_plan_for_writing(as_draft, tmp_path, capsys):
    """`uad serve` opens it otherwise as a target, and refuses it as a draft."""
    embeds = make_embedding("bert", tmp_path)
    assert uad_plan(*((TARGET, embeds) if as_draft else (embeds,))) == 2
    said = capsys.readouterr().err
    assert ("cannot generate text" if as_draft else "uad plan is for models that write") in said
    assert "WARN" not in said


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_vocabulary_that_llama_cpp_does_not_know_is_refused_as_at_a_start(role, tmp_path, capsys):
    broken = rewritten(TARGET, tmp_path / "new.gguf", {"tokenizer.ggml.pre": (TEXT, "zzz")})
    assert uad_plan(*((broken,) if role == "target" else (TARGET, broken))) == 2
    said = capsys.readouterr().err
    assert f"{role} {broken}: llama.cpp cannot load it (" in said
    assert "'zzz'" in said


def test_a_model_of_a_hub_is_not_here(capsys):
    assert uad_plan("--hf-repo", "some/model") == 2
    assert "uad serve" in capsys.readouterr().err


@pytest.mark.parametrize(("slots", "asked", "n_ctx"), [(1, 99_999, 0), (2, 99_999, 0), (2, 1024, 1024), (1, 0, 512)])
def test_the_drafts_context_ends_at_its_training_whatever_is_asked_for(slots: int, asked: int, n_ctx: int) -> None:
    """0: what it was trained for, for each slot."""
    own = config(n_ctx=512, slots=slots)
    assert own.draft is not None
    planned = plan(replace(own, draft=replace(own.draft, n_ctx=asked)))
    assert planned.config.draft is not None
    with Model(own.draft, has_weights=False) as model:
        trained = model.info.n_ctx_train * slots
    assert planned.config.draft.n_ctx == (n_ctx or trained)
    assert any("--ctx-size-draft" in note for note in planned.notes) is (n_ctx == 0)
