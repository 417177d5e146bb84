"""What couples a draft model to the target's noise, and what it recalls, saves decodes of the bundled models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.models import DRAFTS, TARGET, chat_prompts, config
from kit.toys import Collector
from stepper import Stepper

from uad.base.types import GREEDY, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.engine.decode.drafting import Drafting
from uad.tools.bench import workloads

pytestmark = pytest.mark.model


@pytest.mark.parametrize("draft", DRAFTS)
def test_real_drafts_foresee_more_with_the_targets_noise(draft: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stories at temperature 1: the same text, in fewer decodes by a third."""
    speculative = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.0)

    def stories() -> tuple[list[list[int]], int]:
        with Stepper.open(config(TARGET, DRAFTS[draft])) as stepper:
            texts, n_rounds = [], 0
            for seed, prompt in enumerate(chat_prompts(32)[4::8]):
                ids = stepper.text.chat([{"role": "user", "content": prompt}], {})
                sink = Collector()
                sampling = SamplingParams(temperature=1.0, seed=seed)
                stepper.submit(Request(tuple(ids), sampling, speculative, max_tokens=64), sink)
                while not stepper.is_idle:
                    stepper.step()
                texts.append(sink.ids)
                n_rounds += sink.done.timings.draft.n_rounds
        return texts, n_rounds

    coupled, few = stories()
    begin = Drafting.begin
    monkeypatch.setattr(Drafting, "begin", lambda self, text: begin(self, replace(text, sampling=GREEDY)))
    texts, many = stories()
    assert texts == coupled
    assert few < many * 2 / 3, f"{few} decodes with the target's noise, {many} without"


@pytest.mark.parametrize("draft", DRAFTS)
def test_real_drafts_of_code_gain(draft: str) -> None:
    """The bundled code prompts, greedy, in three quarters of the decodes that they took before anything was
    recalled.
    """
    alone = {"zephyr": 342, "gemma": 317}[draft]
    n_rounds = 0
    with Stepper.open(config(TARGET, DRAFTS[draft])) as stepper:
        for prompt in workloads.load("code").prompts[:6]:
            sink = Collector()
            ids = tuple(stepper.text.tokenize(prompt.text, add_special=True, parse_special=False))
            speculative = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.0)
            stepper.submit(Request(ids, GREEDY, speculative, max_tokens=128), sink)
            while not stepper.is_idle:
                stepper.step()
            n_rounds += sink.done.timings.draft.n_rounds
    assert n_rounds < 0.75 * alone
