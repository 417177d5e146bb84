"""ngram-simple: the last match by scanning, its options, and a history that shrinks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import STEPS, Slot, alone, play

from uad.drafts.lookup.ngram_map import simple_drafter as drafter
from uad.drafts.lookup.sources import TextSource


def scan(ids: list[int], n: int, m: int, min_hits: int) -> tuple[int, ...]:
    """The written description: the last n ids, looked up backwards; what followed them the last time."""
    ends = [end for end in range(len(ids) - 1, n - 1, -1) if ids[end - n : end] == ids[-n:]]
    return tuple(TextSource(ids, ends[0] - 1).ahead(m)[1:]) if len(ends) >= min_hits else ()


@given(
    STEPS, st.integers(1, 4), st.integers(1, 9), st.integers(1, 3), st.lists(st.booleans(), min_size=12, max_size=12)
)
def test_it_is_the_last_match_of_a_scan(steps, n, m, min_hits, asked):
    slot = Slot(alone(drafter(n, m, min_hits)))
    for step, ask in zip(steps, asked, strict=False):
        play(slot, step)
        if ask:  # else it sleeps, and catches up later
            assert slot.draft().ids == scan(slot.ids, n, m, min_hits)
    assert slot.draft().ids == scan(slot.ids, n, m, min_hits)


def test_bounds_of_the_ask():
    slot = Slot(drafter(2, 5), [1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert slot.draft().ids == (3, 4, 5, 6, 7)
    assert slot.draft(3).ids == (3, 4, 5)
    assert slot.draft(0).ids == ()
    assert slot.draft(3, n_min=4).ids == ()
    assert slot.draft(4, n_min=4).ids == (3, 4, 5, 6)


def test_longer_matches_are_likelier_and_calibrated_together():
    text = list(range(100))
    short = Slot(drafter(2, 8), [*text, 200, 10, 11]).draft()
    long = Slot(drafter(2, 8), [*text, 200, *text[10:30]]).draft()
    assert short.kind == long.kind == "ngram-simple"
    assert short.p[0] < long.p[0]
    assert list(short.p) == sorted(short.p)


def test_slots_do_not_see_each_other():
    both = drafter(2, 4)
    a, b = Slot(both, [1, 2, 3, 4, 1, 2], seq=0), Slot(both, [9, 9, 1, 2], seq=1)
    assert b.draft().ids == ()
    assert a.draft().ids == (3, 4, 1, 2)


def test_the_last_match_is_lost_with_the_text_it_was_in():
    slot = Slot(alone(drafter(2, 3)), [1, 2, 3, 3, 3, 7])
    slot.write([1, 2, 4, 4, 4]).write([1, 2])
    assert slot.draft().ids == (4, 4, 4)
    slot.end().begin([1, 2, 3, 3, 3, 7, 8, 1, 2])  # the answer, say its reasoning, is not in the next prompt
    assert slot.draft().ids == (3, 3, 3)
