"""Lines at start about what was asked for and cannot help; and the names of a model over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kit.broken_files import rewritten
from kit.models import config
from kit.server_kit import CONFIG, get
from kit.tiny_models import make

from uad.base.config import ModelConfig
from uad.llama.backend.devices import Device, every
from uad.runtime.plan import device_notes
from uad.runtime.runtime import Runtime

GAINS_NOTHING = "drafts that cost as much as what they replace gain nothing"
NO_GPU = "this llama.cpp finds no GPU"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("llama", tmp_path_factory.mktemp("notes"))


@pytest.fixture(scope="module")
def large(small: Path) -> Path:
    return make("qwen3moe", small.parent)


def notes(target: Path, draft: Path | None, **model: int) -> tuple[str, ...]:
    given = config(target, draft, n_ctx=256)
    with Runtime.open(replace(given, target=replace(given.target, **model))) as runtime:
        return runtime.info.notes


def test_a_draft_that_is_its_target_or_larger_is_told(small: Path, large: Path, tmp_path: Path) -> None:
    link = tmp_path / "other.gguf"
    link.symlink_to(small)
    for draft in (small, link):
        assert [note for note in notes(small, draft) if GAINS_NOTHING in note] == [
            f"warning: target and draft are the same file, {small}: {GAINS_NOTHING}; choose a smaller draft model"
        ]
    (told,) = (note for note in notes(small, large) if GAINS_NOTHING in note)
    assert told.startswith(f"warning: the draft {large.name} is larger than its target (")
    assert not any(GAINS_NOTHING in note for note in notes(large, small))
    copy = rewritten(small, tmp_path / "copy.gguf", {})
    assert not any(GAINS_NOTHING in note for note in notes(small, copy))
    assert not any(GAINS_NOTHING in note for note in notes(small, None))


@pytest.mark.skipif(any(one.takes_layers for one in every()), reason="there is a GPU here")
@pytest.mark.parametrize(("n_gpu_layers", "is_told"), [(99, True), (1, True), (0, False), (-1, False)])
def test_layers_for_a_gpu_that_is_not_there_are_told(n_gpu_layers: int, is_told: bool, small: Path) -> None:
    told = [note for note in notes(small, None, n_gpu_layers=n_gpu_layers) if NO_GPU in note]
    assert len(told) == is_told
    if is_told:
        assert told[0].startswith(f"--gpu-layers {n_gpu_layers} has no effect")


@pytest.mark.skipif(any(one.takes_layers for one in every()), reason="there is a GPU here")
def test_the_drafts_layers_count_too(small: Path) -> None:
    given = config(small, None, n_ctx=256)
    draft = ModelConfig(small, n_threads=1, n_gpu_layers=7)
    with Runtime.open(replace(given, draft=draft)) as runtime:
        assert any(note.startswith("--gpu-layers 7 has no effect") for note in runtime.info.notes)


def test_a_model_with_several_names_answers_to_each_and_is_called_by_the_first() -> None:
    several = replace(CONFIG, alias="gpt-4o,coder")
    _, body = get("/v1/models", None, several)
    (model,) = body["data"]
    assert (model["id"], model["aliases"]) == ("coder", ["coder", "gpt-4o"])
    assert [get(f"/v1/models/{name}", None, several)[0] for name in ("coder", "gpt-4o", "gpt-4o,coder")] == [
        200,
        200,
        404,
    ]
    assert get("/props", None, several)[1]["model_alias"] == "coder"


@pytest.mark.parametrize(("n_devices", "n_gpu_layers", "is_told"), [(2, 99, True), (1, 99, False), (2, 0, False)])
def test_it_is_told_what_computes_on_several_devices_at_once(
    n_devices: int, n_gpu_layers: int, is_told: bool, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = tuple(Device(f"CUDA{i}", "a GPU", takes_layers=True, is_remote=False, handle=i) for i in range(n_devices))
    monkeypatch.setattr("uad.runtime.plan.used", lambda model: some)
    given = config(small, None, n_ctx=256)
    told = device_notes(replace(given, target=replace(given.target, n_gpu_layers=n_gpu_layers)))
    assert any("docs/vllm.md" in note for note in told) is is_told
