"""What a constraint forces, in both policies: asked for where there is something, weighed against other guesses."""

from __future__ import annotations

import pytest

from uad.base.types import Commit, Draft, Origin, SpecPolicy, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Drafted, Policy, Wish

GRAMMAR, MODEL, SUFFIX = Origin.GRAMMAR, Origin.MODEL, Origin.SUFFIX
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8)


def guess(origin: Origin, n: int) -> Draft:
    return Draft(tuple(range(n)), (1.0,) * n, origin, kind=origin)


def auto() -> AutoPolicy:
    policy = AutoPolicy(Machine(CostCurve([CostSample(n, 0, 10 + 0.3 * n) for n in range(1, 65)])))
    policy.begin(0, 5)
    return policy


def policies() -> list[tuple[Policy, SpeculativeParams]]:
    return [(AutoPolicy(), FIXED), (auto(), SpeculativeParams())]


@pytest.mark.parametrize("i", [0, 1])
def test_it_is_asked_only_where_something_is_forced(i: int) -> None:
    policy, params = policies()[i]
    for is_forced in (False, True, False):
        assert not policy.plan([Wish(0, params, 20, is_forced=is_forced)])
        assert bool(policy.asks(GRAMMAR)) == is_forced


@pytest.mark.parametrize("i", [0, 1])
def test_a_request_that_names_drafters_gets_these(i: int) -> None:
    policy, params = policies()[i]
    params = SpeculativeParams(policy=params.policy, types=(SUFFIX,))
    assert not policy.plan([Wish(0, params, 20, is_forced=True)])
    assert not policy.asks(GRAMMAR)
    assert policy.asks(SUFFIX)


@pytest.mark.parametrize(("n_model", "origin"), [(0, GRAMMAR), (2, GRAMMAR), (3, MODEL), (8, MODEL)])
def test_a_fixed_policy_takes_the_longer_guess(n_model: int, origin: Origin) -> None:
    policy = AutoPolicy()
    assert not policy.plan([Wish(0, FIXED, 20, is_forced=True)])
    for one, n in ((GRAMMAR, 3), (MODEL, n_model)):
        assert policy.asks(one)
        policy.observe(Drafted(one, [guess(one, n)], 0.0))
    assert policy.choose()[0].draft.origin is origin


def test_a_sleeping_sequence_is_planned_where_something_is_forced() -> None:
    """Its other drafters do not pay, and stay asleep."""
    policy, free = auto(), Wish(0, SpeculativeParams(), 20)
    for _ in range(20):
        if policy.plan([free]):
            break
        if policy.asks(SUFFIX):
            policy.observe(Drafted(SUFFIX, [Draft(origin=SUFFIX, kind=SUFFIX)], 1.0))
            policy.choose()
        policy.observe(Commit(0, (1,)))
    n_plain = policy.plan([free])
    assert n_plain > 0
    assert not policy.plan([Wish(0, SpeculativeParams(), 20, is_forced=True)])
    assert not policy.asks(SUFFIX)
    assert policy.asks(GRAMMAR)
    policy.observe(Drafted(GRAMMAR, [guess(GRAMMAR, 4)], 1e-5))
    assert policy.choose()[0].draft.ids == (0, 1, 2, 3)
    assert policy.plan([free]) == n_plain, "the others go on sleeping"


def test_what_is_forced_does_not_keep_the_model_from_drafting_further() -> None:
    policy = auto()
    assert not policy.plan([Wish(0, SpeculativeParams(), 20, is_forced=True)])
    assert policy.asks(GRAMMAR)
    policy.observe(Drafted(GRAMMAR, [guess(GRAMMAR, 4)], 1e-5))
    assert policy.asks(MODEL)
