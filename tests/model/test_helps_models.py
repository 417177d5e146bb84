"""Optional helps that need a model: a draft that was chosen and a projector that was found fail in many ways, and the
target answers. What was named ends with an error. See `tests/unit/house/test_helps.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kit.models import DRAFTS, TARGET, config, finish, settled
from kit.tiny_models import make
from kit.tiny_vision import make_projector

from uad.base.common.available import Limit
from uad.base.config import Config, VisionConfig
from uad.base.errors import ConfigError, MappingError, ModelLoadError, UadError, UnavailableError
from uad.base.types import GREEDY, Request, SpecPolicy, SpeculativeParams
from uad.llama.kernels import use as kernels
from uad.runtime import draft_model, sight
from uad.runtime import plan as planning
from uad.runtime.runtime import Runtime

pytestmark = pytest.mark.model
GOOD = DRAFTS["zephyr"]


def cut(path: Path) -> None:
    path.write_bytes(GOOD.read_bytes()[:50_000])


def garbage(path: Path) -> None:
    path.write_bytes(b"GGUF" + bytes(range(256)) * 50)


def empty(path: Path) -> None:
    path.touch()


def folder(path: Path) -> None:
    path.mkdir()


def gone(path: Path) -> None:
    """Nothing is there."""


FILES = [cut, garbage, empty, folder, gone]
ERRORS = [ConfigError("no"), ModelLoadError("no"), MappingError("no"), RuntimeError("no"), MemoryError(), OSError("no")]


def answers(runtime: Runtime) -> bool:
    ids = tuple(runtime.text.tokenize("Once upon a time", add_special=True, parse_special=False))
    (one,) = finish(runtime, [Request(ids, GREEDY, max_tokens=8)])
    return len(one.ids) > 0


@pytest.mark.parametrize("spoil", FILES, ids=lambda one: one.__name__)
def test_where_a_chosen_draft_cannot_be_loaded_the_next_one_drafts(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = tmp_path / "bad.gguf"
    spoil(bad)
    named = config(TARGET, bad)
    with Runtime.open(replace(named, draft_from=(bad, GOOD))) as runtime:
        assert answers(runtime)
        assert runtime.info.draft is not None
        assert runtime.info.draft.path == str(GOOD)
    assert sum("bad.gguf was chosen" in line for line in caplog.messages) == 1
    with pytest.raises(UadError):
        Runtime.open(named)


@pytest.mark.parametrize("where", ["open_model", "draft_on"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_chosen_draft_raises_the_target_answers_alone(
    where: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*anything: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(draft_model, where, fail)
    with Runtime.open(replace(config(TARGET, GOOD), draft_from=(GOOD,))) as runtime:
        assert answers(runtime)
        assert runtime.info.draft is None
        assert any("plain decoding" in note for note in runtime.info.notes)


def test_a_chosen_draft_that_leaves_no_room_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = planning._planned

    def full(config: Config, limits: tuple[Limit, ...]) -> planning.Plan:
        if config.draft is not None:
            raise ConfigError("no context fits")
        return planned(config, limits)

    monkeypatch.setattr(planning, "_planned", full)
    with Runtime.open(replace(config(TARGET, GOOD), draft_from=(GOOD,))) as runtime:
        assert answers(runtime)
        assert runtime.info.draft is None
    with pytest.raises(ConfigError, match="no context fits"):
        Runtime.open(config(TARGET, GOOD))


def test_a_fault_of_the_target_is_no_fault_of_its_drafts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = tmp_path / "target.gguf"
    cut(wrong)
    with pytest.raises(ModelLoadError, match=r"target\.gguf"):
        Runtime.open(replace(config(wrong, GOOD), draft_from=(GOOD,)))
    assert "was chosen" not in caplog.text


@pytest.mark.parametrize("spoil", [*FILES, lambda path: path.write_bytes(GOOD.read_bytes())])
def test_where_a_found_projector_fails_texts_are_answered(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = tmp_path / "mmproj.gguf"
    spoil(bad)
    base = config(TARGET)
    named = replace(base, vision=replace(base.vision, path=bad))
    with Runtime.open(replace(named, vision=replace(named.vision, is_found=True))) as runtime:
        assert answers(runtime)
        assert not runtime.sees_images
    assert sum("the projector mmproj.gguf was found" in line for line in caplog.messages) == 1
    with pytest.raises(UadError):
        Runtime.open(named)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_found_projector_raises_texts_are_answered(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*anything: object) -> None:
        raise error

    monkeypatch.setattr(sight, "Projector", fail)
    base = config(TARGET)
    with Runtime.open(replace(base, vision=replace(base.vision, path=tmp_path / "p", is_found=True))) as runtime:
        assert answers(runtime)


@pytest.mark.parametrize("error", [AttributeError("no symbol"), OSError("no"), RuntimeError("no"), UadError("no")])
def test_whatever_the_kernels_proof_raises_llama_cpp_computes(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*anything: object) -> None:
        raise error

    monkeypatch.setattr(kernels, "prove_once", fail)
    found = kernels.started.__wrapped__()
    assert found.library is None
    assert found.reason


EVERY_ROUND = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4, p_min=0.0)


def sent_to_sleep(runtime: Runtime) -> None:
    runtime.fall_asleep()
    settled(runtime)
    assert runtime._sleeper.is_unloaded


@pytest.mark.parametrize("spoil", FILES, ids=lambda one: one.__name__)
def test_a_chosen_draft_that_is_damaged_in_sleep_costs_a_line_and_drafts_again_once_it_is_back(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draft, away = tmp_path / "draft.gguf", tmp_path / "away.gguf"
    shutil.copy(GOOD, draft)
    asked = replace(config(draft=draft, types=("draft-simple",)), draft_from=(draft,))
    with Runtime.open(asked) as runtime:
        assert answers(runtime)
        draft.rename(away)
        for spoiled in (True, False):
            sent_to_sleep(runtime)
            if spoiled:
                spoil(draft)
            else:
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)
                away.rename(draft)
            before = sum(one.n_calls for one in runtime.snapshot().drafters)
            ids = tuple(runtime.text.tokenize("Once upon a time"))
            (one,) = finish(runtime, [Request(ids, GREEDY, EVERY_ROUND, max_tokens=8)])
            assert one.ids
            assert runtime._sleeper.lacks_draft is spoiled
            assert (sum(one.n_calls for one in runtime.snapshot().drafters) == before) is spoiled
            assert runtime.sleep.n_failed == 0
    lines = [one for one in caplog.messages if "was chosen, and cannot be loaded again" in one]
    assert len(lines) == 1


def test_a_draft_that_was_named_and_is_gone_after_sleep_is_an_error(tmp_path: Path) -> None:
    draft = tmp_path / "draft.gguf"
    shutil.copy(GOOD, draft)
    with Runtime.open(config(draft=draft)) as runtime:
        sent_to_sleep(runtime)
        draft.unlink()
        with pytest.raises(UnavailableError, match="cannot be loaded again after sleep"):
            runtime.wake().result(60)


def test_a_found_projector_that_is_gone_after_sleep_is_left_out_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = make("qwen2vl", tmp_path)
    projector, away = make_projector("qwen2vl", tmp_path), tmp_path / "away"
    found = VisionConfig(path=projector, is_found=True)
    with Runtime.open(replace(config(target, None, n_ctx=768, types=()), vision=found)) as runtime:
        assert runtime.sees_images
        projector.rename(away)
        for is_there in (False, True):
            if is_there:
                away.rename(projector)
            sent_to_sleep(runtime)
            runtime.wake().result(60)
            assert runtime.sees_images is is_there
            assert answers(runtime)
    assert len([one for one in caplog.messages if "the projector was found, and cannot be loaded again" in one]) == 1
