"""Copies that are followed through edits: renamed, put in, left out, given up; by each drafter that copies, and on any
text.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import STEPS, Slot, play

from uad.base.common.sequences import common_prefix
from uad.base.types import Origin
from uad.drafts.lookup import ngram_cache, ngram_map, ngram_mod, suffix
from uad.drafts.lookup.aligner import CopyAligner
from uad.drafts.lookup.lookup_drafter import LookupDrafter
from uad.drafts.lookup.replacements import Edit, Replacements
from uad.drafts.lookup.sources import Located, TextSource

Make = Callable[[], LookupDrafter]
KINDS: list[Make] = [
    lambda: ngram_map.simple_drafter(6, 40),
    lambda: ngram_map.drafter(6, 40),
    lambda: ngram_map.drafter(6, 40, n_values=4),
    lambda: ngram_mod.drafter(6, 1, 40, "slot"),
    ngram_cache.drafter,
    suffix.drafter,
]
NAMES = ["ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "suffix"]
each = pytest.mark.parametrize("make", KINDS, ids=NAMES)

RNG = random.Random(11)
OLD = (90001, 90002)
"""A name of two ids. It stands in every tenth place or so of SOURCE."""


def lines_with(*name: int) -> list[int]:
    rng = random.Random(12)
    out: list[int] = []
    for _ in range(30):
        out += [rng.randrange(30000) for _ in range(rng.randrange(6, 14))]
        out += [*name, 90009]
    return out


SOURCE = lines_with(*OLD)


def write(slot: Slot, target: list[int], n_max: int = 40) -> list[tuple[int, int]]:
    """Drive a slot to the end of the target; (place, id drafted) of each id that was wrong."""
    at, wrong = 0, []
    while at < len(target):
        draft = slot.draft(n_max)
        n = common_prefix(draft.ids, target[at:])
        if n < len(draft.ids) and at + n < len(target):
            wrong.append((at + n, draft.ids[n]))
        ids = target[at : at + n + 1]
        slot.write(ids, draft)
        at += len(ids)
    return wrong


@each
@pytest.mark.parametrize("n_max", [40, 3, 1])
@pytest.mark.parametrize(
    "new", [(1, 2), (1, 90002), (90001, 2), (1,), (1, 2, 3, 4, 5), (1, *OLD), (*OLD, 1), (90001, 5, 90002), ()]
)
def test_a_renamed_name_is_soon_drafted_with_its_new_name(make: Make, new: tuple[int, ...], n_max: int) -> None:
    target = lines_with(*new)
    slot = Slot(make(), [*SOURCE, 7, 8])
    slot.write(target[:8])
    wrong = write(slot, target[8:], n_max)
    names = [place for place in range(len(target) - 8) if target[8:][place : place + len(new) + 1] == [*new, 90009]]
    assert len(names) > 25
    late = [place for place, _ in wrong if place > names[4] + len(new)]
    assert late == []
    assert len(wrong) <= 8


@each
def test_it_goes_on_behind_what_was_put_in_or_left_out(make: Make) -> None:
    text = [RNG.randrange(30000) for _ in range(200)]
    for edited in ([*text[:50], 1, 2, 3, *text[50:]], [*text[:50], *text[53:]], [*text[:50], 1, 2, 3, 4, *text[52:]]):
        slot = Slot(make(), [*text, 7, 8])
        slot.write(edited[:40])
        wrong = write(slot, edited[40:])
        assert len(wrong) <= 3, edited[45:60]
        assert all(place < 20 for place, _ in wrong)


@each
def test_a_copy_keeps_its_place_among_lines_that_are_alike(make: Make) -> None:
    head = list(range(20))
    lines = [[*head, 100 + i, 200 + i, 300 + i, 400 + i, 500 + i, 600 + i] for i in range(30)]
    slot = Slot(make(), [id_ for line in lines for id_ in line])
    slot.write([700, *lines[3][-6:]])
    if slot.drafter.origin in (Origin.NGRAM_MOD, Origin.NGRAM_CACHE):
        pytest.skip("its table knows no places")
    slot.write(head, slot.draft())
    assert slot.draft(2).ids == (104, 204)


@pytest.mark.parametrize("make", [kind for name, kind in zip(NAMES, KINDS, strict=True) if name != "ngram-mod"])
def test_what_was_replaced_is_forgotten_with_the_next_request(make: Make) -> None:
    target = lines_with(1, 2)
    slot = Slot(make(), [*SOURCE, 7, 8])
    slot.write(target[:8])
    write(slot, target[8:])
    name = SOURCE.index(OLD[0])
    slot.end().begin([*SOURCE, 7, 8, *SOURCE[:name]])
    assert slot.draft(2).ids == OLD


@each
@given(STEPS, st.lists(st.integers(0, 9), min_size=12, max_size=12))
def test_any_text_can_be_followed(
    make: Make, steps: list[list[int] | tuple[int, list[int]]], accepted: list[int]
) -> None:
    """Of the draft before each step some ids are taken; what is drafted stays within bounds (`Slot.draft`), and nothing
    breaks.
    """
    slot = Slot(make())
    for step, n in zip(steps, accepted, strict=False):
        draft = slot.draft(12)
        if n and draft.ids:
            slot.write([*draft.ids[: n - 1], 4], draft)
        play(slot, step)
    slot.draft(12)


@each
def test_no_answer_is_its_own_source(make: Make) -> None:
    """Ids that were just written are no place to go on, though they agree with themselves."""
    slot = Slot(make(), [1, 2, 3] * 8)
    slot.draft(12)
    slot.write([50, 51, 52, 53])
    text = [RNG.randrange(100, 30000) for _ in range(60)]
    wrong, n_drafted = [], 0
    for _ in range(4):
        for at in range(0, 60, 4):
            draft = slot.draft(3)
            n_drafted += len(draft.ids)
            wrong += [id_ for id_, right in zip(draft.ids, text[at : at + 3], strict=False) if id_ != right][:1]
            slot.write(text[at : at + 4], draft)
    assert n_drafted > 80
    assert len(wrong) < 10


def test_a_text_full_of_edits_costs_no_more_with_its_length() -> None:
    """Differences that keep coming are not one long edit, and edits that begin alike are not tried one by one."""
    aligner, edits = CopyAligner(), known_edits()
    source = [id_ for i in range(400) for id_ in (7, 1000 + i, 8)]
    aligner.start(TextSource(source, 0), 8, 8)
    for at in range(1, len(source)):
        aligner.guess(4)
        aligner.observe([source[at] + (5000 if source[at] >= 1000 else 0)])
    assert max(map(len, aligner._edit)) < 20
    assert aligner.guess(3) is not None
    assert len(edits) <= 10


def known_edits() -> dict[int, int]:
    edits = Replacements()
    for i in range(500):
        edits.learn(7, tuple(range(i, i + 1 + i % 8)), (1,), (2, 3))
    return edits._lengths[7]


def test_edits_of_different_sources_are_not_one() -> None:
    aligner = CopyAligner()
    aligner.start(TextSource([*range(100, 200)], 0), 8, 8)
    aligner.observe([101, 1, 103, 104])
    aligner.observe(list(range(900, 940)))
    aligner.start(TextSource([*range(300, 400)], 0), 8, 8)
    aligner.observe([2, 302, 303, 304])
    guess = aligner.start(TextSource([299, 301, 302, 303], 0), 8, 3)
    assert list(guess.ids[:2]) == [2, 302]
    guess = aligner.start(TextSource([101, 102, 103, 104], 0), 8, 3)
    assert list(guess.ids[:2]) == [1, 103]


def test_an_edit_is_finished_over_several_rounds_and_forgotten_where_it_is_not_made() -> None:
    for written, forgotten in (([1, 2, 3, 106, 107], False), ([1, 9, 9, 106, 107], True), ([105, 106, 107], True)):
        aligner = CopyAligner()
        text = list(range(100, 160))
        aligner.start(TextSource(text, 0), 8, 8)
        aligner.observe([101, 102, 103, 104, 1, 2, 3, 106, 107])
        for _ in range(2):  # it is known by what is before, and by what is behind
            aligner.start(TextSource(text, 3), 8, 8)
            aligner.observe([104])
            for id_ in written:
                aligner.guess(1)
                aligner.observe([id_])
        guess = aligner.start(TextSource(text, 4), 8, 8)
        assert (list(guess.ids[:3]) != [1, 2, 3]) is forgotten, written


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(0, 60))
def test_while_the_source_is_copied_the_next_ids_are_its_own(text: list[int], n: int) -> None:
    endless = [text[0], *(text[1:] * 70)]
    aligner = CopyAligner()
    aligner.start(TextSource(text, 0), 1, 8)
    for at in range(1, 1 + n):
        guess = aligner.guess(8)
        assert guess is not None
        assert list(guess.ids[:8]) == endless[at : at + 8]
        assert guess.length == at
        aligner.observe([endless[at]])
        text.append(endless[at])
    assert aligner.is_copying


def test_a_copy_that_is_left_is_given_up() -> None:
    aligner = CopyAligner()
    aligner.start(TextSource(list(range(100)), 0), 8, 8)
    aligner.observe([1, 2, 50])
    assert not aligner.is_copying
    guess = aligner.guess(3)
    assert guess is not None
    assert list(guess.ids[:3]) == [4, 5, 6], "as if one id had been replaced"
    aligner.observe([60])
    assert aligner.guess(3) is None
    aligner.observe(range(200, 220))
    aligner.observe([4, 5, 6])
    assert aligner.guess(3) is None


def test_it_says_where_the_answer_left_its_source_and_how_long_ago() -> None:
    aligner = CopyAligner()
    text = list(range(100))
    aligner.start(TextSource(text, 0), 8, 8)
    assert (aligner.left, aligner.n_since) == (None, 0)
    aligner.observe([1, 2, 50, 51])
    assert (aligner.left, aligner.n_since) == (Located(TextSource(text, 2), 10), 2)
    aligner.observe([3, 4])
    assert aligner.n_since == 0, "it copies again"
    assert aligner.left == Located(TextSource(text, 2), 10)
    aligner.observe(range(200, 220))
    assert aligner.n_since == 0, "it has given up"


def test_a_glance_has_the_edits_and_follows_nothing() -> None:
    aligner = CopyAligner()
    text = list(range(100))
    aligner.start(TextSource(text, 0), 8, 8)
    aligner.observe([1, 2, 50, 4, 5])
    before = aligner.guess(3)
    assert list(aligner.glance(TextSource([2, 3, 4, 80], 0), 4, 3).ids[:3]) == [50, 4, 80]
    assert aligner.guess(3) == before


def test_little_that_was_copied_is_not_resumed_at_once() -> None:
    aligner = CopyAligner()
    aligner.start(TextSource(list(range(100)), 0), 3, 8)
    aligner.observe([1, 2, 50])
    assert aligner.guess(3) is None
    aligner.observe([4, 5])
    guess = aligner.guess(3)
    assert guess is not None
    assert list(guess.ids[:3]) == [6, 7, 8]
    assert guess.length == 2


def expected(edits: Replacements, *source: int) -> list[int]:
    """Behind an id that is part of no edit."""
    return list(edits.expect((0, *source)).ids[1:])


def test_edits_are_known_by_what_is_around_them() -> None:
    edits = Replacements()
    assert expected(edits, 1, 2, 3) == [1, 2, 3]
    edits.learn(9, (1,), (7, 8), (2,))
    assert expected(edits, 1, 2, 1, 3, 1, 2) == [7, 8, 2, 1, 3, 7, 8, 2]
    edits.learn(4, (), (5,), (6,))
    assert expected(edits, 6, 4, 6, 4) == [6, 4, 5, 6, 4]
    edits.learn(9, (1, 2), (), (3,))
    assert expected(edits, 1, 2, 3, 1, 2, 4) == [3, 7, 8, 2, 4], "the longer one first"
    edits.forget(Edit((1, 2), 0, 1, (7, 8)))
    edits.forget(Edit((1, 2), 0, 1, (7, 8)))
    edits.learn(9, (4,), (4,), (5,))
    assert not edits.expect((0, 4, 5)).edits, "nothing was changed"
    assert expected(edits, 1, 2, 4) == [1, 2, 4]
    edits.learn(9, tuple(range(20, 29)), (1,), (2,))
    assert expected(edits, *range(20, 29), 2) == [*range(20, 29), 2], "a sentence, not a name"


def test_an_edit_is_believed_by_how_often_it_was_made() -> None:
    edits, trust = Replacements(), []
    for _ in range(5):
        edits.learn(9, (1,), (7,), (2,))
        trust.append(edits.expect((0, 1, 2)).trust[1])
    assert trust == sorted(trust)
    assert 0.5 < trust[0] < trust[1] < trust[-1] < 1
    edits.learn(9, (1,), (8,), (2,))
    seen = edits.expect((0, 1, 2))
    assert (seen.ids[1], seen.trust[1]) == (8, trust[0])
    assert list(seen.weighed((1, 0.5, 0.25), 1)) == [0.5 * trust[0], 0.25]


def test_edits_are_bounded() -> None:
    edits = Replacements()
    for i in range(1000):
        edits.learn(10 * i, (10 * i + 1,), (5,), (10 * i + 2,))
    assert sum(expected(edits, 10 * i + 1, 10 * i + 2)[0] == 5 for i in range(1000)) == 256
    assert expected(edits, 9991, 9992) == [5, 9992]
