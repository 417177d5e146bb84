"""LoRA adapters of the target: the same text drafted and not, none of it where the scale is 0, and no mixing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kit.models import config, finish
from kit.tiny_models import make, make_adapter

from uad.base.config import LoraConfig, ModelConfig
from uad.base.errors import ModelLoadError
from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.runtime.costs import profile_store
from uad.runtime.runtime import Runtime

PLAIN = SpeculativeParams(enabled=False)
DRAFTED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.05)
PROMPTS = [tuple(range(40 + 7 * i, 70 + 7 * i)) for i in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lora")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Path:
    return make("llama", folder)


@pytest.fixture(scope="module")
def adapter(folder: Path, tiny: Path) -> Path:
    return make_adapter(tiny, folder / "adapter.gguf")


def opened(tiny: Path, *loras: LoraConfig, draft: bool = False, slots: int = 1, apply: bool = True) -> Runtime:
    own = config(tiny, tiny if draft else None, slots, n_ctx=256, exact=True, defaults=DRAFTED)
    return Runtime.open(replace(own, target=replace(own.target, n_threads=1, loras=loras, apply_loras=apply)))


def texts(runtime: Runtime, speculative: SpeculativeParams = PLAIN, temperature: float = 0.0, adapters=None):
    """Ids of each prompt's answer, and how many accepted guesses they took."""
    sampling = SamplingParams(temperature=temperature, seed=5)
    asked = [Request(prompt, sampling, speculative, max_tokens=16, adapters=adapters) for prompt in PROMPTS]
    results = finish(runtime, asked)
    return [one.ids for one in results], sum(one.done.timings.draft.n_accepted for one in results)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_adapter_changes_the_text_and_drafts_do_not(tiny: Path, adapter: Path, temperature: float) -> None:
    lora = LoraConfig(adapter, 0.05)
    with opened(tiny) as base, opened(tiny, lora) as plain:
        expected = texts(plain, PLAIN, temperature)[0]
        assert texts(base, PLAIN, temperature)[0] != expected
    for slots in (1, 4):
        with opened(tiny, lora, draft=True, slots=slots) as runtime:
            drafted, n_accepted = texts(runtime, DRAFTED, temperature)
        assert drafted == expected
        assert n_accepted > 5


def test_a_scale_of_0_is_the_target_alone_however_it_is_said(tiny: Path, adapter: Path) -> None:
    with opened(tiny) as base:
        expected = texts(base)[0]
    with opened(tiny, LoraConfig(adapter, 0.0)) as runtime:
        assert texts(runtime)[0] == expected
    with opened(tiny, LoraConfig(adapter), apply=False) as runtime:
        assert [one.scale for one in runtime.adapters()] == [0.0]
        assert texts(runtime)[0] == expected
        assert texts(runtime, adapters=(1.0,))[0] != expected
        assert texts(runtime)[0] == expected


def test_requests_with_adapters_of_their_own_are_answered_as_by_a_server_of_their_own(
    tiny: Path, adapter: Path, folder: Path
) -> None:
    other = make_adapter(tiny, folder / "other.gguf", seed=1)
    wanted = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]
    alone = []
    for scales in wanted:
        loras = [LoraConfig(path, scale) for path, scale in zip((adapter, other), scales, strict=True)]
        with opened(tiny, *loras) as runtime:
            alone.append(texts(runtime)[0])
    assert len({str(one) for one in alone}) == len(wanted)
    with opened(tiny, LoraConfig(adapter), LoraConfig(other), draft=True, slots=2) as runtime:
        for order in ((0, 1, 2, 3), (3, 1, 0, 2)):  # the same prompts again, which slots still hold
            assert [texts(runtime, DRAFTED, adapters=wanted[i])[0] for i in order] == [alone[i] for i in order]
        asked = [
            Request(prompt, SamplingParams(temperature=0.0), DRAFTED, max_tokens=16, adapters=scales)
            for prompt in PROMPTS
            for scales in wanted
        ]
        together = [one.ids for one in finish(runtime, asked)]
        assert together == [alone[i][n] for n in range(len(PROMPTS)) for i in range(len(wanted))]


def test_new_scales_are_for_later_requests(tiny: Path, adapter: Path) -> None:
    with opened(tiny, LoraConfig(adapter)) as runtime:
        with_it = texts(runtime)[0]
        runtime.set_adapters((0.0,))
        assert [(one.scale, one.task_name) for one in runtime.adapters()] == [(0.0, "tiny")]
        assert texts(runtime)[0] != with_it
        runtime.set_adapters((1.0,))
        assert texts(runtime)[0] == with_it


@pytest.mark.parametrize("kind", ["other model", "a model", "no file", "rubbish"])
def test_what_is_no_adapter_of_the_target_is_named(tiny: Path, folder: Path, kind: str) -> None:
    path = folder / f"{kind}.gguf"
    if kind == "other model":
        make_adapter(tiny, path, arch="qwen3moe")
    elif kind == "a model":
        path = tiny
    elif kind == "rubbish":
        path.write_bytes(b"rubbish")
    with pytest.raises(ModelLoadError) as caught:
        opened(tiny, LoraConfig(path))
    assert str(path) in str(caught.value)


def test_cost_curves_of_other_adapters_are_others(tiny: Path, adapter: Path) -> None:
    def name(*loras: LoraConfig, apply: bool = True) -> str:
        return profile_store.key(ModelConfig(tiny, loras=loras, apply_loras=apply), "target").name

    assert name(LoraConfig(adapter)) != name()
    assert name(LoraConfig(adapter, 0.0)) == name(LoraConfig(adapter), apply=False) == name()
