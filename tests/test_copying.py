"""Doubts of drafters that copy: what they are sure of after a copy was wrong, and that the ids are copied all the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uad.drafters.copying import Doubts
from uad.drafters.ngram_map import NgramMap, NgramMap4
from uad.drafters.ngram_mod import NgramMod
from uad.drafters.ngram_simple import NgramSimple
from uad.types import Ask, Commit, Draft

OLD, NEW = 90, 91
KINDS = [
    lambda: NgramSimple(3, 6),
    lambda: NgramMap(3, 6),
    lambda: NgramMap4(3, 6),
    lambda: NgramMod(3, 1, 6),
]


def line(k: int) -> tuple[int, ...]:
    """The k-th line of a source; in each stands the name."""
    return (*range(10 * k, 10 * k + 4), OLD, *range(10 * k + 4, 10 * k + 9))


def draft_of(*ids: int) -> Draft:
    return Draft(ids, (0.9,) * len(ids))


def believed(doubts: Doubts, id_: int) -> float:
    """What is left of belief in an id."""
    return doubts.weigh(draft_of(id_)).p[0] / 0.9


def test_an_id_is_doubted_where_it_was_wrong_and_believed_again_where_it_is_right() -> None:
    doubts = Doubts()
    history = []
    for written in (2, 2, 1, 1, 1):
        doubts.weigh(draft_of(1))
        doubts.judge((written,))
        history.append(believed(doubts, 1))
    assert history[0] == pytest.approx(1 / 3)
    assert history[1] < history[0]
    assert history[1] < history[2] < history[3] < history[4] < 1
    assert believed(doubts, 2) == 1


def test_only_the_first_difference_tells_something() -> None:
    doubts = Doubts()
    doubts.weigh(draft_of(1, 2, 3, 4))
    doubts.judge((1, 9, 8, 4))
    assert [believed(doubts, id_) < 1 for id_ in (1, 2, 3, 4, 9, 8)] == [False, True, False, False, False, False]


def test_what_is_written_while_it_is_not_asked_is_no_verdict() -> None:
    doubts = Doubts()
    doubts.weigh(draft_of(1, 2))
    doubts.judge((1,))
    doubts.judge((7,))
    assert believed(doubts, 2) == 1


@given(st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=5), st.lists(st.integers(0, 3), min_size=1, max_size=5)), max_size=20))
def test_ids_stay_and_beliefs_are_never_raised(rounds: list[tuple[list[int], list[int]]]) -> None:
    doubts = Doubts()
    for guess, written in rounds:
        draft = draft_of(*guess)
        weighed = doubts.weigh(draft)
        assert weighed.ids == draft.ids
        assert all(0 < p <= 0.9 for p in weighed.p)
        doubts.judge(tuple(written))


@pytest.mark.parametrize("make", KINDS)
def test_a_name_that_was_renamed_is_doubted_in_the_next_line_and_no_longer_by_the_next_request(make) -> None:
    drafter, lines = make(), [line(k) for k in range(3)]
    prompt = (*lines[0], *lines[1], *lines[2])

    def beliefs(seq: int, start: tuple[int, ...]) -> tuple[float, float]:
        """In the id before the name, and in the name."""
        (draft,) = drafter.propose([Ask(seq, 6)])
        assert draft.ids[:2] == (start[3], OLD)
        return draft.p[0], draft.p[1]

    drafter.begin(0, (*prompt, *lines[0][:3]))
    before, name = beliefs(0, lines[0])
    assert name >= before, "a longer match makes surer"
    drafter.observe(Commit(0, (lines[0][3], NEW), 2, 1))
    drafter.observe(Commit(0, (*lines[0][5:], *lines[1][:3])))
    before, name = beliefs(0, lines[1])
    assert name < before / 2
    drafter.begin(0, (*prompt, *lines[1][:3]))
    before, name = beliefs(0, lines[1])
    assert name >= before
