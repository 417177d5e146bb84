"""The index of n-grams against scans, and arithmetic on matches."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from kit.drafter_kit import IDS

from uad.base.common.sequences import common_suffix
from uad.drafts.lookup.history import IDS_AT_ONCE, MAX_MATCH_IDS, GramIndex, agreement
from uad.drafts.lookup.sources import TextSource

CHANGES = st.lists(
    st.one_of(st.lists(IDS, max_size=12), st.lists(IDS, min_size=250, max_size=330), st.integers(0, 400)), max_size=10
)


def scan(ids: list[int], gram: list[int], below: int) -> list[int]:
    n = len(gram)
    return [end for end in range(min(below - 1, len(ids)), n - 1, -1) if ids[end - n : end] == gram]


@given(st.integers(1, 6), CHANGES)
def test_an_index_that_grew_and_shrank_is_a_scan(n, changes):
    ids: list[int] = []
    index = GramIndex(ids, n)
    for change in changes:
        if isinstance(change, int):
            index.shrink(change)
            del ids[change:]
        else:
            ids += change
            index.grow()
        assert index.size == len(ids)
        grams = {tuple(ids[i : i + n]) for i in range(max(len(ids) - 30, 0), len(ids) - n + 1)}
        for gram in map(list, grams):
            assert index.ends(gram, len(ids), 20) == scan(ids, gram, len(ids))[:20]


@given(st.integers(1, 6), st.lists(IDS, max_size=60), st.integers(0, 61), st.integers(1, 5))
def test_bounds_of_a_search(n, ids, below, limit):
    index = GramIndex(ids, n)
    index.grow()
    if len(ids) >= n:
        assert index.ends(ids[-n:], below, limit) == scan(ids, ids[-n:], below)[:limit]


def test_a_table_that_grows_loses_nothing():
    rng = random.Random(1)
    ids = [rng.randrange(50) for _ in range(3000)]
    for n in (1, 2, 5, 12, 24):
        text: list[int] = []
        index = GramIndex(text, n)
        for i, id_ in enumerate(ids):
            text.append(id_)
            if i % 7 == 0:
                index.grow()
        index.grow()
        for start in range(0, len(ids) - n, 97):
            gram = ids[start : start + n]
            assert index.ends(gram, len(ids), 8) == scan(ids, gram, len(ids))[:8]
        assert index.memory < 16 * len(ids)


def test_a_long_text_is_indexed_in_several_rounds():
    ids = list(range(IDS_AT_ONCE + 10))
    index = GramIndex(ids, 2)
    for size in (IDS_AT_ONCE, IDS_AT_ONCE + 10, IDS_AT_ONCE + 10):
        index.grow()
        assert index.size == size
        assert index.ends(ids[size - 2 : size], size + 1, 1) == [size]


@given(st.lists(IDS, max_size=150), st.lists(IDS, max_size=150), st.data())
def test_a_match_is_measured_exactly(text, ids, data):
    end = data.draw(st.integers(0, len(text)))
    expected = 0
    while expected < min(MAX_MATCH_IDS, end, len(ids)) and text[end - expected - 1] == ids[-expected - 1]:
        expected += 1
    known = data.draw(st.integers(0, expected))
    assert common_suffix(text, end, ids, MAX_MATCH_IDS, known) == expected


@given(st.lists(IDS, min_size=1, max_size=30), st.data(), st.integers(1, 80))
def test_a_copy_goes_on_into_itself(text, data, n):
    start = data.draw(st.integers(0, len(text) - 1))
    grown = list(text)
    for i in range(n):
        grown.append(grown[start + i])
    assert TextSource([0, *text], start).ahead(len(grown) - start)[1:] == grown[start:]


def test_agreement_knows_when_it_is_the_last_word():
    ids = [1, 2, 3]
    assert agreement([2, 3], ids, 1) == (2, True)
    assert agreement([2, 9], ids, 1) == (1, True)
    assert agreement([2, 3, 4], ids, 1) == (2, False)
    assert agreement([4], ids, 3) == (0, False)
