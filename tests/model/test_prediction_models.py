"""Predictions on real weights, without any other drafter: the plain text, bit for bit, in fewer decodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kit.models import chat_prompts, chat_requests, config, finish, quantized
from kit.tiny_models import make

from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.runtime.runtime import Runtime

pytestmark = pytest.mark.model
PROMPTS = chat_prompts(4)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("predicted")


def predictions(text: str) -> list[bytes]:
    """Of an answer: right, with an edit in the middle, with words before it, and useless."""
    data, half = text.encode(), len(text.encode()) // 2
    return [data, data[:half] + b" as it were " + data[half + 7 :], b"Well. " + data, b"None of this is answered. " * 9]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("slots", [1, 4])
def test_the_text_is_the_plain_one(slots: int, temperature: float, folder: Path) -> None:
    model = Request((), SamplingParams(temperature=temperature, seed=3), max_tokens=48)
    with Runtime.open(config(quantized("q8_0", folder), None, slots)) as runtime:
        assert runtime.info.drafters == (Origin.PREDICTION,)
        asked = chat_requests(runtime, PROMPTS, model)
        plain = finish(runtime, asked)
        n_plain = runtime.snapshot().totals.n_decodes
        assert all(one.done.timings.draft.n_drafted == 0 for one in plain)
        for i in range(4):
            predicted = [replace(r, prediction=predictions(one.text)[i]) for r, one in zip(asked, plain, strict=True)]
            found = finish(runtime, predicted)
            assert [one.ids for one in found] == [one.ids for one in plain]
        fixed = SpeculativeParams(policy=SpecPolicy.FIXED)  # the automatic policy goes by what the machine does now
        began = runtime.snapshot().totals.n_decodes
        right = [
            replace(request, prediction=one.text.encode(), speculative=fixed)
            for request, one in zip(asked, plain, strict=True)
        ]
        found = finish(runtime, right)
        assert [one.ids for one in found] == [one.ids for one in plain]
        n_accepted = sum(one.done.timings.draft.n_accepted for one in found)
        assert n_accepted > sum(len(one.ids) for one in found) / 2
        assert runtime.snapshot().totals.n_decodes - began < n_plain


@pytest.mark.parametrize("name", ["lfm2", "falcon-h1"])
def test_memories_that_need_copies_give_the_same_text(name: str, folder: Path) -> None:
    model = Request((), SamplingParams(temperature=0.0), max_tokens=40)
    with Runtime.open(config(make(name, folder), None, n_ctx=256)) as runtime:
        request = replace(model, prompt=tuple(runtime.text.tokenize("One evening a child went into the forest")))
        off = replace(request, speculative=SpeculativeParams(enabled=False))
        (plain,) = finish(runtime, [off])
        for prediction in predictions(plain.text):
            (found,) = finish(runtime, [replace(request, prediction=prediction)])
            assert found.ids == plain.ids
