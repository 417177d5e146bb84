"""Drafts inside vLLM, against a scripted runner: state follows requests, memory is bounded, steps are never slower."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from kit.vllm_runner import N_VOCAB, ScriptedRequest, ScriptedRunner, TextDrafter, arrivals

from uad.base.types import Origin, SpecPolicy, SpeculativeParams
from uad.engine.decode.drafting import Drafting
from uad.engine.policy.auto import AutoPolicy
from uad.vllm.batch import BatchDrafting, BatchLimits, machine_of
from uad.vllm.texts import GONE

FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=4)
LIMITS = BatchLimits(n_slots=6, n_max=4, max_len=120)


def fixed(drafter: TextDrafter, limits: BatchLimits = LIMITS, eog: frozenset[int] = frozenset()) -> BatchDrafting:
    return BatchDrafting(
        lambda samples, most_rows: Drafting([drafter], AutoPolicy, N_VOCAB, eog), limits, FIXED, lambda: 0.0, eog
    )


def weighed(drafter: TextDrafter, runner: ScriptedRunner, limits: BatchLimits) -> BatchDrafting:
    def make(samples, most_rows):
        return Drafting([drafter], lambda: AutoPolicy(machine_of(samples, most_rows)), N_VOCAB, clock=runner.clock)

    return BatchDrafting(make, limits, SpeculativeParams(), runner.clock)


@pytest.mark.parametrize("seed", range(4))
def test_each_proposal_of_500_requests_that_come_and_go_is_that_of_a_fresh_drafter(seed: int) -> None:
    rng = random.Random(seed)
    drafter, fresh = TextDrafter(), TextDrafter()
    batch = fixed(drafter)
    counts = {"drafted": 0, "without": 0, "preempted": 0, "cancelled": 0}

    def seen(request: ScriptedRequest, new: list[int], draft: list[int]) -> None:
        if not new:
            assert draft == []
        elif draft:
            room = max(min(LIMITS.n_max, LIMITS.max_len - len(request.ids) - 1), 0)
            assert draft == list(fresh.guess(request.ids, room).ids)
            counts["drafted"] += 1
        else:
            counts["without"] += len(request.ids) < LIMITS.max_len - 1

    runner = ScriptedRunner(8, LIMITS.max_len, chunk=16, seen=seen)
    waiting, preempted = arrivals(rng, 500, LIMITS.max_len), list[ScriptedRequest]()
    most = 0
    while waiting or preempted or runner.rows:
        room = rng.choice((2, 4, LIMITS.n_slots)) - len(runner.rows)
        for _ in range(room):
            source = preempted if (preempted and rng.random() < 0.3) or not waiting else waiting
            if source:
                runner.add(source.pop(0))
        runner.step(batch.propose)
        for request in list(runner.rows):
            if request.is_done or len(request.ids) >= LIMITS.max_len or rng.random() < 0.01:
                counts["cancelled"] += not request.is_done
                runner.remove(request)
            elif rng.random() < 0.03:
                counts["preempted"] += 1
                runner.remove(request)
                preempted.append(request)
        if rng.random() < 0.2:
            rng.shuffle(runner.rows)
        most = max(most, len(drafter.texts))
    assert counts["drafted"] > 20 * counts["without"]
    assert min(counts["preempted"], counts["cancelled"]) > 50
    assert most <= LIMITS.n_slots
    kept = sum(text.ids.nbytes for text in batch._texts.texts)
    assert kept <= LIMITS.n_slots * 4 * max(256, 2 * LIMITS.max_len)
    assert batch.drafting is not None
    assert len(batch.drafting._texts) <= LIMITS.n_slots


def test_a_prompt_of_20000_ids_is_taken_once_and_then_only_what_is_new() -> None:
    drafter = TextDrafter()
    limits = BatchLimits(2, 4, 30_000)
    batch = fixed(drafter, limits)
    runner = ScriptedRunner(2, limits.max_len, chunk=2048)
    request = ScriptedRequest(0, [i % N_VOCAB for i in range(20_000)], 50)
    runner.add(request)
    while not request.is_done:
        runner.step(batch.propose)
    assert drafter.n_begun == 20_001
    assert drafter.n_begun + drafter.n_observed == len(request.ids)


def test_requests_of_the_same_ids_part_without_harm() -> None:
    drafter, fresh = TextDrafter(), TextDrafter()
    batch = fixed(drafter)
    drafts: list[tuple[list[int], list[int]]] = []
    runner = ScriptedRunner(4, LIMITS.max_len, seen=lambda one, new, draft: drafts.append((list(one.ids), draft)))
    for number in range(3):
        runner.add(ScriptedRequest(number, [1, 2, 3], 20))
    for _ in range(12):
        runner.step(batch.propose)
        runner.rows.reverse()
    assert all(draft == list(fresh.guess(ids, len(draft)).ids) for ids, draft in drafts)
    assert sum(bool(draft) for _, draft in drafts) == len(drafts)


def test_a_piece_of_a_prompt_gets_no_draft_and_takes_no_slot() -> None:
    drafter = TextDrafter()
    batch = fixed(drafter)
    runner = ScriptedRunner(2, LIMITS.max_len, chunk=8)
    runner.add(ScriptedRequest(0, [5] * 30, 10))
    for n_begun in (0, 0, 0, 31):
        runner.step(batch.propose)
        assert drafter.n_begun == n_begun


def test_no_draft_reaches_the_end_of_the_context() -> None:
    batch = fixed(TextDrafter())
    lengths: dict[int, int] = {}
    runner = ScriptedRunner(1, LIMITS.max_len, seen=lambda one, new, draft: lengths.update({len(one.ids): len(draft)}))
    runner.add(ScriptedRequest(0, [1] * 110, 100))
    while len(runner.rows[0].ids) < LIMITS.max_len:
        runner.step(batch.propose)
    assert all(n + length < LIMITS.max_len for n, length in lengths.items() if length)
    assert lengths[LIMITS.max_len] == 0


def test_a_batch_of_more_requests_than_slots_gets_no_drafts_and_smaller_ones_do_again() -> None:
    drafter = TextDrafter()
    batch = fixed(drafter)
    drafts: list[list[int]] = []
    runner = ScriptedRunner(8, LIMITS.max_len, seen=lambda one, new, draft: drafts.append(draft))
    requests = [ScriptedRequest(number, [number] * 5, 100) for number in range(7)]
    for request in requests:
        runner.add(request)
    for _ in range(3):
        runner.step(batch.propose)
    assert not any(drafts)
    assert drafter.n_begun == 0
    runner.remove(requests[0])
    runner.step(batch.propose)
    assert all(drafts[-6:])


def test_an_answer_that_ended_gives_its_slot_to_the_next() -> None:
    drafter = TextDrafter()
    ended: list[int] = []
    drafter.end = ended.append  # type: ignore[method-assign]
    batch = fixed(drafter, BatchLimits(2, 4, 64), frozenset([7]))
    ids = np.zeros((2, 64), np.int32)
    ids[0, :4] = 1, 2, 3, 7
    batch.propose([[7]], np.array([4, 0], np.int32), ids)
    ids[0, :3] = 9, 9, 9
    batch.propose([[9]], np.array([3, 0], np.int32), ids)
    assert ended == [0]


def test_a_request_that_left_without_a_word_is_over_after_some_calls() -> None:
    drafter = TextDrafter()
    ended: list[int] = []
    drafter.end = ended.append  # type: ignore[method-assign]
    batch = fixed(drafter)
    ids = np.zeros((1, LIMITS.max_len), np.int32)
    batch.propose([[1]], np.array([3], np.int32), ids + 1)
    for i in range(GONE + 1):
        assert ended == []
        batch.propose([[5]], np.array([4 + i], np.int32), ids + 5)
    assert ended == [0]


def test_a_drafter_that_fails_costs_drafts_and_nothing_else() -> None:
    drafter = TextDrafter()
    drafter.propose = lambda asks, pace=None: 1 / 0  # type: ignore[method-assign]
    runner = ScriptedRunner(1, LIMITS.max_len)
    batch = fixed(drafter)
    runner.add(ScriptedRequest(0, [1, 2, 3], 20))
    while not runner.rows[0].is_done:
        runner.step(batch.propose)
    assert runner.rows[0].n_written == 20


# --- never slower


def test_steps_that_read_prompts_and_rests_of_the_engine_say_nothing_of_costs() -> None:
    seen: list[tuple[int, float]] = []

    def make(samples, most_rows):
        seen.extend((one.n, one.ms) for one in samples)
        return Drafting([TextDrafter()], AutoPolicy, N_VOCAB)

    runner = ScriptedRunner(3, 600, chunk=8, cost=lambda n: 0.001 * n)
    batch = BatchDrafting(make, BatchLimits(3, 4, 600), SpeculativeParams(), runner.clock)
    for number in range(400):
        if number % 10 == 0:
            runner.add(ScriptedRequest(number, [number % N_VOCAB] * 30, 14))
        runner.step(batch.propose)
        for request in list(runner.rows):
            if request.is_done:
                runner.remove(request)
                runner.now += 5.0 if not runner.rows else 0.0
        if batch.drafting is not None:
            break
    assert len(seen) >= 9
    assert all(ms == pytest.approx(n) for n, ms in seen)


def spent(cost: Callable[[int], float], n_requests: int, share: float, n: int = 600) -> tuple[float, float]:
    """Seconds of n ids of each of some requests, with guesses of which so many are right, and without drafts."""
    rng = random.Random(1)
    texts: list[ScriptedRequest] = [ScriptedRequest(number, [number, 2, 3], n) for number in range(n_requests)]

    def right(ids: list[int], i: int) -> int:
        return texts[ids[0]].following(ids) if rng.random() < share else N_VOCAB - 1

    runner = ScriptedRunner(n_requests, 4 * n, cost=cost)
    drafter = TextDrafter(Origin.SUFFIX, right)
    batch = weighed(drafter, runner, BatchLimits(n_requests, 8, 4 * n))

    def propose(*call):
        runner.now += 1e-5
        return batch.propose(*call)

    for text in texts:
        runner.add(text)
    while runner.rows:
        runner.step(propose)
        for request in list(runner.rows):
            if request.is_done:
                runner.remove(request)
    return runner.now, n * cost(n_requests)


FLAT = lambda n: 0.02 + 0.0002 * n  # noqa: E731
STEEP = lambda n: 0.004 + 0.01 * n  # noqa: E731


@pytest.mark.parametrize("n_requests", [1, 8])
@pytest.mark.parametrize("cost", [FLAT, STEEP], ids=["flat", "steep"])
def test_guesses_that_are_wrong_cost_next_to_nothing(cost: Callable[[int], float], n_requests: int) -> None:
    drafted, plain = spent(cost, n_requests, 0.0)
    trials = 3 * sum(cost(n_requests * (1 + k)) - cost(n_requests) for k in (1, 4, 8))
    assert drafted < 1.02 * plain + trials


@pytest.mark.parametrize("n_requests", [1, 8])
def test_guesses_that_are_right_save_time_where_rows_are_cheap(n_requests: int) -> None:
    drafted, plain = spent(FLAT, n_requests, 0.9)
    assert drafted < 0.45 * plain


def test_guesses_that_are_right_are_left_alone_where_rows_cost_as_much_as_steps() -> None:
    drafted, plain = spent(lambda n: 0.01 * n, 8, 0.7)
    assert drafted < 1.15 * plain
