"""Two drafts of one text: agreement and dispute, by Bayes' rule and by what a round submits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator import FLAT

from uad.policy.auto import AutoPolicy
from uad.policy.cost import CostCurve, CostSample
from uad.policy.evidence import beside
from uad.policy.machine import Machine
from uad.policy.protocol import Wish
from uad.types import Draft, Origin, SpeculativeParams

DRAFTS = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1)), max_size=6).map(lambda rows: ([i for i, _ in rows], [p for _, p in rows]))


@pytest.mark.parametrize(("p", "its_p"), [(0.8, 0.85), (0.3, 0.9), (0.95, 0.4), (0.5, 0.5)])
def test_bayes_on_two_witnesses_who_err_independently(p, its_p):
    """Of wrong guesses of both, a fifth are alike."""
    rng = random.Random(1)
    seen = {True: [0, 0], False: [0, 0]}
    for _ in range(60_000):
        right, its = rng.random() < p, rng.random() < its_p
        alike = (right and its) or (not right and not its and rng.random() < 0.2)
        seen[alike][0] += right
        seen[alike][1] += 1
    assert beside([1], [p], [1], [its_p])[0] == pytest.approx(seen[True][0] / seen[True][1], abs=0.02)
    assert beside([1], [p], [2], [its_p])[0] == pytest.approx(seen[False][0] / seen[False][1], abs=0.02)


@given(DRAFTS, DRAFTS)
def test_what_agreement_and_dispute_may_do(mine, its):
    """Agreement lowers nothing, rivals share one probability, and what lies behind the first difference stays as it was."""
    (ids, chances), (its_ids, its_chances) = mine, its
    after, its_after = beside(ids, chances, its_ids, its_chances), beside(its_ids, its_chances, ids, chances)
    n = next((k for k, (a, b) in enumerate(zip(ids, its_ids, strict=False)) if a != b), min(len(ids), len(its_ids)))
    assert len(after) == len(chances)
    assert all(new >= min(old, 0.999) - 1e-12 for old, new in zip(chances[:n], after, strict=False))
    if n < min(len(ids), len(its_ids)):
        assert after[n] + its_after[n] <= 1
        assert after[n + 1 :] == chances[n + 1 :]
    else:
        assert after[n:] == chances[n:]


@pytest.mark.parametrize(("model", "submitted"), [(0.97, Origin.MODEL), (0.3, Origin.SUFFIX)])
def test_where_two_guesses_differ_the_surer_first_id_counts(model, submitted):
    """A long copy promises more ids than the few that the model is sure of, but none of them where the model is right."""
    curve = CostCurve([CostSample(n, 0, FLAT(n)) for n in range(1, 65)])
    one = AutoPolicy(Machine(curve, CostCurve([CostSample(1, 0, 0.1)])))
    rng = random.Random(4)
    for kind in ("draft-simple", "suffix"):
        for _ in range(8000):
            belief = rng.random()
            one.calibration(kind).observe(belief, rng.random() < belief)
    one.begin(0, 10)
    round_ = one.plan([Wish(0, SpeculativeParams(), 40)])
    assert round_ is not None
    offers = {Origin.SUFFIX: Draft(tuple(range(20)), (0.75,) + (0.97,) * 19, Origin.SUFFIX, kind="suffix")}
    offers[Origin.MODEL] = Draft((7, *range(1, 8)), (model,) * 8)
    for origin, draft in offers.items():
        assert round_.asks(origin)
        round_.proposed(origin, [draft], 1e-4)
    assert round_.choose()[0].draft.origin is submitted
