"""ngram-cache: counts that can be taken back, thresholds, the three sources, and their files."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import STEPS, Slot, play

from uad.drafts.lookup import ngram_cache
from uad.drafts.lookup.counts import SIZES, NgramCounts, Several, best
from uad.drafts.lookup.ngram_cache import N_COPIED, N_DRAFT, drafter, store_file


def counted(counts: NgramCounts) -> dict[tuple[int, ...], Counter[int]]:
    return {gram: Counter(followers) for gram, followers in counts.followers.items()}


def scan(ids: list[int], start: int = 0) -> dict[tuple[int, ...], Counter[int]]:
    found: dict[tuple[int, ...], Counter[int]] = {}
    for i in range(start, len(ids)):
        for size in SIZES:
            if i >= size:
                found.setdefault(tuple(ids[i - size : i]), Counter())[ids[i]] += 1
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
    for followers in counts.followers.values():
        id_, n, total = best(followers)
        assert n == followers[id_] == max(followers.values())
        assert total == sum(followers.values())
    again = NgramCounts()
    again.load(counts.rows())
    assert counted(again) == counted(counts)


@given(st.lists(st.integers(0, 3), max_size=80), st.data())
def test_the_most_frequent_follower_is_remembered_rightly(ids, data):
    """Whether or not it was asked for in between; of those that are as frequent the oldest."""
    counts, at = NgramCounts(), 0
    while at < len(ids):
        n = data.draw(st.integers(1, 9))
        counts.add(ids[: at + n], at)
        at += n
        if data.draw(st.booleans()):
            counts.take(ids[:at], max(at - 2, 0))
            counts.add(ids[:at], min(max(at - 2, 0), len(ids)))
        if data.draw(st.booleans()):
            for known in counts.table.values():
                if isinstance(known, Several):
                    assert known.best() == best(known.counts)


def test_ageing_forgets_what_was_seen_once():
    counts = NgramCounts()
    counts.add([1, 2, 1, 2, 1, 2, 3], 0)
    counts.age()
    assert counted(counts)[(1,)] == {2: 1}
    assert all(3 not in followers for followers in counts.followers.values())


@given(STEPS)
def test_the_context_is_what_is_in_the_slot(steps):
    slot = Slot(drafter(share="off"))
    for step in steps:
        play(slot, step)
        slot.draft()
        assert counted(slot.lookup.context) == scan(slot.ids)


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
    draft = Slot(drafter(share="off"), after(gram, *followers)).draft(1)
    assert draft.ids == ((drafted,) if drafted else ())


def test_it_drafts_on_behind_its_own_ids_for_sixteen_ids():
    text = list(range(40))
    slot = Slot(drafter(share="off"), [*text, *text[:8]])
    slot.draft(0)
    draft = slot.lookup._picked(N_DRAFT)
    assert draft.ids == tuple(text[8:24])
    assert draft.kind == "ngram-cache/context-6"
    assert Slot(drafter(share="off"), [*text, *text[:8]]).draft().ids == tuple(text[8 : 8 + N_COPIED]), (
        "further where the way is followed"
    )
    assert Slot(drafter(share="off"), [*text, *text[:8]]).draft(3).ids == tuple(text[8:11])


def test_earlier_answers_need_more_evidence_and_are_shared_as_told():
    for share, expected in (("server", [(), (7,)]), ("slot", [(), ()]), ("off", [(), ()])):
        made = drafter(share=share)
        found = []
        for seq in range(2):
            Slot(made, [next(FILL)], seq=seq).write(range(1, 8)).end()
            found.append(Slot(made, range(1, 7), seq=2).draft(1).ids)  # two counts are needed
        assert found == expected, share
    slot = Slot(drafter(share="slot"), [next(FILL)]).write(range(1, 8)).end().begin([9]).write(range(1, 8)).end()
    assert slot.begin(range(1, 7)).draft(1).ids == (7,)


def test_what_was_copied_from_earlier_answers_is_counted():
    text = [random.Random(i).randrange(30_000) for i in range(300)]
    made = drafter(share="slot")
    for _ in range(2):
        Slot(made, [next(FILL)]).write(text).end()
    slot = Slot(made, [next(FILL), *text[:12]])
    n_drafted = 0
    while len(slot.ids) < 250:
        draft = slot.draft(24)
        n_drafted += len(draft.ids)
        at = len(slot.ids) - 1
        slot.write([*draft.ids, *text[at + len(draft.ids) :][:1]], draft)
    slot.draft(0)
    assert n_drafted > 200
    assert counted(slot.lookup.context) == scan(slot.ids)


def test_places_that_go_on_differently_after_twelve_ids_are_told_apart():
    rng = random.Random(8)
    common = [rng.randrange(30_000) for _ in range(14)]
    lines = [
        [*(rng.randrange(30_000) for _ in range(40)), *common, *(rng.randrange(30_000) for _ in range(20))]
        for _ in range(3)
    ]
    made = drafter(share="off")
    slot = Slot(made, [*lines[0], *lines[1], *lines[2], 7])
    for line in (lines[1], lines[2]):  # of the first one it was not known yet that there are others
        slot.write(line[:46]).draft(0)
        draft = slot.draft(40)
        assert draft.ids == tuple(line[46 : 46 + N_COPIED])
        assert draft.p[8] > draft.p[7]  # no doubt
        slot.write([*line[46:], 8], draft)
    slot.end().begin([7])
    slot.draft(0)
    assert slot.lookup.context.longer == {}
    assert slot.lookup._known.earlier is None


def test_dynamic_statistics_are_bounded(monkeypatch):
    monkeypatch.setattr(ngram_cache, "_LIMIT", 1000)
    made = drafter()
    rng = random.Random(3)
    slot = Slot(made)
    for _ in range(30):
        slot.begin([1]).write([rng.randrange(10_000) for _ in range(100)]).end()
        assert len(slot.lookup._known.earlier) <= 1000 + 400
    assert slot.lookup._known.earlier.longer is None


def test_a_long_prompt_is_counted_over_several_rounds():
    prompt = [*range(2000), *range(1993, 1999)]
    slot = Slot(drafter(share="off"), prompt)
    sizes = []
    for _ in range(5):
        slot.draft(0)
        sizes.append(slot.lookup.size)
    assert sizes == [512, 1024, 1536, 2006, 2006]
    assert slot.draft(1).ids == (1999,)


VOCABULARY = "0123"


def learned(path, rounds=3, answer=(1, 2, 3, 4, 5, 6, 7)):
    """A dynamic file that was written by a server which gave this answer so often."""
    made = drafter(dynamic=store_file(path, VOCABULARY))
    for _ in range(rounds):
        Slot(made, [next(FILL)]).write(answer).end()
    made.close()


def test_the_dynamic_file_survives_a_restart(tmp_path):
    learned(tmp_path / "d")
    made = drafter(dynamic=store_file(tmp_path / "d", VOCABULARY))
    assert Slot(made, range(1, 7)).draft(1).ids == (7,)
    assert Slot(made, range(1, 7)).draft(1).kind == "ngram-cache/dynamic-6"
    Slot(made, range(1, 7)).write([6, 7]).end()
    made.close()
    assert len(store_file(tmp_path / "d", VOCABULARY).read()) > len(scan([1, 2, 3, 4, 5, 6, 7]))


def test_a_static_file_drafts_by_pairs_and_is_not_written(tmp_path):
    learned(tmp_path / "s")
    before = (tmp_path / "s").read_bytes()
    made = drafter(static=store_file(tmp_path / "s", VOCABULARY), share="off")
    draft = Slot(made, [9, 3, 4]).draft(1)
    assert (draft.ids, draft.kind) == ((5,), "ngram-cache/static")
    made.close()
    assert (tmp_path / "s").read_bytes() == before


def test_a_static_file_weighs_the_context(tmp_path):
    learned(tmp_path / "s", answer=(3, 4, 8))
    prompt = after([3, 4], 7, 7, 8, 8)  # a tie, in which 7 came first
    plain = Slot(drafter(share="off"), prompt).draft(1)
    weighed = Slot(drafter(static=store_file(tmp_path / "s", VOCABULARY), share="off"), prompt).draft(1)
    assert (plain.ids, weighed.ids) == ((7,), (8,))
    assert weighed.kind == "ngram-cache/context-2"


@pytest.mark.parametrize("role", ["static", "dynamic"])
def test_a_file_that_cannot_be_used_is_kept(tmp_path, caplog, role):
    path = tmp_path / "file"
    learned(path)
    path.write_bytes(path.read_bytes()[:-5])
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING):
        made = drafter(**{role: store_file(path, VOCABULARY)})
    assert "it was cut" in caplog.text
    assert "the server goes on without it" in caplog.text
    Slot(made, after([1, 2, 3, 4, 5, 6], 7)).write([7, 8, 9]).end()
    assert Slot(made, after([1, 2, 3, 4, 5, 6], 7)).draft(1).ids == (7,)
    made.close()
    assert path.read_bytes() == before
