"""Filling in the middle is drafted from the whole file: a repetition of text behind the cursor, from its first id."""

from __future__ import annotations

import pytest
from kit.toys import SCRIPT, TARGET_VOCAB, Collector, ScriptedModel, make_engine, run

from uad.base.config import LookupConfig
from uad.base.config.drafter_types import NgramConfig
from uad.base.types import FimTokens, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.lookup.build import build_one
from uad.http.requests.prompt_ids import FimParts

MARK = TARGET_VOCAB.specials["<|im_start|>"]
FIM = FimTokens(MARK, MARK, MARK)
LOOKUP = LookupConfig(simple=NgramConfig(2, 12), map_k=NgramConfig(2, 12))
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED)
CURSOR = SCRIPT.index(b" over the")


def filled_in(
    origin: Origin, told: bool, speculative: SpeculativeParams = FIXED, temperature: float = 0.0
) -> Collector:
    """The script is what stands behind the cursor, and its first words before it: it is written once more from there.

    told: whether drafters read the parts in their own order.
    """
    parts = FimParts(TARGET_VOCAB.tokenize(SCRIPT[:CURSOR]), TARGET_VOCAB.tokenize(SCRIPT))
    request = Request(
        prompt=parts.prompt(FIM, (), suffix_first=False),
        drafted_prompt=parts.drafted(FIM) if told else (),
        sampling=SamplingParams(temperature=temperature, seed=4),
        speculative=speculative,
        max_tokens=24,
    )
    engine = make_engine(ScriptedModel(TARGET_VOCAB, sharpness=30.0), build_one(origin, LOOKUP, "", 1))
    return run(engine, [request])[0]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("origin", [Origin.SUFFIX, Origin.NGRAM_SIMPLE, Origin.NGRAM_MAP_K])
def test_text_behind_the_cursor_is_drafted_from_the_first_id(origin: Origin, temperature: float) -> None:
    plain = filled_in(origin, True, SpeculativeParams(enabled=False), temperature)
    found = filled_in(origin, True, temperature=temperature)
    assert TARGET_VOCAB.join(plain.ids).startswith(b" over the lazy dog")
    assert found.ids == plain.ids
    second = found.deltas[1]  # the first id comes with the prompt
    assert second.origins[0] is origin
    assert len(second.ids) > 4
    in_the_models_order = filled_in(origin, False, temperature=temperature)
    assert in_the_models_order.ids == plain.ids
    assert in_the_models_order.deltas[1].origins[0] is Origin.TARGET
    assert found.done.timings.draft.n_rounds < in_the_models_order.done.timings.draft.n_rounds


def test_the_cache_is_that_of_the_models_order() -> None:
    """What drafters read decides nothing of what the slot keeps."""
    found = filled_in(Origin.SUFFIX, True)
    assert (
        found.done.usage.n_prompt
        == len(TARGET_VOCAB.tokenize(SCRIPT[:CURSOR])) + len(TARGET_VOCAB.tokenize(SCRIPT)) + 3
    )
