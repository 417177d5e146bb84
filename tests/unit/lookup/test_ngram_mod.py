"""ngram-mod: a pool of hashes, lookahead, sharing, resets."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import STEPS, Slot, alone, play

from uad.base.common.sequences import common_prefix
from uad.drafts.lookup import ngram_mod
from uad.drafts.lookup.history import BELIEFS, ID_BYTES
from uad.drafts.lookup.lookup_drafter import LookupDrafter
from uad.drafts.lookup.ngram_mod import ID, Pool

RNG = random.Random(5)
TEXT = [RNG.randrange(30000) for _ in range(400)]


def mod(n_match: int = 4, n_min: int = 2, n_max: int = 8, share: str = "slot") -> LookupDrafter:
    return ngram_mod.drafter(n_match, n_min, n_max, share, n_slots=64)


def test_it_walks_from_id_to_id_as_far_as_the_pool_goes():
    slot = Slot(mod(), [*TEXT[:100], *TEXT[20:24]])
    assert slot.draft().ids == tuple(TEXT[24:32])
    assert slot.draft(3).ids == tuple(TEXT[24:27])
    slot.end().begin([*TEXT[:100], *TEXT[94:98]])
    assert slot.draft().ids[:2] == tuple(TEXT[98:100])


@pytest.mark.parametrize(("n_min", "drafts"), [(5, True), (6, False)])
def test_shorter_runs_than_n_min_are_dropped(n_min, drafts):
    ids = [*TEXT[:100], *TEXT[91:95]]  # five ids are known behind it; then the pool knows TEXT[99]'s follower, TEXT[91]
    slot = Slot(ngram_mod.drafter(4, n_min, 8, "slot", n_slots=64), ids[:100])
    slot.draft(0)
    pool = slot.lookup.pool
    slot.write(ids[100:])
    slot.draft(0)
    pool.table[pool.slot(TEXT, 100, 4)] = -1
    assert bool(slot.draft().ids) is drafts


def test_n_min_is_a_run_in_the_pool_not_room_in_the_batch():
    slot = Slot(mod(n_min=8), [*TEXT[:100], *TEXT[20:24]])
    assert slot.draft(3).ids == tuple(TEXT[24:27])


@given(STEPS, st.integers(1, 4), st.integers(1, 6), st.lists(st.booleans(), min_size=12, max_size=12))
def test_it_is_a_dictionary_of_hashes(steps, n, n_max, asked):
    """Drafts are never judged here, so the pool holds what was there when a draft was asked for: the latest follower of
    every hash.
    """
    slot = Slot(alone(ngram_mod.drafter(n, 1, n_max, "slot", n_slots=64)))
    slot.lookup.pool.longer = sys.maxsize
    place = slot.lookup.pool.slot
    table: dict[int, int] = {}
    size = 0
    for step, ask in zip(steps, asked, strict=False):
        before = list(slot.ids)
        play(slot, step)
        size = min(size, common_prefix(before, slot.ids))
        slot.lookup.guess = ()
        if not ask:
            continue
        table |= {place(slot.ids, i, n): slot.ids[i] for i in range(max(size, n), len(slot.ids))}
        size = len(slot.ids)
        ids = list(slot.ids)
        while (
            len(ids) >= n and len(ids) - size < n_max and (follower := table.get(place(ids, len(ids), n))) is not None
        ):
            ids.append(follower)
        assert slot.draft().ids == tuple(ids[size:])


def test_what_came_as_foreseen_makes_the_next_id_surer():
    slot = Slot(mod(), [*TEXT[:100], *TEXT[20:24]])
    for _ in range(5):
        draft = slot.draft()
        assert draft.ids == tuple(TEXT[len(slot.ids) - 80 : len(slot.ids) - 72])
        slot.write([*draft.ids, TEXT[len(slot.ids) - 72]], draft)
    slot.draft(0)
    assert slot.lookup.size == len(slot.ids)
    assert slot.draft().p[0] == BELIEFS[4 + 45]  # 4 ids and a streak of 45


def test_slots_share_a_pool_or_not():
    for share, ids in (("server", tuple(TEXT[24:32])), ("slot", ()), ("off", ())):
        drafter = mod(share=share)
        Slot(drafter, TEXT[:100], seq=0).draft(0)
        assert Slot(drafter, TEXT[20:24], seq=1).draft().ids == ids, share


def test_a_slot_remembers_earlier_prompts_unless_sharing_is_off():
    for share, ids in (("server", tuple(TEXT[24:32])), ("slot", tuple(TEXT[24:32])), ("off", ())):
        slot = Slot(mod(share=share), TEXT[:100])
        slot.draft(0)
        assert slot.end().begin(TEXT[20:24]).draft().ids == ids, share


def test_five_poor_drafts_in_a_row_empty_the_pool():
    slot = Slot(mod(), TEXT[:300])
    for start in range(0, 250, 50):
        assert slot.lookup.pool.epoch == 0
        slot.write(TEXT[start : start + 4])
        slot.write([31000], slot.draft())
    slot.write(TEXT[20:24])
    assert slot.draft().ids == ()
    assert slot.lookup.pool.epoch == 1
    slot.end().begin([*TEXT[:300], *TEXT[20:24]])  # a new prompt is read in again
    assert slot.draft().ids == tuple(TEXT[24:32])


@pytest.mark.parametrize("n_submitted", [2, 0])
def test_only_what_was_submitted_is_judged(n_submitted):
    """A policy cuts long guesses, or only looks at them: that the text goes on differently further on says nothing
    against the pool.
    """
    slot = Slot(mod(n_max=40), TEXT[:300])
    for start in range(0, 250, 50):
        slot.write(TEXT[start : start + 4])
        draft = slot.draft(40)
        assert len(draft.ids) > 4 * n_submitted
        slot.write([*draft.ids[:n_submitted], 31000], draft.first(n_submitted))
    slot.write(TEXT[20:24])
    assert slot.draft().ids[:4] == tuple(TEXT[24:28])
    assert slot.lookup.pool.epoch == 0


def test_a_good_draft_ends_the_streak():
    slot = Slot(mod(), TEXT[:300])
    for i in range(9):
        slot.write(TEXT[i * 30 : i * 30 + 4])
        draft = slot.draft()
        slot.write([*draft.ids[: 8 * (i % 2)], 31000], draft)
    assert slot.lookup.pool.epoch == 0


def test_a_full_pool_starts_anew_with_the_next_prompt():
    slot = Slot(mod(), TEXT[:100])
    slot.draft(0)
    pool = slot.lookup.pool
    pool.n_used = len(pool.table) // 4 + 1
    slot.end().begin([*TEXT[:100], *TEXT[20:24]])
    assert slot.draft().ids == tuple(TEXT[24:32])
    assert pool.epoch == 1
    assert pool.n_used == 100  # the entries of the prompt, and nothing else


@given(st.lists(st.integers(0, 5), min_size=8, max_size=200), st.integers(1, 5))
def test_learning_is_a_dictionary_that_marks_what_it_rewrites(ids, n):
    pool, table, rewritten, streak = Pool(n, 1 << 16), {}, set(), 0
    pool.longer = sys.maxsize
    for i in range(n, len(ids)):
        slot = pool.slot(ids, i, n)
        streak = streak + 1 if table.get(slot) == ids[i] else 0
        assert pool.learn(ids[: i + 1], i, 7) == (streak and 7 + 1)
        if table.get(slot, ids[i]) != ids[i]:
            rewritten.add(slot)
        table[slot] = ids[i]
    assert {slot: id_ & ID for slot, id_ in enumerate(pool.table) if id_ >= 0} == table
    assert {slot for slot, id_ in enumerate(pool.table) if id_ > ID} == rewritten
    assert pool.n_used == len(table)


@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_ambiguous_is_told_apart_by_more_ids(at_once):
    """Four ids are followed by one id here and by another there: where eight are known, both places are copied as they
    were.
    """
    here, there = [*TEXT[:20], 1, 2, 3, 4, *TEXT[20:40]], [*TEXT[40:60], 1, 2, 3, 4, *TEXT[60:80]]
    drafter = mod(n_min=1, n_max=30)
    slot = Slot(drafter, [7])
    for _ in range(2):  # the first place is known to be ambiguous from the second on
        for text in (here, there):
            slot.write(text, slot.draft(0))
            if not at_once:
                slot.draft(0)
    if at_once:
        slot = Slot(mod(n_min=1, n_max=30), slot.ids)
    for text in (here, there):
        slot.write(text[:17])
        draft = slot.draft(24)
        assert draft.ids == tuple(text[17:41])
        assert draft.p[7] > draft.p[6]  # no doubt
        slot.end().begin([*slot.ids, 8])


def test_memory_is_constant():
    assert ngram_mod.drafter().memory == 16 << 20
    drafter = mod(share="server")
    Slot(drafter, TEXT).draft(0)
    assert drafter.memory == (16 << 20) + ID_BYTES * len(TEXT)
    drafter = ngram_mod.drafter(share="slot", n_slots=4)
    for seq in range(4):
        Slot(drafter, seq=seq)
    assert drafter.memory == 16 << 20
