"""What `uad inspect --measure` reckons: divergences, accepted tokens, and the replay of fixed draft lengths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from agreement import Prediction, accepted, divergence, predict
from hypothesis import given
from hypothesis import strategies as st

from uad.engine.policy.cost import CostCurve, CostSample

WEIGHTS = st.lists(st.floats(1e-6, 10), min_size=2, max_size=8)


@given(st.data())
def test_divergence_is_zero_for_the_same_and_positive_otherwise(data):
    p = np.array(data.draw(WEIGHTS))
    q = np.array(data.draw(st.lists(st.floats(1e-6, 10), min_size=len(p), max_size=len(p))))
    assert divergence(p, 3 * p) == pytest.approx(0, abs=1e-9)
    want = sum(a * math.log(a / b) for a, b in zip(p / p.sum(), q / q.sum(), strict=True))
    assert divergence(p, q) == pytest.approx(want, abs=1e-6)
    assert divergence(p, q) >= 0


def test_divergence_of_nothing_and_of_the_impossible():
    assert divergence(np.array([]), np.array([])) == 0.0
    assert divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(math.log(1e12))
    assert divergence(np.array([1.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(math.log(2))


@st.composite
def cuts(draw):
    length = draw(st.integers(1, 12))

    def spans():
        ends = [*sorted(draw(st.sets(st.integers(1, length)) if length > 1 else st.just({1})) - {length}), length]
        return list(zip([0, *ends], ends, strict=False))

    target, draft = spans(), spans()
    return target, draft, {start for start, _ in draft if draw(st.booleans())}


@given(cuts())
def test_a_token_is_accepted_if_all_that_lies_over_it_was_guessed(case):
    target, draft, wrong = case
    right = {at for start, end in draft if start not in wrong for at in range(start, end)}
    assert accepted(target, draft, wrong) == [all(at in right for at in range(*span)) for span in target]


def test_a_draft_token_from_before_the_text_is_no_guess():
    assert accepted([(0, 2), (2, 4)], [(-1, 1), (1, 2), (2, 4)], set()) == [False, True]
    assert accepted([(0, 2)], [], set()) == [False]


FLAT = CostCurve([CostSample(1, 0, 10.0), CostSample(32, 0, 10.0)])
LINEAR = CostCurve([CostSample(1, 0, 10.0), CostSample(2, 0, 20.0)])
FREE, DEAR = CostCurve([CostSample(1, 0, 1e-9)]), CostCurve([CostSample(1, 0, 11.0)])


def test_a_perfect_draft_on_a_flat_machine_gains_its_length():
    found = predict([[True] * 900], 1.5, FLAT, FREE, 8)
    assert (found.length, found.per_round) == (8, 9.0)
    assert found.speed_up == pytest.approx(9)


@pytest.mark.parametrize(
    ("run", "target", "draft"),
    [([True] * 100, LINEAR, FREE), ([False] * 100, FLAT, FREE), ([True, False] * 50, FLAT, DEAR), ([], FLAT, FREE)],
)
def test_what_does_not_pay_is_not_drafted(run, target, draft):
    assert predict([run], 1.0, target, draft, 8) == Prediction(length=0, speed_up=1.0, per_round=1.0)


def test_the_replay_counts_rounds_as_they_would_be():
    """Runs of two, then a token of the target: length 2 takes all of it, and costs a pass of three rows and two draft
    steps.
    """
    steps = CostCurve([CostSample(n, 0, 10.0 + n) for n in range(1, 10)])
    found = predict([[True, True, False] * 30], 1.0, steps, CostCurve([CostSample(1, 0, 2.0)]), 6)
    assert (found.length, found.per_round) == (2, 3.0)
    assert found.speed_up == pytest.approx(3 * 11 / (13 + 2 * 2))
