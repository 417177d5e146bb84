"""Drafting comes back after a machine was disturbed, and looking whether it pays again costs little where it does not."""

from __future__ import annotations

import pytest
from disturbances import DEAR, between, every, quiet, real_pair, real_text, slow_start
from simulator import BAD, text

DISTURBANCES = {
    "slow for 5 s from the start": (slow_start(5, 1, 50), 5),
    "a neighbour for 60 s from the start": (slow_start(60, 3, 20), 60),
    "a neighbour that slows both alike": (slow_start(60, 10, 10), 60),
    "a hundred times slower drafts for 60 s": (slow_start(60, 2, 100), 60),
    "a neighbour for five minutes": (slow_start(300, 3, 30), 300),
    "a neighbour for twenty minutes": (slow_start(1200, 3, 30), 1200),
    "a neighbour in mid-run": (between(60, 120, 3, 20), 120),
    "slow drafts in mid-run": (between(60, 80, 1, 100), 80),
    "measured slow, then twice as fast for good": (between(0, 20, 2, 2), 20),
    "a suspended process": (between(20, 20.2, 1, 1000), 30),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", DISTURBANCES)
def test_drafts_are_back_within_three_answers_of_a_quiet_machine(name, seed):
    factor, quiet_at = DISTURBANCES[name]
    one = real_pair(real_text(60, seed), factor=factor, seed=seed).answers(60)
    later = one.after(quiet_at)
    assert len(later) > 3
    assert any(later[:3]), later
    assert sum(later[4:8]) > 100, later


@pytest.mark.parametrize("seed", range(2))
def test_drafts_go_on_beside_a_neighbour_that_comes_back_every_thirty_seconds(seed):
    one = real_pair(real_text(40, seed), factor=every(30, 5, 3, 20), seed=seed).answers(60)
    assert sum(n > 0 for n in one.drafted) > 30


@pytest.mark.parametrize("seed", range(2))
def test_cold_pages_in_the_first_calls_cost_a_few_answers(seed):
    """The first three calls take a hundred times as long, nothing is known of better ones, and reading a prompt is dear."""
    one = real_pair(real_text(16, seed), cold=3, seed=seed).answers(60)
    assert any(one.drafted[:6]), one.drafted
    assert sum(one.drafted[6:]) > 500, one.drafted


@pytest.mark.parametrize("cost", [DEAR, lambda n: 90.0 + 10.0 * n], ids=["bound by arithmetic", "bound by memory"])
def test_looking_again_costs_at_most_two_percent_where_drafts_do_not_pay(cost):
    one = real_pair(text(100 * 80, BAD), cost=cost, factor=quiet).answers(60)
    assert one.plain_ms / one.ms > 0.98
    late = sum(k for _, k in one.lengths[4000:])
    assert late < 100
