"""Beliefs become probabilities: from nothing, from much, and when the draft changes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uad.engine.policy.calibration import Calibration, bin_of

beliefs = st.floats(0, 1)
N_BINS = len(Calibration().n)


def observe(one: Calibration, belief: float, right: bool) -> None:
    """A draft of one id."""
    one.judge([bin_of(belief)], int(right))


@given(st.lists(st.tuples(st.lists(beliefs, max_size=6), st.integers(0, 6)), max_size=100), beliefs)
def test_always_a_probability(drafts, belief):
    one = Calibration()
    for said, n_right in drafts:
        bins = [bin_of(p) for p in said]
        one.drafted(bins)
        one.judge(bins, min(n_right, len(bins)))
    assert 0.0 <= one.chance(bin_of(belief)) <= 1.0
    assert 0.0 <= one.next_chance(bin_of(belief)) <= 1.0
    for n, accepted, predicted in zip(one.n, one.accepted, one.predicted, strict=True):
        assert 0.0 <= accepted <= n
        assert 0.0 <= predicted <= n


@given(beliefs, beliefs)
def test_bins_are_in_the_order_of_beliefs(a, b):
    low, high = sorted((a, b))
    assert 0 <= bin_of(low) <= bin_of(high) < N_BINS


def test_near_certainty_bins_are_narrow():
    assert len({bin_of(belief) for belief in (0.9, 0.96, 0.985, 0.993, 0.998, 0.9995, 0.9999)}) == 7
    assert (bin_of(0.0), bin_of(1.0)) == (0, N_BINS - 1)


def test_an_unknown_draft_is_not_taken_at_its_word():
    one = Calibration()
    assert 0.5 < one.chance(bin_of(0.99)) < 0.98
    assert one.chance(bin_of(0.6)) < 0.5


def test_surer_ids_of_an_unknown_draft_are_likelier():
    one = Calibration()
    chances = [one.chance(i) for i in range(N_BINS)]
    assert chances == sorted(chances)
    assert chances[0] < 0.2


@pytest.mark.parametrize(
    "truth", [lambda b: b, lambda b: b**3, lambda b: 1 - (1 - b) ** 2], ids=["right", "overconfident", "modest"]
)
def test_it_learns_the_truth(truth):
    rng, one = random.Random(1), Calibration()
    for _ in range(6000):
        belief = rng.random()
        observe(one, belief, rng.random() < truth(belief))
    for belief in (0.25, 0.55, 0.75, 0.9, 0.97):
        assert one.chance(bin_of(belief)) == pytest.approx(truth(belief), abs=0.1)


def test_a_draft_that_is_sure_and_wrong_is_found_out_within_ten_ids():
    one = Calibration()
    for _ in range(10):
        observe(one, 0.96, False)
    assert one.chance(bin_of(0.96)) < 0.15
    assert one.chance(bin_of(0.9)) < 0.5, "what it says elsewhere is doubted, too"


def test_one_bin_does_not_forget_what_others_did_not_contradict():
    one = Calibration()
    for _ in range(300):
        observe(one, 0.9, True)
    for _ in range(3000):
        observe(one, 0.15, False)
    assert one.chance(bin_of(0.9)) > 0.9
    assert one.chance(bin_of(0.15)) < 0.05


@given(
    st.lists(st.tuples(beliefs, st.booleans()), max_size=4),
    st.lists(beliefs, min_size=1, max_size=6),
    st.integers(0, 6),
)
def test_a_draft_teaches_nearly_what_its_ids_teach_one_by_one(earlier, draft, n_right):
    """What was accepted and seen is counted alike; the line behind it moves once per draft."""
    together, single = Calibration(), Calibration()
    for belief, right in earlier:
        for one in (together, single):
            observe(one, belief, right)
    together.judge([bin_of(belief) for belief in draft], n_right)
    for i, belief in enumerate(draft[: n_right + 1]):
        observe(single, belief, i < n_right)
    assert together.n == pytest.approx(single.n)
    assert together.accepted == pytest.approx(single.accepted)
    for belief in (0.01, 0.5, 0.99, 1.0):
        assert together.chance(bin_of(belief)) == pytest.approx(single.chance(bin_of(belief)), abs=0.1)


def test_nothing_is_learned_of_ids_behind_the_first_wrong_one():
    one, shorter = Calibration(), Calibration()
    one.judge([bin_of(p) for p in (0.9, 0.8, 0.99, 0.99)], 1)
    shorter.judge([bin_of(p) for p in (0.9, 0.8)], 1)
    assert one == shorter
    assert sum(one.n) == 2


def test_what_was_predicted_can_be_compared_with_what_was_seen():
    rng, one = random.Random(3), Calibration()
    for _ in range(4000):
        observe(one, rng.uniform(0.5, 0.99), rng.random() < 0.7)
    rows = [row for row in zip(one.n, one.accepted, one.predicted, strict=True) if row[0] > 100]
    assert len(rows) >= 5
    for n, accepted, predicted in rows:
        assert accepted / n == pytest.approx(0.7, abs=0.1)
        assert predicted / n == pytest.approx(accepted / n, abs=0.08)


def test_what_follows_a_sure_id_is_known_from_drafts_right_or_wrong():
    """Drafts are sure for a while or not at all."""
    rng, one = random.Random(2), Calibration()
    sure, unsure = bin_of(0.996), bin_of(0.25)
    assert one.next_chance(sure) == one.chance(sure), "before anything is known"
    for _ in range(400):
        p, i = (0.996, sure) if rng.random() < 0.5 else (0.25, unsure)
        one.drafted([i] * 10)
        one.judge([i] * 10, next((k for k in range(10) if rng.random() > p), 10))
    assert one.next_chance(sure) > 0.95
    assert one.next_chance(unsure) < 0.3
    for _ in range(100):
        one.drafted([sure, unsure])
    assert one.next_chance(sure) < 0.5
