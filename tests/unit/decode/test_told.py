"""What a request is told beside its text, and when it ends by time or by lines, on a scripted target."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kit.toys import DRAFT_VOCAB, SCRIPT, TARGET_VOCAB, ScriptedModel, ToyRules, make_engine, run

from uad.base.types import Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.model.model_drafter import ModelDrafter
from uad.text.vocab.encode import Encoder

ENCODER = Encoder(TARGET_VOCAB)
PROMPT = tuple(TARGET_VOCAB.tokenize(SCRIPT[:60]))
PLAIN = SpeculativeParams(enabled=False)
DRAFTED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=9, p_min=0.0)
GREEDY = SamplingParams(temperature=0.0)


def engine(drafted: bool, n_seq: int = 1, **options):
    draft = ModelDrafter(ScriptedModel(DRAFT_VOCAB, n_seq, sharpness=9.0), ENCODER, ToyRules()) if drafted else None
    return make_engine(ScriptedModel(TARGET_VOCAB, n_seq), draft, **options)


@pytest.mark.parametrize("drafted", [False, True])
def test_each_id_has_its_piece_of_the_text(drafted: bool) -> None:
    request = Request(PROMPT, GREEDY, DRAFTED if drafted else PLAIN, max_tokens=40, stop=("never here",))
    (result,) = run(engine(drafted), [request])
    assert all(len(delta.pieces) == len(delta.ids) for delta in result.deltas)
    assert all("".join(delta.pieces) == delta.text for delta in result.deltas)
    if drafted:
        assert any(len(delta.ids) > 1 for delta in result.deltas)


def test_drafted_ids_are_told_with_the_probabilities_that_they_were_drawn_with() -> None:
    sampling = SamplingParams(temperature=0.9, seed=3, top_k=5, mirostat=2, mirostat_tau=2.0)
    told = []
    for drafted in (False, True):
        speculative = DRAFTED if drafted else PLAIN
        request = Request(PROMPT, sampling, speculative, max_tokens=30, logprobs=True, n_probs=4, post_sampling=True)
        (result,) = run(engine(drafted), [request])
        told.append([prob for delta in result.deltas for prob in delta.probs])
        assert [prob.id for prob in told[-1]] == result.ids
    assert told[0] == told[1]
    assert all(sum(math.exp(one.logprob) for one in prob.top) <= 1 + 1e-6 for prob in told[0])
    assert len({len(prob.top) for prob in told[0]}) > 1, "those that cannot be drawn are not told"


@pytest.mark.parametrize("n_prompt", [1, 2, 64, 65, 200])
@pytest.mark.parametrize("max_tokens", [0, 1, 3])
def test_a_prompt_is_told_with_the_probability_of_each_of_its_ids(n_prompt: int, max_tokens: int) -> None:
    prompt = (PROMPT * 20)[:n_prompt]
    model = ScriptedModel(TARGET_VOCAB)
    request = Request(prompt, GREEDY, PLAIN, max_tokens=max_tokens, logprobs=True, n_probs=1, prompt_probs=True)
    one = make_engine(model)
    for _ in range(2):
        (result,) = run(one, [request])  # the second time the slot holds the prompt
        probs = [prob for event in result.progress for prob in event.probs]
        assert [prob.id for prob in probs] == list(prompt)
        assert math.isnan(probs[0].logprob)
        for i, prob in enumerate(probs[1:], 1):
            row = model._compute(list(prompt[:i])).astype(float)
            assert abs(prob.logprob - (row[prompt[i]] - np.log(np.exp(row).sum()))) < 1e-3
            assert prob.top[0].id == int(row.argmax())
        assert len(result.ids) == max_tokens


def test_progress_begins_at_what_was_held_and_ends_with_the_prompt() -> None:
    one, prompt = engine(False), (PROMPT * 20)[:200]
    for n_held in (0, 198):
        (result,) = run(one, [Request(prompt, GREEDY, PLAIN, max_tokens=2, progress=True, timings=True)])
        past = [event.n_past for event in result.progress]
        assert past[0] == result.progress[0].n_cached == n_held
        assert past[-1] == result.progress[-1].n_prompt == 200
        assert past == sorted(set(past))
        assert result.progress[0].timings is not None
        assert (result.progress[0].timings.n_prompt, result.progress[0].timings.prompt_ms) == (0, 0.0)
        assert result.progress[-1].timings.n_prompt == 200 - n_held
        assert [delta.timings.n_predicted for delta in result.deltas] == [1, 2]


def test_a_sink_that_fails_at_the_start_ends_its_request_alone() -> None:
    class Broken(list):
        def __call__(self, event: object) -> None:
            self.append(event)
            raise OSError("gone")

    one, broken = engine(False), Broken()
    one.submit(7, Request(PROMPT, GREEDY, PLAIN, max_tokens=3, progress=True), broken)
    (result,) = run(one, [Request(PROMPT, GREEDY, PLAIN, max_tokens=3)])
    assert len(result.ids) == 3
    assert not any(slot.is_processing for slot in one.slots())


@pytest.mark.parametrize("drafted", [False, True])
def test_an_answer_ends_with_the_first_line_that_ends_too_late(drafted: bool) -> None:
    seconds = iter(x / 10 for x in range(10**6))
    request = Request(PROMPT[:1], GREEDY, DRAFTED if drafted else PLAIN, max_tokens=90, max_predict_ms=50.0)
    (result,) = run(engine(drafted, clock=lambda: next(seconds)), [request])
    text = "".join(delta.text for delta in result.deltas)
    assert text.count("\n") == 1
    assert "\n" in result.deltas[-1].pieces[-1]
    assert result.done.finish == "length"
    unlimited = run(engine(drafted), [Request(PROMPT[:1], GREEDY, DRAFTED if drafted else PLAIN, max_tokens=90)])[0]
    assert unlimited.ids[: len(result.ids)] == result.ids
    assert len(unlimited.ids) > len(result.ids)


@pytest.mark.parametrize("n_seq", [1, 4])
def test_an_answer_ends_before_a_line_that_begins_too_early_drafted_or_not(n_seq: int) -> None:
    texts = []
    for drafted in (False, True):
        speculative = DRAFTED if drafted else PLAIN
        requests = [Request(PROMPT[: 1 + i], GREEDY, speculative, max_tokens=90, n_indent=4) for i in range(n_seq)]
        results = run(engine(drafted, n_seq), requests)
        texts.append([(result.text, tuple(result.ids)) for result in results])
    assert texts[0] == texts[1]
    assert all(len(ids) < 90 for _, ids in texts[0])
    assert all(line.startswith("    ") or not line.strip() for line in texts[0][0][0].split("\n")[1:])
