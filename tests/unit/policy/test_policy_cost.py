"""Cost curves: what was measured, what is in between, and how they follow the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.simulator import jagged

from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine


def curve(cost, sizes=range(1, 17), depth=0) -> CostCurve:
    return CostCurve([CostSample(n, depth, cost(n)) for n in sizes])


def test_steps_are_kept_as_measured():
    one = curve(jagged)
    assert [one.ms(n) for n in range(1, 17)] == [jagged(n) for n in range(1, 17)]


def test_between_and_behind_measured_sizes_it_goes_on_straight():
    one = curve(lambda n: 10.0 + 2 * n, sizes=(1, 4, 8))
    assert one.ms(6) == 22.0
    assert one.ms(20) == 50.0


def test_behind_measured_sizes_the_noise_of_the_last_ones_is_not_carried_on():
    cost = {**{n: 10.0 * n for n in range(1, 41)}, 39: 440.0, 40: 380.0}
    assert curve(cost.__getitem__, sizes=cost).ms(68) == pytest.approx(680, rel=0.1)
    assert curve(lambda n: 10.0, sizes=range(1, 9)).ms(20) == 10.0
    assert curve(lambda n: 10.0 + n, sizes=(1, 16)).ms(20) == 30.0, "two sizes are a line"


@given(st.sets(st.integers(1, 64), min_size=1), st.integers(1, 200))
def test_any_sizes_give_a_cost_for_any_number_of_rows(sizes, n):
    one = curve(lambda n: 5.0 + n, sizes=sorted(sizes))
    assert 6.0 <= one.ms(n) <= 6.0 * max(n, 64)


def test_one_size_alone_promises_no_free_lunch():
    assert curve(lambda n: 10.0, sizes=(1,)).ms(9) == 50.0


def test_sizes_that_were_never_seen_lie_between_those_that_were():
    one = curve(lambda n: 10.0, sizes=(1,))
    one.observe(5, 0, 14.0)
    assert one.ms(5) == pytest.approx(14.0)
    assert one.ms(3) == pytest.approx(12.0)
    assert one.ms(9) == pytest.approx(18.0)
    one.observe(9, 0, 16.0)
    assert one.ms(7) == pytest.approx(15.0)
    assert one.ms(3) == pytest.approx(12.0)


def test_one_slow_decode_of_a_size_of_which_nothing_is_known_may_be_a_disturbed_one():
    one = curve(lambda n: 10.0, sizes=(1,))
    one.observe(4, 0, 125.0)
    assert one.ms(4) == pytest.approx(1.2 * 25.0)
    one.observe(4, 0, 15.0)
    assert one.ms(4) == pytest.approx(15.0)
    for _ in range(2):
        one.observe(8, 0, 90.0)
    assert one.ms(8) == pytest.approx(90.0), "two alike are believed"
    assert one.ms(1) == 10.0


def test_a_size_that_was_measured_tells_nothing_of_its_neighbours():
    one = curve(lambda n: 10.0 + n, sizes=(1, 8, 16))
    before = [one.ms(n) for n in (4, 12, 20)]
    one.observe(8, 0, 18.0)
    assert [one.ms(n) for n in (4, 12, 20)] == before


def test_several_samples_count_as_their_median():
    assert CostCurve([CostSample(1, 0, ms) for ms in (5.0, 4.0, 90.0)]).ms(1) == 5.0


def test_depths_are_mixed():
    one = CostCurve([CostSample(n, depth, n * (1 + depth / 100)) for n in (1, 8) for depth in (0, 100, 300)])
    assert one.ms(4, 50) == pytest.approx(6.0)
    assert one.ms(4, 200) == pytest.approx(12.0)
    assert one.ms(4, 10**6) == one.ms(4, 300)


def test_no_sample_no_curve():
    with pytest.raises(ValueError, match="sample"):
        CostCurve([])


def assert_sizes_stay_alike(factor, sizes):
    """After decodes of these sizes that are all slower by one factor, what two sizes cost beside each other is nearly
    what it was.
    """
    one = curve(jagged)
    for n in sizes:
        one.observe(n, 0, factor * jagged(n))
    for n in (2, 8, 16):
        assert one.ms(n) / one.ms(1) == pytest.approx(jagged(n) / jagged(1), rel=0.2)


@given(st.floats(1.05, 20), st.lists(st.integers(1, 16), min_size=60, max_size=120))
def test_a_slow_neighbour_changes_all_sizes_alike(factor, sizes):
    assert_sizes_stay_alike(factor, sizes)


@pytest.mark.parametrize("factor", [1.3, 3.0, 20.0])
@pytest.mark.parametrize("sizes", [[1] * 60, [1] * 41 + [2] * 39, [2] * 30 + [1] * 30, [8] * 50 + [1] * 10])
def test_nor_does_one_while_only_some_sizes_are_seen(factor, sizes):
    assert_sizes_stay_alike(factor, sizes)


def test_the_machine_is_followed_within_some_tens_of_decodes():
    one = curve(jagged)
    for _ in range(40):
        one.observe(8, 0, 3 * jagged(8))
    assert one.ms(1) == pytest.approx(3 * jagged(1), rel=0.15)


def test_one_outlier_counts_for_little():
    one = curve(jagged)
    one.observe(8, 0, 100 * jagged(8))
    assert one.ms(8) < 1.1 * jagged(8)


def test_a_size_that_was_never_measured_is_learned_at_once():
    one = curve(lambda n: 10.0 + 10 * n, sizes=(1, 16))
    for _ in range(4):
        one.observe(8, 0, 30.0)
    assert one.ms(8) == pytest.approx(30.0, rel=0.15)
    assert one.ms(1) == pytest.approx(20.0, rel=0.05)


def test_a_size_that_became_slower_alone_is_learned_slowly():
    one = curve(jagged)
    for _ in range(200):
        for n in (1, 2, 4, 8):
            one.observe(n, 0, jagged(n) * (1.5 if n == 8 else 1.0))
    assert one.ms(8) / one.ms(1) == pytest.approx(1.5 * jagged(8) / jagged(1), rel=0.1)


def test_padding_and_passes_are_part_of_a_rounds_cost():
    machine = Machine(curve(lambda n: float(n), range(1, 65)), n_ubatch=60, least=8)
    assert machine.group_ms(1, 3, 0) == 8.0
    assert machine.group_ms(4, 5, 0) == 20.0
    assert machine.group_ms(4, 20, 0) == 60.0 + 20.0
    each = Machine(curve(lambda n: float(n), range(1, 65)), n_ubatch=60, least=8, of_each=True)
    assert each.group_ms(4, 5, 0) == 32.0


def deep(n: int, depth: int) -> float:
    """A machine on which a second row is free where the text is short, and attention reads each position for each row
    and once for all.
    """
    return 97 * (0.94 if 1 < n < 7 else 1.0 + max(n - 6, 0) / 16) + depth * (0.02 + 0.03 * n)


@pytest.mark.parametrize("n", [2, 5, 12])
def test_one_decode_behind_a_long_text_tells_what_rows_cost_there(n):
    """Only depth 0 was measured: a second row would be taken for free for ever, since it seems that single rows became
    slower, too.
    """
    one = curve(lambda n: deep(n, 0))
    assert one.ms(2, 1300) < one.ms(1, 1300)
    one.observe(n, 1300, deep(n, 1300))
    for k in (1, 2, 5, 12):
        assert one.ms(k, 1300) == pytest.approx(deep(k, 1300), rel=0.2)
        assert one.ms(k, 0) == pytest.approx(deep(k, 0), rel=0.03), "shorter texts cost what they did"
    for k in (1, 2, 1, 2, 1):
        one.observe(k, 1300, deep(k, 1300))
    assert one.ms(2, 1300) - one.ms(1, 1300) == pytest.approx(deep(2, 1300) - deep(1, 1300), rel=0.15)
    assert one.ms(8, 2600) == pytest.approx(deep(8, 2600), rel=0.15), "and longer ones what they will"


def test_a_slow_neighbour_in_a_long_text_changes_no_decision():
    one = curve(lambda n: deep(n, 0))
    for factor in (1, 2, 1):
        for k in (1, 4, 8) * 12:
            one.observe(k, 1300, factor * deep(k, 1300))
        assert one.ms(8, 1300) == pytest.approx(factor * deep(8, 1300), rel=0.15)
        assert one.ms(8, 1300) / one.ms(1, 1300) == pytest.approx(deep(8, 1300) / deep(1, 1300), rel=0.1)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30_000), st.floats(0.1, 10)), max_size=60))
def test_whatever_decodes_take_costs_stay_positive_and_do_not_fall_with_depth(seen):
    one = curve(lambda n: deep(n, 0))
    for n, depth, factor in seen:
        one.observe(n, depth, factor * deep(n, depth))
    assert 0 < one.ms(1, 0) < float("inf")
    assert one.ms(4, 100) <= one.ms(4, 5000) < float("inf")


def rounds(costs, times, n=40):
    """Rounds of four rows and three single ones, each taking times[i] of its usual milliseconds."""
    for _ in range(n):
        for size, ratio in zip((4, 1, 1, 1), times, strict=True):
            costs.observe(size, 0, ratio * (10 + size))


def test_what_a_change_of_rows_costs_is_no_matter_of_single_rows():
    costs = curve(lambda n: 10 + n)
    rounds(costs, (1.0, 1.4, 1.6, 1.0))
    assert costs.ms(1) == pytest.approx(11, rel=0.02)
    assert costs.change_ms() == pytest.approx(11 * (0.4 + 0.6), rel=0.05)


def test_single_rows_that_become_dearer_behind_themselves_are_no_change_of_rows():
    costs = curve(lambda n: 10 + n)
    rounds(costs, (1.3, 1.3, 1.3, 1.3), n=100)
    assert costs.ms(1) == pytest.approx(1.3 * 11, rel=0.05)
    assert costs.change_ms() == 0


def test_a_change_of_rows_is_part_of_the_first_round_with_drafts():
    costs = curve(lambda n: 10 + n)
    machine = Machine(costs)
    rounds(costs, (1.0, 1.4, 1.6, 1.0))
    machine.decoded([(1, 1)], 0, 11.0)
    first = machine.table((1,), 0).upto(5)
    machine.decoded([(1, 4)], 0, 14.0)
    next_ = machine.table((1,), 0).upto(5)
    assert first[1] == pytest.approx(next_[1])
    assert [a - b for a, b in zip(first[2:], next_[2:], strict=True)] == pytest.approx([costs.change_ms()] * 4, rel=0.1)
