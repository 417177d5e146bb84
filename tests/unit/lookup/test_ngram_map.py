"""ngram-map-k and ngram-map-k4v, case by case: hits, thresholds, ties, accepted lengths, reset, shrinking history.

All of it is about look-ups, so nothing is followed here (`test_following.py`).
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import STEPS, Slot, alone, play

from uad.drafts.lookup import ngram_map
from uad.drafts.lookup.lookup_drafter import LookupDrafter

KEY = [91, 92]
A, B, C, D, E = ([i, i + 1, i + 2] for i in (10, 20, 30, 40, 50))


def text(*values: list[int]) -> list[int]:
    """Each value after the key, with something else between, and the key at the end."""
    out, filler = [], 1000
    for value in values:
        out += [*KEY, *value, filler]
        filler += 1
    return [*out, *KEY]


def k(min_hits: int = 1) -> LookupDrafter:
    return alone(ngram_map.drafter(2, 3, min_hits))


def k4v(min_hits: int = 1) -> LookupDrafter:
    return alone(ngram_map.drafter(2, 3, min_hits, n_values=4))


BOTH = pytest.mark.parametrize("make", [k, k4v])


@BOTH
def test_one_hit_is_enough_by_default(make):
    assert Slot(make(), text(A)).draft().ids == tuple(A)


@BOTH
def test_an_unknown_key_drafts_nothing(make):
    assert Slot(make(), [1, 2, 3, 4, 5, 6, 7]).draft().ids == ()


@BOTH
@pytest.mark.parametrize(("n", "drafts"), [(1, False), (2, False), (3, True), (4, True)])
def test_min_hits_is_how_often_the_key_must_have_occurred(make, n, drafts):
    assert Slot(make(3), text(*[A] * n)).draft().ids == (tuple(A) if drafts else ())


@BOTH
def test_a_value_counts_once_it_is_complete(make):
    slot = Slot(make(), [1, 2, *KEY, 10, *KEY])  # three ids after the first key are [10, 91, 92]
    assert slot.draft().ids == (10, *KEY)
    assert Slot(make(), [1, 2, 3, *KEY, *KEY]).draft().ids == ()  # only two ids after it


def test_k_drafts_the_value_after_the_last_occurrence():
    assert Slot(k(), text(A, A, A, B)).draft().ids == tuple(B)


@pytest.mark.parametrize(
    ("values", "winner"),
    [
        ((A, A), A),
        ((A, A, B), A),  # 2 against 1: twice as often is clear enough
        ((A, B), None),  # a tie
        ((A, A, B, B), None),
        ((A, A, A, B, B), None),  # 3 against 2
        ((A, A, A, A, B, B), A),  # 4 against 2
        ((A, A, A, A, B, C), A),  # the others count together
        ((A, A, A, B, C), None),
        ((B, A, A, A, C, D, D, D, D), None),
        ((A, B, C, D, *[E] * 9), None),  # a fifth value is not counted: the four tie
        ((A, B, C, D, *[E] * 9, *[A] * 5), A),
    ],
)
def test_k4v_drafts_only_what_clearly_leads(values, winner):
    assert Slot(k4v(), text(*values)).draft().ids == (tuple(winner) if winner else ())


def test_k4v_counts_as_the_text_grows():
    slot = Slot(k4v(), text(A))
    assert slot.draft().ids == tuple(A)
    slot.write([*B, 7, *KEY])
    assert slot.draft().ids == ()  # 1 against 1
    slot.write([*B, 8, *KEY])
    assert slot.draft().ids == tuple(B)  # 2 against 1
    slot.write([*A, 9, *KEY])
    assert slot.draft().ids == ()


@BOTH
def test_no_more_is_drafted_than_was_accepted_the_last_time(make):
    slot = Slot(make(), text(A, A, A))
    draft = slot.draft()
    slot.write([10, 11, 77], draft)  # two of three were right
    slot.write([78, *KEY])
    assert slot.draft().ids == (10, 11)  # for map-k of the last value, [10, 11, 77]


@BOTH
def test_a_key_of_which_nothing_was_accepted_is_silent(make):
    slot = Slot(make(), text(A, A, A))
    slot.write([77], slot.draft())
    slot.write([78, 79, 80, *KEY])
    assert slot.draft().ids == ()


def test_what_would_have_been_right_counts_too():
    slot = Slot(k4v(), text(A, A, A))
    slot.write([77], slot.draft())
    slot.write([78, 79, 80, *KEY])
    assert slot.draft().ids == ()  # silent, but it watches
    slot.write([*A, 81])
    slot.write([82, *KEY])
    slot.draft()
    slot.write([*A, 83, *KEY])
    assert slot.draft().ids == tuple(A)


@BOTH
def test_an_ended_answer_says_nothing_about_the_rest_of_a_draft(make):
    slot = Slot(make(), text(A, A))
    slot.write([10], slot.draft())
    slot.end().begin(text(A, A))
    assert slot.draft().ids == tuple(A)


@BOTH
def test_accepted_lengths_are_forgotten_with_the_text_that_taught_them(make):
    prompt = text(A, A, A)
    slot = Slot(make(), prompt)
    slot.write([77], slot.draft())
    slot.write([78, 79, 80, *KEY])
    assert slot.draft().ids == ()
    slot.end().begin(prompt)
    assert slot.draft().ids == tuple(A)


def test_counts_shrink_with_the_history():
    prompt = text(A, A, B)
    slot = Slot(k4v(), prompt)
    assert slot.draft().ids == tuple(A)
    slot.write([*B, 7, *KEY])
    assert slot.draft().ids == ()  # 2 against 2
    slot.end().begin([*prompt, 5, 6, *KEY])  # without the answer
    assert slot.draft().ids == ()  # [5, 6, 91] is a third value: 2 against 2
    slot.end().begin(prompt)
    assert slot.draft().ids == tuple(A)
    slot.end().begin([*prompt[:14], 1, *KEY])
    assert slot.draft().ids == tuple(A)
    slot.end().begin([1, 2, 3, *KEY])
    assert slot.draft().ids == ()


def scan(ids: list[int], n: int, m: int, min_hits: int, four: bool) -> tuple[int, ...]:
    """The written description, by a scan of the whole history."""
    found = [tuple(ids[end : end + m]) for end in range(n, len(ids) - m + 1) if ids[end - n : end] == ids[-n:]]
    if len(ids) < n + m or len(found) < min_hits:
        return ()
    if not four:
        return found[-1]
    counts: dict[tuple[int, ...], int] = {}
    for value in found:
        if value in counts or len(counts) < 4:
            counts[value] = counts.get(value, 0) + 1
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] >= 2 * (sum(counts.values()) - counts[best]) else ()


@given(STEPS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_counting_step_by_step_is_a_scan(steps, n, m, min_hits, four):
    """With drafts of which nothing is learned: asked behind each step, by a drafter that does not see what comes of
    it.
    """
    slot = Slot(alone(ngram_map.drafter(n, m, min_hits, 4 if four else 1)))
    for step in steps:
        play(slot, step)
        if len(slot.ids) <= 60:
            assert slot.draft().ids == scan(slot.ids, n, m, min_hits, four)
        slot.lookup.tried = None


def test_keys_are_bounded(monkeypatch):
    monkeypatch.setattr(ngram_map, "_N_KEYS", 5)
    rng = random.Random(2)
    slot = Slot(k(), [rng.randrange(6) for _ in range(200)])
    for _ in range(100):
        slot.draft()
        slot.write([rng.randrange(6)])
    assert len(slot.lookup.accepted) == 5
