"""Which texts share a pass of an embedding model: the longest first, requests in turns."""

from __future__ import annotations

import random

import numpy as np
import pytest

from uad.base.common.embedding import Vectors
from uad.base.errors import UnavailableError
from uad.runtime.text_queue import TextJob, TextQueue

ROW: Vectors = np.zeros((1, 1), np.float32)


def job(*lengths: int) -> TextJob:
    return TextJob([[0] * n for n in lengths])


def lengths(queue: TextQueue) -> list[int]:
    """Of the texts of the next pass."""
    return [len(one.texts[place]) for one, place in queue.take()]


def queue_of(*jobs: TextJob, rows: int = 10, texts: int = 8) -> TextQueue:
    queue = TextQueue(rows, texts)
    for one in jobs:
        queue.add(one)
    return queue


def test_the_longest_text_comes_first_and_is_joined_by_the_longest_that_fit() -> None:
    queue = queue_of(job(2, 7, 3, 6, 1))
    assert [lengths(queue), lengths(queue)] == [[7, 3], [6, 2, 1]]
    assert queue.is_empty


def test_a_text_longer_than_a_shared_pass_is_alone() -> None:
    queue = queue_of(job(300, 1), rows=10)
    assert [lengths(queue), lengths(queue)] == [[300], [1]]


def test_one_text_is_a_pass_where_none_may_be_shared() -> None:
    queue = queue_of(job(1, 2, 3), texts=1)
    assert [lengths(queue) for _ in range(3)] == [[3], [2], [1]]


def test_requests_take_turns_to_begin_a_pass() -> None:
    many, one = job(*[9] * 100), job(9)
    queue = queue_of(many, one)
    firsts = [queue.take()[0][0] for _ in range(2)]
    assert one in firsts


def test_others_fill_the_pass_of_the_one_whose_turn_it_is() -> None:
    first, second = job(6), job(3, 5)
    queue = queue_of(first, second)
    assert lengths(queue) == [6, 3]
    assert lengths(queue) == [5]


def test_a_request_is_done_with_its_last_text_in_the_order_it_was_sent() -> None:
    own = job(1, 2)
    for number, place in enumerate((1, 0)):
        assert not own.future.done()
        own.put(place, ROW + number)
    assert [float(rows[0, 0]) for rows in own.future.result(0)] == [1.0, 0.0]


def test_what_was_taken_back_is_not_computed() -> None:
    gone, stays = job(5, 5), job(4)
    queue = queue_of(gone, stays)
    gone.future.cancel()
    assert not queue.is_empty
    assert lengths(queue) == [4]
    gone.put(0, ROW)  # of a pass that ran: nobody waits
    gone.put(1, ROW)
    assert queue.is_empty


def test_a_failure_ends_all_that_wait() -> None:
    own, other = job(1), job(2)
    other.future.cancel()
    queue_of(own, other).fail_all(UnavailableError("stopped"))
    with pytest.raises(UnavailableError):
        own.future.result(0)
    own.fail(UnavailableError("again"))


@pytest.mark.parametrize("seed", range(20))
def test_every_text_is_computed_once_and_no_pass_is_too_large(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [job(*(rng.randint(1, 14) for _ in range(rng.randint(1, 30)))) for _ in range(rng.randint(1, 6))]
    queue, seen = queue_of(*jobs, texts=rng.randint(1, 5)), []
    while not queue.is_empty:
        taken = queue.take()
        assert len(taken) == 1 or sum(len(one.texts[place]) for one, place in taken) <= 10
        seen += taken
    assert sorted((jobs.index(one), place) for one, place in seen) == [
        (i, place) for i, one in enumerate(jobs) for place in range(len(one.texts))
    ]
