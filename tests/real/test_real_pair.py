"""The first promise on real models: a real draft of another vocabulary leaves the target's text alone, and guesses some
of it.
"""

from __future__ import annotations

import pytest
from kit.models import chat_requests, config, finish
from kit.real_models import real_model

from uad.base.types import Finish, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.runtime.runtime import Runtime

pytestmark = [pytest.mark.real, pytest.mark.model]
TARGET = "qwen2.5-coder-0.5b-q8_0"
"""Exact as it is: `exact` would take a minute at start to find a batch that computes the same bits."""

PROMPTS = (
    "Write a Python function that returns the n-th Fibonacci number.",
    "Nenne drei Flüsse in Österreich – in einem Satz.",
)
PLAIN = SpeculativeParams(enabled=False)
DRAFTED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.4)
N_TOKENS = 32


def answers(
    runtime: Runtime, temperature: float, speculative: SpeculativeParams
) -> tuple[list[str], list[list[int]], int]:
    """Texts and ids of all prompts, and how many drafted ids were accepted."""
    request = Request((), SamplingParams(temperature=temperature, seed=7), speculative, max_tokens=N_TOKENS)
    done = finish(runtime, chat_requests(runtime, PROMPTS, request), timeout=300)
    return [one.text for one in done], [one.ids for one in done], sum(one.done.timings.draft.n_accepted for one in done)


@pytest.mark.parametrize("draft", ["smollm2-135m", "gemma3-270m"])
def test_the_same_text_drafted_and_not_across_vocabularies(draft: str) -> None:
    """Greedy, and drawn at temperature 0.8 with a seed."""
    with Runtime.open(config(real_model(TARGET), real_model(draft), n_ctx=512)) as runtime:
        for temperature in (0.0, 0.8):
            text, ids, _ = answers(runtime, temperature, PLAIN)
            drafted_text, drafted_ids, n_accepted = answers(runtime, temperature, DRAFTED)
            assert drafted_ids == ids
            assert drafted_text == text
            assert n_accepted > 0, "nothing was guessed, so nothing was shown"


def test_a_draft_with_the_same_vocabulary_is_mostly_right_and_changes_nothing() -> None:
    """The same model in four bits."""
    with Runtime.open(config(real_model(TARGET), real_model("qwen2.5-coder-0.5b"), n_ctx=512)) as runtime:
        _, ids, _ = answers(runtime, 0.0, PLAIN)
        _, drafted_ids, n_accepted = answers(runtime, 0.0, DRAFTED)
        assert drafted_ids == ids
        assert n_accepted > N_TOKENS


def test_real_turn_markers_end_the_answer_and_are_no_text() -> None:
    """The target ends its turn with <|im_end|>, whatever the draft ends its own with."""
    with Runtime.open(config(real_model(TARGET), real_model("smollm2-135m"), n_ctx=512)) as runtime:
        request = Request((), SamplingParams(temperature=0.0), DRAFTED, max_tokens=64)
        (one,) = finish(runtime, chat_requests(runtime, ["Answer with the single word: yes"], request), timeout=300)
        assert one.done.finish is Finish.STOP
        assert "<|" not in one.text
