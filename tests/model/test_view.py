"""What the loop says of itself to who looks: counts that add up, and that looking changes nothing."""

from __future__ import annotations

import threading
from itertools import count

import pytest
from kit.runtime_parts import parts_on
from kit.toys import SCRIPT, TARGET_VOCAB, RandomDrafter, ScriptedModel, make_engine, run

from uad.base.config import Config
from uad.base.events import EngineView
from uad.base.types import GREEDY, Origin, Request, SpecPolicy, SpeculativeParams
from uad.engine.decode.engine import Engine
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import PolicyView
from uad.runtime import runtime
from uad.runtime.runtime import Runtime


def policy() -> AutoPolicy:
    return AutoPolicy(Machine(CostCurve([CostSample(n, 0, 30.0 + 0.5 * n) for n in range(1, 65)]), n_ubatch=64))


def request(kind: SpecPolicy = SpecPolicy.AUTO) -> Request:
    prompt = tuple(TARGET_VOCAB.tokenize(SCRIPT))[:20]
    return Request(prompt, GREEDY, SpeculativeParams(p_min=0.0, policy=kind), max_tokens=60)


def answered(engine: Engine, asked: Request, looks: bool = True) -> list[int]:
    step = engine.step

    def looked() -> None:
        step()
        engine.view()

    engine.step = looked if looks else step  # type: ignore[method-assign]
    return run(engine, [asked])[0].ids


def drafting(made: AutoPolicy) -> Engine:
    truth = run(make_engine(ScriptedModel(TARGET_VOCAB)), [request()])[0].ids
    ticks = count()
    return make_engine(
        ScriptedModel(TARGET_VOCAB), RandomDrafter({0: truth}, seed=3), policy=made, clock=lambda: next(ticks) * 0.01
    )


def test_counts_add_up_and_accepted_lengths_are_those_of_the_drafts() -> None:
    engine = drafting(AutoPolicy())
    ids = answered(engine, request(SpecPolicy.FIXED))
    view, (stats,) = engine.view(), engine.drafters()
    assert (view.n_written, sum(view.lengths)) == (len(ids), view.n_rounds)
    assert sum(view.lengths[1:]) == sum(stats.accepted) == stats.n_drafts > 0
    assert sum(k * n for k, n in enumerate(view.lengths)) == stats.n_drafted
    assert sum(k * n for k, n in enumerate(stats.accepted)) == stats.n_accepted > 0
    assert (view.curve, view.drafters[0].saves) == ((), None)


def test_the_automatic_policy_tells_its_curve_and_what_drafters_are_worth() -> None:
    engine = drafting(policy())
    answered(engine, request())
    view = engine.view()
    assert view.depth > 20
    assert len(view.curve) == 32
    assert 0 < view.curve[0] < view.curve[-1]
    assert [depth for depth, _ in view.plain] == sorted(depth for depth, _ in view.plain)
    (model,) = view.drafters
    assert model.origin is Origin.MODEL
    assert model.saves is not None
    assert model.costs is not None


def test_looking_changes_no_decision() -> None:
    seen, unseen = drafting(policy()), drafting(policy())
    assert answered(seen, request()) == answered(unseen, request(), looks=False)
    assert sum(seen.view().lengths[1:]) > 0
    assert seen.view() == unseen.view()


def test_a_policy_that_cannot_be_looked_at_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = policy()
    monkeypatch.setattr(made, "view", lambda depth: 1 / 0)
    engine = drafting(made)
    assert answered(engine, request())
    assert engine.view().curve == PolicyView().curve
    assert engine.totals().n_policy_failures == 0


def test_the_model_thread_answers_who_looks_and_survives_who_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB))
    parts = parts_on(engine)
    monkeypatch.setattr(runtime, "build", lambda *_: parts)
    told, views = threading.Event(), list[EngineView]()

    def tell(view: EngineView) -> None:
        views.append(view)
        told.set()

    def fail(view: EngineView) -> None:
        raise RuntimeError("who looks is gone")

    with Runtime.open(Config(target=None)) as opened:  # type: ignore[arg-type]
        opened.look(fail)
        opened.look(tell)
        assert told.wait(120)
        assert opened.error is None
    assert views == [EngineView()]
