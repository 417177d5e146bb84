"""ngram-cache: counts that can be taken back, thresholds, the three sources, and their files."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest
from drafter_kit import STEPS, Slot, play
from hypothesis import given
from hypothesis import strategies as st

from uad.drafters import ngram_cache
from uad.drafters.counts import ID_BITS, SIZES, NgramCounts, best, items, key_of
from uad.drafters.ngram_cache import N_COPIED, NgramCache, store_file


def counted(counts: NgramCounts) -> dict[tuple[int, int], Counter[int]]:
    return {
        (size, key): Counter(dict(items(entry))) for size, table in zip(SIZES, counts.tables, strict=True) for key, entry in table.items()
    }


def scan(ids: list[int], start: int = 0) -> dict[tuple[int, int], Counter[int]]:
    found: dict[tuple[int, int], Counter[int]] = {}
    for i in range(start, len(ids)):
        for size in SIZES:
            if i >= size:
                found.setdefault((size, key_of(ids[i - size : i])), Counter())[ids[i]] += 1
    return found


@given(st.lists(st.integers(0, 3), max_size=60), st.data())
def test_counts_are_a_scan_and_can_be_taken_back(ids, data):
    counts = NgramCounts()
    cut = data.draw(st.integers(0, len(ids)))
    counts.add(ids[:cut], 0)
    counts.add(ids, cut)
    assert counted(counts) == scan(ids)
    kept = data.draw(st.integers(0, len(ids)))
    counts.take(ids, kept)
    assert counted(counts) == scan(ids[:kept])
    for (size, key), followers in counted(counts).items():
        id_, n, total = best(counts.tables[SIZES.index(size)][key])
        assert n == followers[id_] == max(followers.values())
        assert total == sum(followers.values())
    again = NgramCounts()
    again.load(counts.rows())
    assert counted(again) == counted(counts)


def test_wide_ids_fit():
    ids = [(1 << ID_BITS) - 1, 0, (1 << ID_BITS) - 1, 5, 6]
    counts = NgramCounts()
    counts.add(ids, 0)
    assert counted(counts) == scan(ids)


def test_ageing_forgets_what_was_seen_once():
    counts = NgramCounts()
    counts.add([1, 2, 1, 2, 1, 2, 3], 0)
    counts.age()
    assert counted(counts)[1, 1] == {2: 1}
    assert (1, 3) not in counted(counts)


@given(STEPS)
def test_the_context_is_what_is_in_the_slot(steps):
    drafter = NgramCache(share="off", follow=False)
    slot = Slot(drafter)
    for step in steps:
        play(slot, step)
        slot.draft()
        assert counted(drafter._slots[0].context) == scan(slot.ids)


LINE = list(range(10, 40))


@given(STEPS, st.lists(st.integers(0, 4), min_size=12, max_size=12), st.integers(0, 400))
def test_what_is_copied_is_counted_with_the_next_prompt(steps, rounds, n_kept):
    """And not before: it is known from where it was copied. No n-gram is missing meanwhile, and nothing is counted twice."""
    drafter = NgramCache(share="off")
    slot = Slot(drafter, LINE * 2)
    for step, n in zip(steps, rounds, strict=False):
        for _ in range(n):
            draft = slot.draft(24)
            slot.write([*draft.ids, 4], draft)
        play(slot, step)
    slot.draft(0)
    assert set(counted(drafter._slots[0].context)) == set(scan(slot.ids))
    slot.end().begin([*slot.ids[:n_kept], 3])
    for _ in range(1 + len(slot.ids) // 512):
        slot.draft(0)
    assert counted(drafter._slots[0].context) == scan(slot.ids)


def test_a_long_copy_is_not_counted_again():
    drafter = NgramCache(share="off")
    text = [random.Random(i).randrange(30_000) for i in range(600)]
    slot = Slot(drafter, [*text, *text[:12]])
    slot.draft(0)
    while len(slot.ids) < 1170:
        draft = slot.draft(24)
        at = len(slot.ids) - 600
        assert draft.ids == tuple(text[at : at + 24])
        slot.write([*draft.ids, *text[at + 24 : at + 25]], draft)
    assert len(counted(drafter._slots[0].context)) < len(scan(text)) + 100
    assert sum(c.total() for c in counted(drafter._slots[0].context).values()) < 4 * 700


FILL = iter(range(10_000, 1_000_000))


def after(gram: list[int], *followers: int) -> list[int]:
    """Each follower behind the n-gram, with new ids around, and the n-gram at the end."""
    out = []
    for follower in followers:
        out += [next(FILL), *gram, follower]
    return [*out, next(FILL), *gram]


@pytest.mark.parametrize(
    ("gram", "followers", "drafted"),
    [
        ([1], [7], None),  # one id before: two counts are needed
        ([1], [7, 7], 7),
        ([1], [7, 7, 8], 7),  # 66 %
        ([1], [7, 8], None),
        ([1, 2], [7], None),
        ([1, 2], [7, 7, 8, 8], 7),  # 50 % is enough for pairs
        ([1, 2], [7, 7, 8, 8, 9], None),
        ([1, 2, 3, 4], [7], None),  # no longer n-gram than a pair
        ([1, 2, 3, 4, 5, 6], [7], 7),  # six ids: once is enough
        ([1, 2, 3, 4, 5, 6, 7, 8], [9], 9),
        ([1, 2, 3, 4, 5, 6], [7, 8, 9], None),  # a third is too little
        ([1, 2, 3, 4, 5, 6], [7, 7, 8, 9], 7),
    ],
)
def test_evidence_needed_in_the_context(gram, followers, drafted):
    draft = Slot(NgramCache(share="off"), after(gram, *followers)).draft(1)
    assert draft.ids == ((drafted,) if drafted else ())


def test_it_drafts_on_behind_its_own_ids_for_sixteen_ids():
    text = list(range(40))
    draft = Slot(NgramCache(share="off", follow=False), [*text, *text[:8]]).draft()
    assert draft.ids == tuple(text[8:24])
    assert draft.kind == "ngram-cache/context-6"
    assert Slot(NgramCache(share="off"), [*text, *text[:8]]).draft().ids == tuple(text[8 : 8 + N_COPIED]), (
        "further where the way is followed"
    )
    assert Slot(NgramCache(share="off"), [*text, *text[:8]]).draft(3).ids == tuple(text[8:11])


def test_earlier_answers_need_more_evidence_and_are_shared_as_told():
    for share, expected in (("server", [(), (7,)]), ("slot", [(), ()]), ("off", [(), ()])):
        drafter = NgramCache(share=share)
        found = []
        for seq in range(2):
            Slot(drafter, [next(FILL)], seq=seq).write(range(1, 8)).end()
            found.append(Slot(drafter, range(1, 7), seq=2).draft(1).ids)  # two counts are needed
        assert found == expected, share
    slot = Slot(NgramCache(share="slot"), [next(FILL)]).write(range(1, 8)).end().begin([9]).write(range(1, 8)).end()
    assert slot.begin(range(1, 7)).draft(1).ids == (7,)


def test_what_was_copied_from_earlier_answers_is_counted():
    """The context does not know it yet."""
    text = [random.Random(i).randrange(30_000) for i in range(300)]
    drafter = NgramCache(share="slot")
    for _ in range(2):
        Slot(drafter, [next(FILL)]).write(text).end()
    slot = Slot(drafter, [next(FILL), *text[:12]])
    n_drafted = 0
    while len(slot.ids) < 250:
        draft = slot.draft(24)
        n_drafted += len(draft.ids)
        at = len(slot.ids) - 1
        slot.write([*draft.ids, *text[at + len(draft.ids) :][:1]], draft)
    slot.draft(0)
    assert n_drafted > 200
    assert counted(drafter._slots[0].context) == scan(slot.ids)


def test_places_that_go_on_differently_after_twelve_ids_are_told_apart():
    rng = random.Random(8)
    common = [rng.randrange(30_000) for _ in range(14)]
    lines = [[*(rng.randrange(30_000) for _ in range(40)), *common, *(rng.randrange(30_000) for _ in range(20))] for _ in range(3)]
    drafter = NgramCache(share="off")
    slot = Slot(drafter, [*lines[0], *lines[1], *lines[2], 7])
    for line in (lines[1], lines[2]):  # of the first one it was not known yet that there are others
        slot.write(line[:46]).draft(0)
        draft = slot.draft(40)
        assert draft.ids == tuple(line[46 : 46 + N_COPIED])
        assert draft.p[8] > draft.p[7]  # no doubt
        slot.write([*line[46:], 8], draft)
    slot.end().begin([7])
    slot.draft(0)
    assert drafter._slots[0].context.longer == {}
    assert drafter._shared is None


def test_dynamic_statistics_are_bounded(monkeypatch):
    monkeypatch.setattr(ngram_cache, "_LIMIT", 1000)
    drafter = NgramCache()
    rng = random.Random(3)
    slot = Slot(drafter)
    for _ in range(30):
        slot.begin([1]).write([rng.randrange(10_000) for _ in range(100)]).end()
        assert len(drafter._shared) <= 1000 + 400
    assert drafter._shared.longer is None


def test_a_long_prompt_is_counted_over_several_rounds():
    prompt = [*range(2000), *range(1993, 1999)]
    slot = Slot(NgramCache(share="off"), prompt)
    sizes = []
    for _ in range(5):
        slot.draft(0)
        sizes.append(slot.drafter._slots[0].size)
    assert sizes == [512, 1024, 1536, 2006, 2006]
    assert slot.draft(1).ids == (1999,)


VOCABULARY = "0123"


def learned(path, rounds=3, answer=(1, 2, 3, 4, 5, 6, 7)):
    """A dynamic file that was written by a server which gave this answer so often."""
    drafter = NgramCache(dynamic=store_file(path, VOCABULARY))
    for _ in range(rounds):
        Slot(drafter, [next(FILL)]).write(answer).end()
    drafter.close()


def test_the_dynamic_file_survives_a_restart(tmp_path):
    learned(tmp_path / "d")
    drafter = NgramCache(dynamic=store_file(tmp_path / "d", VOCABULARY))
    assert Slot(drafter, range(1, 7)).draft(1).ids == (7,)
    assert Slot(drafter, range(1, 7)).draft(1).kind == "ngram-cache/dynamic-6"
    Slot(drafter, range(1, 7)).write([6, 7]).end()
    drafter.close()
    assert len(store_file(tmp_path / "d", VOCABULARY).read()) > len(scan([1, 2, 3, 4, 5, 6, 7]))


def test_a_static_file_drafts_by_pairs_and_is_not_written(tmp_path):
    learned(tmp_path / "s")
    before = (tmp_path / "s").read_bytes()
    drafter = NgramCache(static=store_file(tmp_path / "s", VOCABULARY), share="off")
    draft = Slot(drafter, [9, 3, 4]).draft(1)
    assert (draft.ids, draft.kind) == ((5,), "ngram-cache/static")
    drafter.close()
    assert (tmp_path / "s").read_bytes() == before


def test_a_static_file_weighs_the_context(tmp_path):
    learned(tmp_path / "s", answer=(3, 4, 8))
    prompt = after([3, 4], 7, 7, 8, 8)  # a tie, in which 7 came first
    plain = Slot(NgramCache(share="off"), prompt).draft(1)
    weighed = Slot(NgramCache(static=store_file(tmp_path / "s", VOCABULARY), share="off"), prompt).draft(1)
    assert (plain.ids, weighed.ids) == ((7,), (8,))
    assert weighed.kind == "ngram-cache/context-2"


@pytest.mark.parametrize("role", ["static", "dynamic"])
def test_a_file_that_cannot_be_used_is_kept(tmp_path, caplog, role):
    path = tmp_path / "file"
    learned(path)
    path.write_bytes(path.read_bytes()[:-5])
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING):
        drafter = NgramCache(**{role: store_file(path, VOCABULARY)})
    assert "it was cut" in caplog.text
    assert "the server goes on without it" in caplog.text
    Slot(drafter, after([1, 2, 3, 4, 5, 6], 7)).write([7, 8, 9]).end()
    assert Slot(drafter, after([1, 2, 3, 4, 5, 6], 7)).draft(1).ids == (7,)
    drafter.close()
    assert path.read_bytes() == before
