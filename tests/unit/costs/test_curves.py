"""Cost curves, measured on scripted machines."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uad.base.errors import ConfigError
from uad.engine.policy.cost import CostSample
from uad.runtime.costs import profile
from uad.runtime.costs.profile import alike, as_at_rest, disturbance, full, medians, plausible_ids, quick, spread


class Machine:
    """A context whose decodes take scripted times; `slow(i)` multiplies the time of the i-th timed decode."""

    def __init__(self, ms, n_ctx=4096, n_batch=2048, n_alike=60, slow=lambda i: 1.0):
        self.ms, self.slow = ms, slow
        self.n_ctx, self.n_batch, self.n_alike, self.n_vocab = n_ctx, n_batch, n_alike, 1000
        self.now, self.held, self.sizes = 100.0, 0, []

    def clock(self):
        return self.now

    def decode(self, rows):
        (row,) = rows
        assert row.pos == self.held, "a gap or an overlap in the cache"
        assert all(0 <= id_ < self.n_vocab for id_ in row.ids)
        assert self.held + len(row.ids) <= self.n_ctx
        if row.n_logits:
            assert row.n_logits == len(row.ids)
            self.now += self.ms(len(row.ids), row.pos) * self.slow(len(self.sizes)) / 2000
            self.sizes.append(len(row.ids))
        self.held += len(row.ids)

    def rows(self):
        self.now += self.ms(self.sizes[-1], self.held - self.sizes[-1]) * self.slow(len(self.sizes) - 1) / 2000
        return np.zeros((1, 1), np.float32)

    def keep(self, seq): ...

    def take_back(self, seq, n):
        self.held = n
        return n

    def clear(self, seq):
        self.held = 0


def linear(single, more):
    return lambda n, depth: single * (1 + more * (n - 1)) + depth / 1000


@given(single=st.floats(0.01, 5000), more=st.floats(0, 1), seconds=st.sampled_from([0.3, 1.2, 2.0]))
def test_a_quick_measurement_keeps_its_time_and_always_knows_one_row(single, more, seconds):
    machine = Machine(linear(single, more))
    found = quick(machine, range(1, 17), seconds, machine.clock)
    ones = [sample.ms for sample in found if sample.n == 1]
    assert len(ones) >= (1 if single / 1e3 > seconds / 2 else 3)
    assert machine.now - 100 <= max(seconds, 6.001 * single / 1e3)
    assert machine.held == 0
    assert all(sample.depth == 0 and sample.ms == pytest.approx(linear(single, more)(sample.n, 0)) for sample in found)


def test_the_most_telling_sizes_come_first():
    machine = Machine(linear(1, 0.5))
    quick(machine, range(1, 25), 2.0, machine.clock)
    # a cold one, three of one row, a cold one of several, and the first of the rounds behind two that settle
    assert machine.sizes[:9] == [1, 1, 1, 1, 1, 8, 1, 1, 1]
    assert machine.sizes[9:17] == [8, 4, 16, 2, 3, 6, 12, 5]


def test_a_fast_model_is_measured_often_a_slow_one_once():
    fast, slow = Machine(linear(0.05, 0.2)), Machine(linear(150, 0.3))
    assert all(sum(sample.n == n for sample in quick(fast, range(1, 17), 2.0, fast.clock)) == 25 for n in range(1, 17))
    sizes = {sample.n for sample in quick(slow, range(1, 17), 1.7, slow.clock)}
    assert {1, 2, 4} <= sizes


def test_sizes_that_are_more_than_one_pass_are_left_out():
    machine = Machine(linear(0.1, 0.2), n_alike=6)
    assert {sample.n for sample in quick(machine, (2, 6, 7, 30), 1.0, machine.clock)} == {1, 2, 6}


def test_the_first_decodes_do_not_count():
    machine = Machine(linear(1, 0.5), slow=lambda i: 40.0 if i == 0 else 1.0)
    assert max(sample.ms for sample in quick(machine, (1, 2), 1.0, machine.clock)) == pytest.approx(1.5)


def test_a_disturbed_first_decode_does_not_pass_for_a_slow_model():
    machine = Machine(linear(1, 0.5), slow=lambda i: 900.0 if i == 0 else 1.0)
    found = quick(machine, range(1, 17), 1.7, machine.clock)
    assert {sample.n for sample in found} == set(range(1, 17))
    assert max(sample.ms for sample in found if sample.n == 1) == pytest.approx(1)


class Recording(Machine):
    """A GPU: the first pass of another size takes 1 ms more, the second 2 ms."""

    def decode(self, rows):
        size = len(rows[0].ids)
        n_alike = next((i for i, n in enumerate(reversed(self.sizes)) if n != size), len(self.sizes))
        self.now += (1, 2, 0)[min(n_alike, 2)] / 1000
        super().decode(rows)


def test_single_rows_are_measured_behind_others_where_a_change_of_size_costs():
    machine = Recording(linear(2, 0.25))
    found = {one.n: one.ms for one in medians(quick(machine, (1, 2, 4), 1.0, machine.clock))}
    assert found == pytest.approx({1: 2.0, 2: 3.5, 4: 4.5})
    machine = Recording(linear(2, 0.25))
    found = {one.n: one.ms for one in medians(full(machine, (1, 2, 4), (0,), lambda share: None, machine.clock))}
    assert found == pytest.approx({1: 2.0, 2: 3.5, 4: 4.5})


@pytest.mark.parametrize(("kind", "most"), [(Recording, 3), (Machine, 1)])
def test_how_many_rows_cost_less_one_by_one(kind, most):
    machine = kind(linear(2, 0.25))
    assert profile.most_singly(machine, machine.clock) == most  # (3.5 + 3) / 2
    assert machine.held == 0


def test_a_full_measurement_has_every_size_behind_every_depth():
    machine, told = Machine(linear(1, 0.25)), []
    found = medians(full(machine, range(1, 5), (512, 0), told.append, machine.clock))
    assert [(sample.n, sample.depth) for sample in found] == [(n, depth) for depth in (0, 512) for n in range(1, 5)]
    assert all(sample.ms == pytest.approx(linear(1, 0.25)(sample.n, sample.depth)) for sample in found)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert machine.held == 0


def test_a_burst_of_foreign_load_is_shared_out_and_does_not_count():
    """A fifth of the time ten times as slow, in one piece: in a round, every size suffers once."""
    machine = Machine(linear(100, 0.5), slow=lambda i: 10.0 if 10 <= i < 18 else 1.0)
    every = full(machine, range(1, 9), (0,), lambda share: None, machine.clock)
    found = medians(every)
    assert [sum(one.n == n for one in every) for n in range(1, 9)] == [15, *[5] * 7]
    assert 1.0 <= spread(every) < profile.BUSY
    assert [sample.ms for sample in found] == pytest.approx([linear(100, 0.5)(n, 0) for n in range(1, 9)])


def test_what_all_else_is_compared_with_is_not_measured_at_three_moments_only():
    """Two short bursts where rounds end and begin: with rounds up and down, four of five single rows fell into them."""
    machine = Machine(linear(100, 0.5), slow=lambda i: 3.0 if 16 <= i < 20 or 32 <= i < 36 else 1.0)
    found = medians(full(machine, range(1, 9), (0,), lambda share: None, machine.clock))
    assert [sample.ms for sample in found] == pytest.approx([linear(100, 0.5)(n, 0) for n in range(1, 9)])


def test_a_busy_machine_is_noticed():
    machine = Machine(linear(1, 0.25), slow=lambda i: (1.0, 3.0, 1.1)[i % 3])
    assert spread(full(machine, range(1, 9), (0,), lambda share: None, machine.clock)) > profile.BUSY
    assert spread([CostSample(1, 0, 2.5), CostSample(2, 0, 3.0), CostSample(1, 512, 2.75)]) == 1.0


@pytest.mark.parametrize(
    ("sizes", "depths", "named"), [((1, 100), (0,), "--n-max"), ((1, 8), (0, 4090), "--depths"), ((), (0,), "--n-max")]
)
def test_what_does_not_fit_is_refused(sizes, depths, named):
    machine = Machine(linear(1, 1))
    with pytest.raises(ConfigError, match=named):
        full(machine, sizes, depths, lambda share: None, machine.clock)
    assert machine.sizes == []


def test_depths_follow_the_context():
    assert profile.fitting_depths(Machine(linear(1, 1)), 24) == (0, 512, 2048)
    assert profile.fitting_depths(Machine(linear(1, 1), n_ctx=24), 24) == (0,)


def test_plausible_ids_are_spread_over_the_vocabulary():
    ids = plausible_ids(0, 512, 32_000)
    assert len(set(ids)) == 512
    assert max(ids) - min(ids) > 30_000
    assert plausible_ids(100, 8, 32_000) == ids[100:108]
    assert 3000 < median(plausible_ids(0, 999, 7919 * 2)) < 13_000


# --- a busy machine


def samples(**ms_of):
    """n1=[…], n2=[…]: milliseconds of every pass of so many rows."""
    return tuple(CostSample(int(name[1:]), 0, float(ms)) for name, every in ms_of.items() for ms in every)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (samples(n1=[70, 71, 72], n2=[90, 91, 92], n8=[200, 203, 201]), ""),
        (samples(n1=[72.5], n7=[243.2], n8=[203.1]), ""),  # a step of a real curve (Q8_0 on AVX-512)
        (
            samples(n1=[10.0], n2=[266.0], n4=[45.0], n8=[25.0], n16=[100.0]),
            "a pass of 2 tokens took 5.9 times as long",
        ),
        (samples(n1=[10.0], n2=[99.0]), "a pass of 2 tokens took 10 times as long as one of a single token"),
        (samples(n1=[10, 30, 60], n2=[12, 30, 66]), "passes of one size differ by a factor of"),
        (samples(n2=[10.0], n4=[11.0]), ""),
    ],
)
def test_times_that_no_machine_at_rest_has_are_told_from_others(found, why):
    assert disturbance(found).startswith(why)
    assert bool(disturbance(found)) == bool(why)


@given(
    rest=st.lists(st.floats(1, 100), min_size=1, max_size=16).map(sorted),
    noise=st.lists(st.floats(1, 50), min_size=48, max_size=48),
)
def test_a_disturbed_curve_is_put_where_a_machine_at_rest_could_have_it(rest, noise):
    """Nothing that was measured is below it, it rises, and no pass costs more than single rows."""
    true = {n: min(ms, n * rest[0]) for n, ms in enumerate(rest, 1)}
    found = [CostSample(n, 0, ms * noise[3 * n - 3 + i]) for n, ms in true.items() for i in range(3)]
    guess = {one.n: one.ms for one in as_at_rest(found)}
    assert guess.keys() == true.keys()
    assert all(guess[n] <= min(one.ms for one in found if one.n == n) for n in true)
    assert all(guess[n] <= n * guess[1] * 1.0001 for n in true)
    assert [guess[n] for n in sorted(guess)] == sorted(guess.values())


def test_what_comes_out_the_same_again_is_how_the_machine_is():
    odd = samples(n1=[10.0], n2=[90.0])
    assert disturbance(odd)
    assert alike(odd, samples(n1=[11.0], n2=[85.0]))
    assert not alike(odd, samples(n1=[10.0], n2=[20.0]))
    assert not alike(odd, samples(n1=[10.0]))


def test_a_measurement_stops_for_whoever_wants_the_model():
    machine = Machine(linear(10, 0.1))
    found = quick(machine, range(1, 17), 2.0, machine.clock, stop=lambda: len(machine.sizes) >= 6)
    assert len(machine.sizes) == 6
    assert found


def test_a_measurement_behind_a_text_leaves_the_text():
    machine = Machine(linear(10, 0.1), n_ctx=110)
    machine.held = 100
    found = quick(machine, range(1, 17), 2.0, machine.clock, seq=0, depth=100)
    assert machine.held == 100
    assert {one.depth for one in found} == {100}
    assert max(machine.sizes) == 10
