"""Targets and drafts whose memory cannot take back any id: the same text, nothing decoded twice without need, and
prompts that go on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.pairs import pairs
from kit.toys import DRAFT_VOCAB, SCRIPT, TARGET_VOCAB, RandomDrafter, ScriptedModel, ToyRules, make_engine, run

from uad.base.types import GREEDY, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.layout import Least, passes
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.text.vocab.encode import Encoder

ENCODER = Encoder(TARGET_VOCAB)
OFF = SpeculativeParams(enabled=False)
START = TARGET_VOCAB.specials["<|im_start|>"]
CHECKPOINTS, SNAPSHOTS = 0, 3


def model(n_free: int, n_seq: int = 1, tail: int = 0, **fields) -> ScriptedModel:
    one = ScriptedModel(TARGET_VOCAB, n_seq=n_seq, length=400, **fields)
    one.n_free, one.can_stop, one.tail = n_free, False, tail
    return one


def draft(n_free: int, n_seq: int = 1) -> ScriptedModel:
    one = ScriptedModel(DRAFT_VOCAB, n_seq=n_seq, length=400, sharpness=5.0)
    one.n_free = n_free
    return one


def requests(n: int, temperature: float, speculative: SpeculativeParams) -> list[Request]:
    sampling = SamplingParams(temperature=temperature, seed=3)
    prompts = [(START, *TARGET_VOCAB.tokenize((SCRIPT * 2)[: 20 + 37 * i])) for i in range(n)]
    return [Request(prompt, sampling, speculative, max_tokens=40) for prompt in prompts]


def plain(n: int, temperature: float) -> list[list[int]]:
    return [
        run(make_engine(ScriptedModel(TARGET_VOCAB, length=400)), [one])[0].ids for one in requests(n, temperature, OFF)
    ]


@pytest.mark.parametrize(
    ("kind", "n_free", "n_seq", "temperature"),
    pairs(["model", "random"], [CHECKPOINTS, SNAPSHOTS], [1, 3], [0.0, 0.9]),
)
def test_the_text_is_that_of_the_target_alone(kind: str, n_free: int, n_seq: int, temperature: float) -> None:
    expected, n_accepted = plain(n_seq, temperature), 0
    for n_max, least in ((1, 1), (3, 2), (7, 4), (16, 1), (16, 4)):
        drafter = RandomDrafter(dict(enumerate(expected)), seed=n_max)
        one = ModelDrafter(draft(n_free, n_seq), ENCODER, ToyRules()) if kind == "model" else drafter
        engine = make_engine(model(n_free, n_seq), one, least=Least(least))
        results = run(
            engine, requests(n_seq, temperature, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max, p_min=0.3))
        )
        assert [result.ids for result in results] == expected, f"n_max {n_max}, least {least}"
        n_accepted += sum(result.done.timings.draft.n_accepted for result in results)
    assert n_accepted > 20


@pytest.mark.parametrize("n_free", [CHECKPOINTS, SNAPSHOTS])
def test_the_automatic_policy_writes_the_same_text_too(n_free: int) -> None:
    target = model(n_free)
    flat = [CostSample(n, 0, 20.0 + n / 10) for n in range(1, 33)]
    policy = AutoPolicy(
        Machine(CostCurve(flat), {Origin.MODEL: CostCurve([CostSample(1, 0, 0.5)])}, n_free=n_free, keep_ms=0.5)
    )
    engine = make_engine(target, ModelDrafter(draft(n_free), ENCODER, ToyRules()), policy=policy)
    request = replace(requests(1, 0.0, SpeculativeParams())[0], max_tokens=150)
    result = run(engine, [request])[0]
    assert (
        result.ids
        == run(make_engine(ScriptedModel(TARGET_VOCAB, length=400)), [replace(request, speculative=OFF)])[0].ids
    )
    assert result.done.timings.draft.n_accepted > 50


def test_what_is_decoded_again_comes_in_the_next_rounds_batch_and_stays_short() -> None:
    target = model(CHECKPOINTS)
    engine = make_engine(target, RandomDrafter(seed=5))
    request = requests(1, 0.0, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4))[0]
    run(engine, [request])
    rounds = target.batches[1:]
    assert len(rounds) <= request.max_tokens + 1, "no decode of its own"
    assert max(max(batch.values()) for batch in rounds) < 40


def turn(*parts: bytes) -> Request:
    ids = [id_ for part in parts for id_ in (START, *TARGET_VOCAB.tokenize(part))]
    return Request(tuple(ids), GREEDY, OFF, max_tokens=8)


@pytest.mark.parametrize("n_free", [CHECKPOINTS, SNAPSHOTS])
def test_the_next_turn_of_a_conversation_goes_on_from_a_mark(n_free: int) -> None:
    """The answer comes back in other words, as where a template drops thoughts: the prompt differs within what the slot
    holds.
    """
    engine = make_engine(model(n_free, tail=4))
    first = turn(SCRIPT[:150])
    run(engine, [first])
    second = turn(SCRIPT[:150], b" other words", SCRIPT[:30])
    result = run(engine, [second])[0]
    assert len(first.prompt) - 4 <= result.done.usage.n_cached < len(first.prompt)
    fresh = run(make_engine(ScriptedModel(TARGET_VOCAB)), [second])[0]
    assert result.ids == fresh.ids


def test_a_prompt_that_differs_before_every_mark_is_read_anew() -> None:
    engine = make_engine(model(CHECKPOINTS, tail=4))
    run(engine, [turn(SCRIPT[:150])])
    result = run(engine, [turn(SCRIPT[:40], SCRIPT[60:100])])[0]
    assert result.done.usage.n_cached == 0
    assert result.ids == run(make_engine(ScriptedModel(TARGET_VOCAB)), [turn(SCRIPT[:40], SCRIPT[60:100])])[0].ids


def test_no_dummy_rows_are_decoded_where_they_could_not_be_taken_back() -> None:
    target = model(CHECKPOINTS)
    engine = make_engine(target, least=Least(4))
    results = run(engine, requests(1, 0.0, OFF))
    assert results[0].ids == plain(1, 0.0)[0]
    assert len(target.batches) <= len(results[0].ids) + 3, "dummy rows cost no decode of their own"


@pytest.mark.parametrize("least", [Least(2), Least(8), Least(2, of_each=True), Least(8, of_each=True)])
@pytest.mark.parametrize("n_free", [CHECKPOINTS, SNAPSHOTS])
def test_no_pass_is_too_small_behind_ids_that_waited(n_free: int, least: Least) -> None:
    """Many ids that are to be decoded again are so before the passes of the round are laid out."""
    expected = plain(3, 0.9)
    for n_max in (3, 8, 16):
        target = model(n_free, 3)
        engine = make_engine(target, RandomDrafter(dict(enumerate(expected)), seed=n_max), least=least)
        results = run(engine, requests(3, 0.9, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=n_max)))
        assert [result.ids for result in results] == expected
        for batch in target.batches:
            sizes = [(len(group), n) for group, n in passes(batch, target.n_ubatch)]
            assert all(least.holds(n_seq, n, target.n_ubatch) for n_seq, n in sizes), f"{batch} in {sizes}"


# --- the policy


def costs(n_free: int, keep_ms: float, n_pending: int) -> list[float]:
    machine = Machine(CostCurve([CostSample(n, 0, 10.0 + n) for n in range(1, 33)]), n_free=n_free, keep_ms=keep_ms)
    return machine.table((1,), 0, n_pending).upto(10)


def test_a_draft_that_needs_a_checkpoint_costs_it_and_what_is_decoded_again() -> None:
    usual, snapshots = costs(1 << 30, 0.0, 1), costs(3, 5.0, 1)
    assert snapshots[1:5] == pytest.approx(usual[1:5])
    assert snapshots[5] == pytest.approx(usual[5] + 5.0 + 2.0)  # two ids are decoded again, at 1 ms each


def test_ids_that_are_decoded_in_any_case_shift_the_costs() -> None:
    assert costs(0, 0.0, 4)[1] == pytest.approx(costs(1 << 30, 0.0, 1)[4])


@pytest.mark.parametrize("n_free", [CHECKPOINTS, SNAPSHOTS])
@pytest.mark.parametrize("n_batch", [12, 48, 96])
def test_what_is_decoded_again_fits_into_the_batch_beside_the_drafts(n_free: int, n_batch: int) -> None:
    expected = plain(4, 0.9)
    for seed in range(8):
        drafter = RandomDrafter(dict(enumerate(expected)), seed=seed)
        engine = make_engine(model(n_free, 4, n_batch=n_batch), drafter)
        results = run(engine, requests(4, 0.9, SpeculativeParams(policy=SpecPolicy.FIXED, n_max=48)))
        assert [result.ids for result in results] == expected
