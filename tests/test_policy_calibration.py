"""Beliefs become probabilities: from nothing, from much, and when the draft changes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uad.policy.calibration import Calibration, bin_of

beliefs = st.floats(0, 1)


@given(st.lists(st.tuples(beliefs, st.booleans()), max_size=200), beliefs)
def test_always_a_probability(observations, belief):
    one = Calibration()
    for said, right in observations:
        one.observe(said, right)
    assert 0.0 <= one.probability(belief) <= 1.0
    assert all(0.0 <= row.observed <= 1.0 for row in one.reliability())


def test_an_unknown_draft_is_not_taken_at_its_word():
    one = Calibration()
    assert one.probability(0.99) < 0.98
    assert one.probability(0.6) < 0.5
    assert one.is_unknown
    for _ in range(8):
        one.observe(0.9, True)
    assert not one.is_unknown


@pytest.mark.parametrize("truth", [lambda b: b, lambda b: b**3, lambda b: 1 - (1 - b) ** 2], ids=["right", "overconfident", "modest"])
def test_it_learns_the_truth(truth):
    rng, one = random.Random(1), Calibration()
    for _ in range(6000):
        belief = rng.random()
        one.observe(belief, rng.random() < truth(belief))
    for belief in (0.25, 0.55, 0.75, 0.9, 0.97):
        assert one.probability(belief) == pytest.approx(truth(belief), abs=0.1)


def test_a_liar_is_found_out_within_ten_ids():
    one = Calibration()
    for _ in range(10):
        one.observe(0.96, False)
    assert one.probability(0.96) < 0.15
    assert one.probability(0.9) < 0.5, "what it says elsewhere is doubted, too"


def test_it_forgets():
    one = Calibration()
    for _ in range(3000):
        one.observe(0.9, False)
    for _ in range(1500):
        one.observe(0.9, True)
    assert one.probability(0.9) > 0.9


@given(st.lists(st.tuples(beliefs, st.integers(0, 6)), max_size=4), st.lists(beliefs, min_size=1, max_size=6), st.integers(0, 6))
def test_a_draft_teaches_what_its_ids_teach_one_by_one(earlier, draft, n_right):
    together, single = Calibration(), Calibration()
    for belief, n in earlier:
        for one in (together, single):
            one.observe(belief, n > 3)
    judged = draft[: n_right + 1]
    expected = together.judge([bin_of(belief) for belief in judged], n_right)
    for i, belief in enumerate(judged):
        assert expected[i] == pytest.approx(single.probability(belief))
        single.observe(belief, i < n_right)
    assert together.n_judged == single.n_judged
    for belief in (0.01, 0.5, 0.99, 1.0):
        assert together.probability(belief) == pytest.approx(single.probability(belief))


def test_a_text_has_odds_of_its_own_within_bounds():
    odds = TextOdds()
    for _ in range(100):
        odds.judge([0.9], 0)
    assert odds.shift == -4.0
    for _ in range(400):
        odds.judge([0.5], 1)
    assert odds.shift == 1.0


def test_a_text_that_refuses_what_was_likely_is_doubted_though_the_unlikely_is_refused_as_expected():
    """A ratio of rejections to expected ones would stay near 1: nine in ten of them were expected."""
    odds = TextOdds()
    for _ in range(12):
        odds.judge([0.5], 0)
        for _ in range(3):
            odds.judge([0.03], 0)
    p = 0.5 * odds.value / (1 + 0.5 * (odds.value - 1))
    assert p < 0.15


@given(st.lists(st.tuples(st.lists(beliefs, min_size=1, max_size=6), st.integers(0, 6)), max_size=30))
def test_odds_of_a_text_stay_finite_and_move_towards_what_was_seen(judged):
    odds = TextOdds()
    for predicted, n_right in judged:
        before = odds.shift
        odds.judge(predicted[: n_right + 1], n_right)
        if n_right >= len(predicted):
            assert odds.shift >= before
        assert 0.0 < odds.value < 10.0


def test_a_text_begins_with_the_odds_of_those_before_it():
    standing = Standing()
    for _ in range(10):
        odds = standing.odds("draft-simple", is_drawn=False)
        for _ in range(20):
            odds.judge([0.6], 0)
        standing.ended("draft-simple", False, odds)
    assert standing.odds("draft-simple", is_drawn=False).value < 0.2
    assert standing.odds("suffix", is_drawn=False).value == 1.0


def test_texts_drawn_by_lot_have_odds_of_their_own_from_the_second_on():
    standing = Standing()
    for is_drawn, n_right in ((False, 1), (True, 0), (False, 1), (True, 0)):
        before = standing.odds("draft-simple", is_drawn).shift
        odds = standing.odds("draft-simple", is_drawn)
        for _ in range(20):
            odds.judge([0.6], n_right)
        standing.ended("draft-simple", is_drawn, odds)
        assert (standing.odds("draft-simple", is_drawn).shift < before) is is_drawn
    assert standing.odds("draft-simple", is_drawn=False).value > 1.2
    assert standing.odds("draft-simple", is_drawn=True).value < 0.8
    first = Standing()
    first.ended("draft-simple", False, odds)
    assert first.odds("draft-simple", is_drawn=True).value < 1.0, "until then those of the others"


def test_a_variety_begins_with_what_is_known_of_its_kind():
    kind = Calibration()
    variety = Calibration(parent=kind)
    assert variety.is_unknown
    for i in range(300):
        kind.observe(0.7, i % 10 != 0)
    assert not variety.is_unknown
    assert variety.probability(0.7) == pytest.approx(kind.probability(0.7), abs=0.02)
    for _ in range(40):
        variety.observe(0.7, False)
    assert variety.probability(0.7) < 0.2 < kind.probability(0.7)


def test_three_right_ones_make_a_kind_known_and_a_wrong_one_takes_eight():
    right, wrong = Calibration(), Calibration()
    for _ in range(3):
        right.observe(0.9, True)
    assert not right.is_unknown
    wrong.observe(0.9, False)
    for _ in range(6):
        wrong.observe(0.9, True)
    assert wrong.is_unknown
    wrong.observe(0.9, True)
    assert not wrong.is_unknown


def test_the_outlook_knows_that_sureness_lasts():
    """Drafts are sure for a while or not at all: behind a sure id many are to come, though the mean of all beliefs is low."""
    rng, one = random.Random(2), Calibration()
    for _ in range(400):
        sure = rng.random() < 0.5
        draft = [0.996 if sure else 0.25] * 10
        one.drafted([bin_of(belief) for belief in draft], TextRun())
        for belief in draft:
            right = rng.random() < belief
            one.observe(belief, right)
            if not right:
                break
    assert one.outlook.ahead(USUAL, bin_of(0.996))[HORIZON - 1] > 0.8 * HORIZON
    assert one.outlook.ahead(USUAL, bin_of(0.25))[HORIZON - 1] < 1.0


@given(st.lists(st.lists(beliefs, max_size=12), max_size=40), beliefs)
def test_the_outlook_never_falls_and_never_exceeds_one_id_per_id(drafts, belief):
    one = Calibration()
    for draft in drafts:
        one.drafted([bin_of(belief) for belief in draft], TextRun())
    ahead = one.outlook.ahead(USUAL, bin_of(belief))
    steps = [b - a for a, b in zip([0.0, *ahead], ahead, strict=False)]
    assert all(-1e-9 <= step <= 1 + 1e-9 for step in steps)
