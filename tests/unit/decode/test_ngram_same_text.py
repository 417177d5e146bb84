"""Same text with each drafter that needs no model: on the scripted target, beside neighbours, over several requests in
the same slots.
"""

from __future__ import annotations

import pytest
from kit.toys import SCRIPT, TARGET_VOCAB, ScriptedModel, make_engine, run

from uad.base.config import LookupConfig
from uad.base.config.drafter_types import LOOKUP_TYPES, NgramConfig, NgramModConfig
from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.lookup.build import build_one

TYPES = tuple(str(one.origin) for one in LOOKUP_TYPES if not one.by_request)
START = TARGET_VOCAB.specials["<|im_start|>"]
SHORT = NgramConfig(2, 8, 1)
MOD = NgramModConfig(3, 1, 12)


def requests(temperature: float, speculative: SpeculativeParams) -> list[Request]:
    """Two rounds of prompts for two slots; the target's script repeats itself, so that the second half of an answer was
    written before.
    """
    params = SamplingParams(temperature=temperature, seed=3)
    ids = TARGET_VOCAB.tokenize(SCRIPT + SCRIPT)
    return [Request((START, *ids[:n]), params, speculative, max_tokens=60) for n in (5, 40, 70, 12)]


@pytest.mark.parametrize(("share", "temperature"), [("off", 0.0), ("off", 0.9), ("slot", 0.9), ("server", 0.0)])
@pytest.mark.parametrize("name", TYPES)
def test_drafted_equals_plain(name: str, share: str, temperature: float) -> None:
    plain, drafted = [], []
    for found, speculative in (
        (plain, SpeculativeParams(enabled=False)),
        (drafted, SpeculativeParams(policy=SpecPolicy.FIXED)),
    ):
        drafter = build_one(Origin(name), LookupConfig(SHORT, SHORT, SHORT, MOD, share=share), "", 2)
        engine = make_engine(ScriptedModel(TARGET_VOCAB, n_seq=2), drafter)
        for pair in (slice(0, 2), slice(2, 4), slice(0, 2)):
            found += run(engine, requests(temperature, speculative)[pair])
    assert [result.ids for result in drafted] == [result.ids for result in plain]
    assert sum(result.done.timings.draft.n_accepted for result in drafted) > 0
    assert all(result.done.timings.draft.n_drafted == 0 for result in plain)
