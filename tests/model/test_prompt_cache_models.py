"""The prompt cache on every kind of memory: conversations taking turns in one slot, the same text as read anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kit.models import DRAFTS, TARGET, Waiter, config, finish
from kit.tiny_models import NAMES, make

from uad.base.common.available import Limit
from uad.base.config import Config, DraftingConfig, ModelConfig
from uad.base.events import CacheCounts
from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.engine.decode import prompt_cache
from uad.runtime.caches import room
from uad.runtime.runtime import Runtime

pytestmark = pytest.mark.model
OFF = SpeculativeParams(enabled=False)
TALKS = ("the river and the stone, the river and the lantern. " * 4, '{"name": "walnut", "price": 12}, {"name": "' * 4)


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading is never too cheap: tiny models read as fast as they are copied."""
    monkeypatch.setattr(prompt_cache, "_GAIN", 0.0)


def talk(runtime: Runtime, prompt: tuple[int, ...], speculative: SpeculativeParams = OFF, **fields: bool) -> Waiter:
    sampling = SamplingParams(temperature=0.7, seed=7)
    return finish(runtime, [Request(prompt, sampling, speculative, max_tokens=12, **fields)])[0]


def in_turns(runtime: Runtime, speculative: SpeculativeParams = OFF) -> tuple[list[Waiter], list[list[int]]]:
    """Two conversations of two turns each, in turns; and the ids of the second turns where all is read anew."""
    prompts = [tuple(runtime.text.tokenize(text)) for text in TALKS]
    firsts = [talk(runtime, prompt, speculative) for prompt in prompts]
    more = tuple(runtime.text.tokenize(" and then"))
    longer = [(*prompt, *first.ids, *more) for prompt, first in zip(prompts, firsts, strict=True)]
    seconds = [talk(runtime, prompt, speculative) for prompt in longer]
    anew = [talk(runtime, prompt, cache_prompt=False).ids for prompt in longer]
    return seconds, anew


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_back_has_the_same_text(name: str, tmp_path: Path) -> None:
    own = Config(
        target=ModelConfig(make(name, tmp_path), n_ctx=512, n_threads=1), drafting=DraftingConfig(exact=True, types=())
    )
    with Runtime.open(own) as runtime:
        seconds, anew = in_turns(runtime)
        counts = runtime.snapshot().totals.cache
    assert [one.ids for one in seconds] == anew
    assert [one.done.usage.n_cached >= one.done.usage.n_prompt - 12 for one in seconds] == [True, True]
    assert counts.n_restored == 2
    assert counts.n_bytes > 0


def test_drafts_go_on_behind_a_text_that_came_back() -> None:
    own = config(TARGET, DRAFTS["zephyr"], exact=True)
    with Runtime.open(replace(own, target=replace(own.target, n_threads=1))) as runtime:
        seconds, anew = in_turns(runtime, SpeculativeParams(policy=SpecPolicy.FIXED))
        assert runtime.snapshot().totals.cache.n_restored == 2
    assert [one.ids for one in seconds] == anew
    assert all(one.done.timings.draft.n_drafted for one in seconds)


def test_mapped_weights_are_not_driven_out_of_memory() -> None:
    limits = (Limit(1000, "available"), Limit(900, "address space", counts_mapped=True))
    assert room(300, limits) == 700
    assert room(0, limits) == 900
    assert room(300, ()) is None


def test_a_server_without_a_prompt_cache_keeps_nothing(tmp_path: Path) -> None:
    own = ModelConfig(make("llama", tmp_path), n_ctx=512, n_threads=1)
    with Runtime.open(Config(target=own, drafting=DraftingConfig(types=()), cache_ram=0)) as runtime:
        seconds, _ = in_turns(runtime)
        assert runtime.snapshot().totals.cache == CacheCounts()
    assert [one.done.usage.n_cached for one in seconds] == [0, 0]
