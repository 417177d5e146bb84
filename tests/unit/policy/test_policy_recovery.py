"""Drafting comes back after a machine was disturbed, and looking whether it pays again costs little where it does
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from kit.disturbances import ANSWER, DEAR, REAL, between, every, one_call, quiet, real_pair, real_text, slow_start
from kit.simulator import BAD, GOOD, MEMORY_BOUND, Simulation, text

from uad.base.types import Commit, Draft, Origin, SpecPolicy, SpeculativeParams
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.protocol import Drafted, Wish

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
    "measured at rest, a neighbour for 10 s right after": (between(0.001, 10, 10, 10), 10),
    "measured at rest, a neighbour for 60 s right after": (between(0.001, 60, 3, 20), 60),
    "measured at rest, both alike for two minutes": (between(0.001, 120, 5, 5), 120),
    "measured at rest, slow drafts for 30 s": (between(0.001, 30, 1, 50), 30),
    "slow drafts for 5 minutes in mid-run": (between(60, 360, 3, 20), 360),
    "a suspended process": (between(20, 20.2, 1, 1000), 30),
}


LENGTHS = (0.3, 2, 10, 30, 60, 120, 300)
"""Seconds."""

TIMES = ((3, 20), (1, 50), (5, 5), (10, 10), (2, 100), (50, 50))
"""How many times slower the target is, and the draft."""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", DISTURBANCES)
def test_drafts_are_back_within_three_answers_of_a_quiet_machine(name, seed):
    factor, quiet_at = DISTURBANCES[name]
    one = real_pair(real_text(60, seed), factor=factor, seed=seed).answers(60, wanted=8, after=quiet_at)
    later = one.after(quiet_at)
    assert len(later) > 3
    assert any(later[:3]), later
    assert sum(later[4:8]) > 100, later


@pytest.mark.long
def test_of_many_disturbances_nearly_all_are_over_within_three_answers():
    """Nearly all of the others slow the draft fifty times as much as the target for minutes, or are over in the fourth
    or fifth answer.
    """
    late = n = 0
    for begin, seconds, (target, draft) in product((0.0, 0.001, 20), LENGTHS, TIMES):
        factor, end = between(begin, begin + seconds, target, draft), begin + seconds
        after = real_pair(real_text(40), factor=factor).answers(60, wanted=4, after=end).after(end)
        n += len(after) > 3
        late += len(after) > 3 and not any(after[:3])
    assert n > 120
    assert late <= 13, f"{late} of {n}"


def test_a_process_that_was_suspended_in_a_call_of_the_draft_goes_on_with_drafts():
    usual, suspended = (
        sum(real_pair(text(800, GOOD), factor=factor).answers(60).drafted) for factor in (quiet, one_call(20, 1000))
    )
    assert suspended > 0.97 * usual


@pytest.mark.parametrize("second", [5, 60])
def test_a_probe_in_which_the_process_was_suspended_leaves_the_draft_alone_for_a_few_answers(second):
    """Drafts that were useless at the time are good ones in later answers."""
    positions = text(30 * ANSWER, BAD, seed=1) + text(20 * ANSWER, GOOD, seed=2)
    one = real_pair(positions, factor=one_call(second, 1000)).answers(60)
    assert sum(n > 0 for n in one.drafted[30:]) > 12


@pytest.mark.parametrize("seed", range(2))
def test_a_machine_that_became_slower_for_good_is_as_fast_as_one_that_was_measured_so(seed):
    cost = lambda n: 3 * REAL(n)  # noqa: E731
    slow = {"cost": cost, "step_ms": 22.2, "call_ms": 27.0, "pause_ms": 30.0, "read_ms": 9.6}
    measured = real_pair(real_text(40, seed), **slow).answers(60).seconds
    slower = real_pair(real_text(40, seed), factor=between(60, 1e9, 3, 3)).answers(60).seconds
    first = next(i for i, second in enumerate(slower) if second >= 60)
    assert slower[first + 20] - slower[first] < 1.05 * (measured[first + 20] - measured[first])


@pytest.mark.parametrize("seed", range(2))
def test_drafts_go_on_beside_a_neighbour_that_comes_back_every_thirty_seconds(seed):
    one = real_pair(real_text(40, seed), factor=every(30, 5, 3, 20), seed=seed).answers(60)
    assert sum(n > 0 for n in one.drafted) > 30


@pytest.mark.parametrize("n_cold", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(2))
def test_cold_pages_in_the_first_calls_cost_a_few_answers(seed, n_cold):
    """The first calls take a hundred times as long, nothing is known of better ones, and reading a prompt is dear."""
    one = real_pair(real_text(16, seed), cold=n_cold, seed=seed).answers(60)
    assert any(one.drafted[:3]), one.drafted
    assert sum(one.drafted[4:]) > 500, one.drafted


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("cost", [DEAR, lambda n: 90.0 + 10.0 * n], ids=["bound by arithmetic", "bound by memory"])
def test_looking_again_costs_little_where_drafts_do_not_pay(cost, times):
    """Two percent at most, and three where calls of the draft model are dear for good."""
    one = real_pair(text(100 * 80, BAD), cost=cost, factor=lambda _, is_draft: times if is_draft else 1.0).answers(60)
    assert one.plain_ms / one.ms > (0.98 if times == 1 else 0.97)
    late = sum(k for _, k in one.lengths[4000:])
    assert late < 100


def until_it_is_timed(policy: AutoPolicy, origin: Origin, wishes: Sequence[Wish]) -> None:
    """Sequence 0 writes on, without drafts or with wrong ones, up to the round in which this drafter only shows what a
    call costs.
    """
    for _ in range(2000):
        n = policy.plan(wishes)
        if n == 0:
            asks = policy.asks(origin)
            if asks and not asks[0].n_max:
                assert [(ask.seq, 0 < ask.n_read < 20) for ask in asks] == [(0, True)]
                return
            if asks:
                policy.more([], [(0, 0.9)])
                policy.observe(Drafted(origin, [Draft((-1,), (0.9,), origin, n_read=1)], 0.5))
            policy.choose()
        policy.observe(Commit(0, (1,) * max(n, 1)))
    raise AssertionError(f"{origin} is never asked what a call costs")


def test_looking_what_calls_cost_shows_it():
    """They took half a second. A short call of 8 ids shows a little of what they take now."""
    policy, wishes = real_pair([]).policy, [Wish(0, SpeculativeParams(), 300, 200)]
    policy.begin(0, 200)
    until_it_is_timed(policy, Origin.MODEL, wishes)
    before = policy.view(200).worth[Origin.MODEL].costs
    policy.observe(Drafted(Origin.MODEL, [Draft(n_read=8)], 1e-2))
    assert policy.choose() == {}
    assert policy.view(200).worth[Origin.MODEL].costs < 0.8 * before


def test_a_call_that_read_nothing_tells_nothing_of_what_calls_cost():
    """The draft's KV may hold the prompt already, as in the second turn of a chat."""
    policy, wishes = real_pair([]).policy, [Wish(0, SpeculativeParams(), 300, 200)]
    policy.begin(0, 200)
    until_it_is_timed(policy, Origin.MODEL, wishes)
    before = policy.view(200).worth
    policy.more([], [(0, 0.9)])  # a guess that was left over from an earlier round
    policy.observe(Drafted(Origin.MODEL, [Draft(n_read=0)], 1e-6))
    assert policy.choose() == {}
    assert policy.view(200).worth == before
    policy.observe(Commit(0, (1,)))
    assert policy.plan(wishes) or not policy.asks(Origin.MODEL), "there is nothing to read"


def test_guesses_that_were_left_over_show_nothing_of_what_calls_cost():
    """They take no decode. Taken for a call, they would make all calls and steps seem cheap for a dozen rounds."""
    policy, wishes = real_pair([]).policy, [Wish(0, SpeculativeParams(), 300, 200)]
    policy.begin(0, 1)

    def call(n_read: int, seconds: float) -> float:
        while policy.plan(wishes) or not policy.asks(Origin.MODEL):
            policy.observe(Commit(0, (1,)))
        policy.more([], [(0, 0.99)])
        policy.observe(Drafted(Origin.MODEL, [Draft((1,), (0.99,), n_read=n_read)], seconds))
        policy.choose()
        policy.observe(Commit(0, (1, 2), 1, 1))
        return policy.view(200).worth[Origin.MODEL].costs

    before = [call(2, 1e-2) for _ in range(20)][-1]
    assert call(0, 1e-6) == pytest.approx(before, rel=1e-2)


def test_a_call_that_failed_leaves_nothing_for_the_next_drafter_of_the_round():
    """The head was to read a few ids, to show what that costs, and failed. What the draft model then does in the same
    round, for a request that says how far it drafts, is its own call.
    """
    policy = real_pair([]).policy
    for seq in (0, 1):
        policy.begin(seq, 200)
    says = SpeculativeParams(policy=SpecPolicy.FIXED, types=(Origin.MODEL,))
    wishes = [Wish(0, SpeculativeParams(types=(Origin.HEAD,)), 300, 200), Wish(1, says, 300, 200)]
    until_it_is_timed(policy, Origin.HEAD, wishes)
    before = policy.view(200).worth[Origin.HEAD]
    assert [ask.seq for ask in policy.asks(Origin.MODEL)] == [1]
    policy.more([], [(1, 0.9)])
    policy.observe(Drafted(Origin.MODEL, [Draft((1,), (0.9,), Origin.MODEL, n_read=200)], 1e-3))
    assert {seq: chosen.draft.ids for seq, chosen in policy.choose().items()} == {1: (1,)}
    assert policy.view(200).worth[Origin.HEAD] == before


@pytest.mark.parametrize("draft", [GOOD, BAD])
def test_calls_that_fail_for_a_while_change_nothing_in_what_comes_after(draft):
    """Nothing is reported of them, and no probe is paid for."""
    usual, failed = (Simulation(MEMORY_BOUND, text(2000, draft), fails=fails) for fails in (range(0), range(300, 400)))
    usual.run()
    failed.run()
    drafted = [sum(k for at, k in one.lengths if at >= 400) for one in (usual, failed)]
    assert drafted[1] == pytest.approx(drafted[0], rel=0.03, abs=8)
    assert failed.plain_ms / failed.ms > 0.98
