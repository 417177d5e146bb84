"""Targets that see, with tiny random projectors: llama.cpp's own ids, whatever drafts, in however many slots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kit.models import finish
from kit.seen_alone import greedy_answer
from kit.tiny_models import make
from kit.tiny_vision import make_hearing, make_projector, picture

from uad.base.config import Config, DraftingConfig, ModelConfig, VisionConfig
from uad.base.errors import ContextOverflowError, InvalidRequestError, ModelLoadError, NotSupportedError
from uad.base.events import Progress, SlotAction
from uad.base.types import (
    GREEDY,
    MEDIA_MARKER,
    Image,
    Request,
    SamplingParams,
    SpecPolicy,
    SpeculativeParams,
)
from uad.runtime.runtime import Runtime

PAIRS = {"m-rope": ("qwen2vl", "qwen2vl"), "window": ("gemma3", "gemma3"), "state": ("qwen35", "qwen2vl")}
"""Architecture of the target, and kind of its projector."""
OFF = SpeculativeParams(enabled=False)
EVERY_ROUND = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.0)
N = 24
PICTURES = picture(1, 40, 24), picture(2, 24, 48), picture(3)
PROMPTS = {
    "before": (f"{MEDIA_MARKER} What is in this picture of the river?", PICTURES[:1]),
    "between": (f"Look at this: {MEDIA_MARKER} and tell me about the lantern.", PICTURES[:1]),
    "three": (
        f"{MEDIA_MARKER} is one, {MEDIA_MARKER}{MEDIA_MARKER} are two more; which of them has a bridge?",
        PICTURES,
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@contextmanager
def opened(folder: Path, pair: str, n_slots: int = 1, **more) -> Iterator[Runtime]:
    """A runtime of this pair; with a draft model, which is the target's own file and blind."""
    arch, kind = PAIRS[pair]
    path = make(arch, folder)
    drafting = more.pop("drafting", DraftingConfig(types=("draft-simple", "suffix")))
    config = Config(
        target=ModelConfig(path, n_ctx=768 * n_slots, n_threads=1, **more.pop("target", {})),
        draft=ModelConfig(path, n_threads=1),
        n_parallel=n_slots,
        vision=VisionConfig(path=make_projector(kind, folder)),
        drafting=drafting,
        **more,
    )
    runtime = Runtime.open(config)
    with runtime:
        yield runtime


def request(runtime: Runtime, prompt: str, images: tuple[Image, ...], **more) -> Request:
    ids = runtime.text.tokenize(prompt, add_special=True, images=images)
    fields = {"sampling": GREEDY, "speculative": OFF, "max_tokens": N, "images": images} | more
    return Request(tuple(ids), **fields)


def answer(runtime: Runtime, one: Request) -> list[int]:
    return finish(runtime, [one])[0].ids


@pytest.fixture(scope="module", params=PAIRS)
def runtime(request, folder) -> Iterator[Runtime]:
    with opened(folder, request.param) as one:
        yield one


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("pair", PAIRS)
def test_greedy_ids_and_the_count_of_tokens_are_those_of_llama_cpp_itself(pair, prompt, folder, runtimes) -> None:
    arch, kind = PAIRS[pair]
    text, images = PROMPTS[prompt]
    config = ModelConfig(make(arch, folder), n_ctx=768, n_threads=1)
    expected, n_tokens = greedy_answer(config, make_projector(kind, folder), text, images, N)
    result = finish(runtimes(pair), [request(runtimes(pair), text, images)])[0]
    assert result.ids == expected
    assert result.done.usage.n_prompt == n_tokens
    assert len(set(expected)) > 4


@pytest.fixture(scope="module")
def runtimes(folder):
    """The runtime of a pair, opened when it is first asked for."""
    made: dict[str, tuple] = {}

    def of(pair: str) -> Runtime:
        if pair not in made:
            manager = opened(folder, pair)
            made[pair] = manager, manager.__enter__()
        return made[pair][1]

    yield of
    for manager, _ in made.values():
        manager.__exit__(None, None, None)
