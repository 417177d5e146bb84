"""Two drafts of one text: agreement and dispute, by Bayes' rule and by what a round submits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator import FLAT, MEMORY_BOUND

from uad.policy.auto import AutoPolicy
from uad.policy.cost import CostCurve, CostSample
from uad.policy.evidence import beside, first_difference
from uad.policy.machine import Machine
from uad.policy.protocol import Wish
from uad.policy.text import DISPUTED
from uad.types import Commit, Draft, Origin, SpeculativeParams

DRAFTS = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1)), max_size=6).map(lambda rows: ([i for i, _ in rows], [p for _, p in rows]))


def weighed(ids, chances, its_ids, its_chances, **trust):
    return beside(chances, its_chances, first_difference(ids, its_ids), **trust)


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
    assert weighed([1], [p], [1], [its_p])[0] == pytest.approx(seen[True][0] / seen[True][1], abs=0.02)
    assert weighed([1], [p], [2], [its_p])[0] == pytest.approx(seen[False][0] / seen[False][1], abs=0.02)


@given(DRAFTS, DRAFTS)
def test_what_agreement_and_dispute_may_do(mine, its):
    """Agreement lowers nothing, rivals share one probability, and what lies behind the first difference stays as it was."""
    (ids, chances), (its_ids, its_chances) = mine, its
    after, its_after = weighed(ids, chances, its_ids, its_chances), weighed(its_ids, its_chances, ids, chances)
    n = next((k for k, (a, b) in enumerate(zip(ids, its_ids, strict=False)) if a != b), min(len(ids), len(its_ids)))
    assert len(after) == len(chances)
    assert all(new >= min(old, 0.999) - 1e-12 for old, new in zip(chances[:n], after, strict=False))
    if n < min(len(ids), len(its_ids)):
        assert after[n] + its_after[n] <= 1
        assert after[n + 1 :] == chances[n + 1 :]
    else:
        assert after[n:] == chances[n:]


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0.05, 1))
def test_what_was_learned_of_disputes_shifts_from_one_to_the_other(p, its_p, trust):
    (mine,), (its,) = weighed([1], [p], [2], [its_p], trust=trust), weighed([2], [its_p], [1], [p], its_trust=trust)
    assert mine <= weighed([1], [p], [2], [its_p])[0] + 1e-12
    assert its >= weighed([2], [its_p], [1], [p])[0] - 1e-12
    assert mine + its <= 1


def knowing(cost) -> AutoPolicy:
    """A policy that takes both drafters' beliefs as they are."""
    curve = CostCurve([CostSample(n, 0, cost(n)) for n in range(1, 65)])
    one = AutoPolicy(Machine(curve, CostCurve([CostSample(1, 0, 0.1)])))
    rng = random.Random(4)
    for kind in ("draft-simple", "suffix"):
        for _ in range(8000):
            belief = rng.random()
            one.calibration(kind).observe(belief, rng.random() < belief)
    return one


def submitted(one: AutoPolicy, copy: Draft, model: Draft) -> Draft:
    round_ = one.plan([Wish(0, SpeculativeParams(), 40)])
    assert round_ is not None
    for origin, draft in ((Origin.SUFFIX, copy), (Origin.MODEL, model)):
        assert round_.asks(origin)
        round_.proposed(origin, [draft], 1e-4)
    return round_.choose()[0].draft


@pytest.mark.parametrize(("p", "origin"), [(0.97, Origin.MODEL), (0.3, Origin.SUFFIX)])
def test_where_two_guesses_differ_the_surer_first_id_counts(p, origin):
    """A long copy promises more ids than the few that the model is sure of, but none of them where the model is right."""
    one = knowing(FLAT)
    one.begin(0, 10)
    copy = Draft(tuple(range(20)), (0.75,) + (0.97,) * 19, Origin.SUFFIX, kind="suffix")
    assert submitted(one, copy, Draft((7, *range(1, 8)), (p,) * 8)).origin is origin


def test_a_copy_that_loses_its_disputes_is_not_preferred_for_long():
    """Right where both agree, which says nothing about where they differ; the next text begins with what this one taught."""
    one = knowing(MEMORY_BOUND)
    copy, model = Draft((1, 2, 3), (0.97, 0.9, 0.9), Origin.SUFFIX, kind="suffix"), Draft((1, 7, 8), (0.97, 0.75, 0.75))
    won = []
    for _ in range(3):
        one.begin(0, 10)
        origins = []
        for _ in range(12):
            origins.append(submitted(one, copy, model).origin)
            one.committed(Commit(0, (1, 7, 8, 9), n_drafted=3, n_accepted=3))
        won.append(origins.count(Origin.MODEL))
        one.end(0)
    assert 6 <= won[0] < 12, "at first the copy is believed"
    assert won[1:] == [12, 12]


def test_a_dispute_is_settled_by_the_text_only_where_it_comes_to_it():
    one = knowing(MEMORY_BOUND)
    copy, model = Draft((1, 2, 3), (0.97, 0.9, 0.9), Origin.SUFFIX, kind="suffix"), Draft((1, 7, 8), (0.97, 0.75, 0.75))

    def shift(*commits: tuple[int, ...]) -> float:
        one.begin(0, 10)
        submitted(one, copy, model)
        for ids in commits:
            one.committed(Commit(0, ids))
        return one.text(0).uses[Origin.SUFFIX].odds_of(DISPUTED).shift

    assert shift((5,)) == shift((5, 7)) == shift((1,)) == shift() == 0, "the text went another way, or has not come so far"
    assert shift((1, 7)) == pytest.approx(shift((1,), (7,)), rel=0.05)
    assert shift((1,), (9,)) < 0, "neither was right"
    assert shift((1, 2)) == pytest.approx(shift((1,), (2,)), rel=0.05)
    assert shift((1, 7)) < 0 < shift((1, 2))
