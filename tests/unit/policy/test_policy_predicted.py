"""Predictions in the automatic policy: who is asked for them, and whose guesses count."""

from __future__ import annotations

import pytest
from kit.simulator import FLAT

from uad.base.types import Draft, Origin, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Drafted, Policy, Wish

PREDICTION, SUFFIX = Origin.PREDICTION, Origin.SUFFIX
PARAMS = SpeculativeParams()


def auto() -> AutoPolicy:
    policy = AutoPolicy(Machine(CostCurve([CostSample(n, 0, FLAT(n)) for n in range(1, 18)])))
    policy.begin(0, 10)
    return policy


def guess(origin: Origin, *ids: int, p: float = 0.9) -> Draft:
    return Draft(ids, (p,) * len(ids), origin, kind=origin)


@pytest.mark.parametrize("policy", [auto(), AutoPolicy()], ids=["auto", "fixed"])
def test_only_sequences_with_a_prediction_ask_for_it(policy: Policy) -> None:
    for is_predicted in (False, True):
        assert not policy.plan([Wish(0, PARAMS, 20, is_predicted=is_predicted)])
        assert bool(policy.asks(PREDICTION)) == is_predicted
        assert Wish(0, SpeculativeParams(types=(SUFFIX,)), 20, is_predicted=True).may_ask(PREDICTION) is False


def test_a_sequence_that_nobody_began_is_left_alone() -> None:
    policy = auto()
    assert policy.plan([Wish(7, PARAMS, 20)]) > 0


@pytest.mark.parametrize(
    ("predicted", "found", "origin"),
    [
        ((1, 2, 3), (1, 2, 3), PREDICTION),
        ((1, 2, 3, 4), (1, 2, 3), PREDICTION),
        ((1, 9), (1, 2, 3), SUFFIX),
        ((), (1, 2, 3), SUFFIX),
    ],
)
def test_ids_that_are_predicted_count_as_predicted(
    predicted: tuple[int, ...], found: tuple[int, ...], origin: Origin
) -> None:
    policy = auto()
    assert not policy.plan([Wish(0, PARAMS, 20, is_predicted=True)])
    for one in (guess(PREDICTION, *predicted, p=0.5), guess(SUFFIX, *found, p=0.95)):
        assert policy.asks(one.origin)
        policy.observe(Drafted(one.origin, [one], 1e-5))
    chosen = policy.choose()[0].draft
    assert chosen.ids == found
    assert chosen.origin is origin
