"""Same text with and without a prediction, right, edited or useless, on the scripted target; and how many rounds."""

from __future__ import annotations

import pytest
from kit.toys import (
    KEYS,
    SCRIPT,
    TARGET_VOCAB,
    Collector,
    ScriptedModel,
    SimulatedClock,
    TimedModel,
    make_engine,
    run,
)

from uad.base.types import Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.lookup import prediction
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.text.vocab.encode import Encoder

START = TARGET_VOCAB.specials["<|im_start|>"]
ENCODER = Encoder(TARGET_VOCAB)
EDITED = SCRIPT.replace(b"lazy dog", b"sleepy dog").replace(b"        return", b"        # a word\n        return")
PREDICTIONS = {
    "right": SCRIPT * 2,
    "edited": EDITED * 2,
    "useless": b"Nothing of this is in the answer, which is about foxes.\n" * 8,
    "bytes": bytes(range(256)) * 4,
    "megabyte": (b"def " * (1 << 18))[: 1 << 20],
}
assert len(KEYS)


def requests(temperature: float, predicted: bytes, speculative: SpeculativeParams) -> list[Request]:
    """Five answers, for slots in turns; every other one without a prediction."""
    params = SamplingParams(temperature=temperature, seed=5)
    ids = TARGET_VOCAB.tokenize(SCRIPT)
    return [
        Request((START, *ids[:n]), params, speculative, max_tokens=90, prediction=predicted if i % 2 == 0 else b"")
        for i, n in enumerate((3, 20, 11, 30, 0))
    ]


@pytest.mark.parametrize(("n_seq", "temperature"), [(1, 0.0), (4, 0.8)])
@pytest.mark.parametrize("policy", list(SpecPolicy))
@pytest.mark.parametrize("what", PREDICTIONS)
def test_drafted_equals_plain(what: str, policy: SpecPolicy, temperature: float, n_seq: int) -> None:
    found: list[list[Collector]] = []
    for speculative in (SpeculativeParams(enabled=False), SpeculativeParams(policy=policy)):
        model = ScriptedModel(TARGET_VOCAB, n_seq=n_seq)
        engine = make_engine(model, prediction.drafter(ENCODER), policies=auto)
        found.append(run(engine, requests(temperature, PREDICTIONS[what], speculative)))
    plain, drafted = found
    assert [one.ids for one in drafted] == [one.ids for one in plain]
    counts = [one.done.timings.draft.by.get(Origin.PREDICTION) for one in drafted]
    assert [count is not None for count in counts] == [True, False, True, False, True]
    if what in ("right", "edited"):
        assert sum(count.n_accepted for count in counts if count) > 0


def auto() -> AutoPolicy:
    return AutoPolicy(Machine(CostCurve([CostSample(n, 0, 30 + 0.5 * n) for n in range(1, 18)])))


def n_decodes(predicted: bytes, n_tokens: int = 300) -> tuple[int, float]:
    """Decodes that an answer takes, and its time as a share of that without a prediction, where a row costs little."""
    took = []
    for text in (b"", predicted):
        clock = SimulatedClock()
        model = TimedModel(TARGET_VOCAB, clock, lambda n, depth: 0.030 + 0.0005 * n, n_ctx=1024, sharpness=40.0)
        engine = make_engine(model, prediction.drafter(ENCODER), policies=auto, clock=clock)
        (one,) = run(engine, [Request((START,), max_tokens=n_tokens, prediction=text)])
        assert len(one.ids) == n_tokens
        took.append((model.n_decodes, clock.seconds))
    return took[1][0], took[1][1] / took[0][1]


def test_a_right_prediction_takes_as_few_rounds_as_rows_allow() -> None:
    decodes, share = n_decodes(SCRIPT * 20)
    assert decodes < 16
    assert share < 0.12


def test_an_edited_one_takes_a_few_more() -> None:
    decodes, share = n_decodes(EDITED * 20)
    assert decodes < 60
    assert share < 0.33


def test_a_useless_one_costs_nearly_nothing() -> None:
    for what in ("useless", "bytes", "megabyte"):
        _, share = n_decodes(PREDICTIONS[what])
        assert share < 1.02, what


def test_a_server_that_drafts_only_from_predictions_leaves_other_answers_alone() -> None:
    model = ScriptedModel(TARGET_VOCAB)
    engine = make_engine(model, prediction.drafter(ENCODER), policies=auto)
    (one,) = run(engine, [Request((START,), max_tokens=40)])
    assert len(one.ids) == 40
    assert all(sum(batch.values()) == 1 for batch in model.batches[1:])
    assert engine.drafters()[0].n_calls == 0
