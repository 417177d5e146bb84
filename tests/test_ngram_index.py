"""The index of n-grams and the history on it, against scans."""

from __future__ import annotations

import random

import numpy as np
from drafter_kit import IDS
from hypothesis import given
from hypothesis import strategies as st

from uad.drafters.history import (
    MAX_MATCH,
    GramIndex,
    History,
    agreement,
    copy,
    hash_of,
    hashes_of,
    match_length,
    suffix_hashes,
)

CHANGES = st.lists(st.one_of(st.lists(IDS, max_size=12), st.lists(IDS, min_size=250, max_size=330), st.integers(0, 400)), max_size=10)


def scan(ids: list[int], gram: list[int], below: int) -> list[int]:
    n = len(gram)
    return [end for end in range(min(below - 1, len(ids)), n - 1, -1) if ids[end - n : end] == gram]


@given(st.integers(1, 6), CHANGES)
def test_an_index_that_grew_and_shrank_is_a_scan(n, changes):
    index, ids = GramIndex(n), []
    for change in changes:
        if isinstance(change, int):
            del ids[change:]
            index.shrink(len(ids))
        else:
            ids += change
            index.grow(ids, len(ids))
        assert index.size == len(ids)
        grams = {tuple(ids[i : i + n]) for i in range(max(len(ids) - 30, 0), len(ids) - n + 1)}
        for gram in map(list, grams):
            assert index.ends(ids, gram, hash_of(gram), len(ids), 20) == scan(ids, gram, len(ids))[:20]


@given(st.integers(1, 6), st.lists(IDS, max_size=60), st.data())
def test_bounds_of_a_search(n, ids, data):
    index = GramIndex(n)
    index.grow(ids, len(ids))
    if len(ids) < n:
        return
    gram = ids[-n:]
    above, below, limit = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 61)), data.draw(st.integers(1, 5))
    expected = [end for end in scan(ids, gram, below) if end > above][:limit]
    assert index.ends(ids, gram, hash_of(gram), below, limit, above) == expected


def test_many_ids_at_once_or_one_by_one_are_the_same():
    rng = random.Random(1)
    ids = [rng.randrange(50) for _ in range(3000)]
    for n in (1, 2, 5, 12, 24):
        one, many = GramIndex(n), GramIndex(n)
        for stop in range(1, len(ids) + 1):
            one.grow(ids, stop)
        many.grow(ids, len(ids))
        for start in range(0, len(ids) - n, 97):
            gram = ids[start : start + n]
            found = [index.ends(ids, gram, hash_of(gram), len(ids), 8) for index in (one, many)]
            assert found[0] == found[1] == scan(ids, gram, len(ids))[:8]


def test_what_is_skipped_is_not_found_and_the_rest_is():
    index, ids = GramIndex(2), [1, 2, 3, 1, 2, 3, 1, 2]
    index.grow(ids, 4)
    index.skip(6)
    index.grow(ids, 8)
    assert index.ends(ids, [1, 2], hash_of([1, 2]), 9, 9) == [8, 2]
    assert index.ends(ids, [3, 1], hash_of([3, 1]), 9, 9) == [7, 4]
    index.shrink(5)
    index.grow(ids, 8)
    assert index.ends(ids, [1, 2], hash_of([1, 2]), 9, 9) == [8, 2]
    long = [*ids, *range(2000)]
    index.grow(long, len(long))
    assert index.ends(long, [1, 2], hash_of([1, 2]), 9, 9) == [8, 2]


@given(st.lists(st.integers(-1, 300000), min_size=1, max_size=40), st.integers(1, 30))
def test_hashes_agree(ids, n):
    if len(ids) < n:
        return
    expected = [hash_of(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    assert hashes_of(np.array(ids, dtype=np.int64), n).tolist() == expected
    sizes = sorted({1, n})
    assert suffix_hashes(ids, sizes) == [hash_of(ids[-size:]) for size in sizes]


@given(st.lists(st.lists(IDS, max_size=40), min_size=1, max_size=6))
def test_a_history_keeps_the_common_beginning(prompts):
    history, before = History((3,)), []
    for prompt in prompts:
        kept = history.begin(prompt)
        common = next((i for i, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), min(len(before), len(prompt)))
        assert kept == common
        assert history.ids == prompt
        assert history.indexes[0].size <= kept
        history.catch_up(100)
        assert history.indexes[0].size == len(prompt)
        before = prompt


def test_a_history_indexes_few_ids_per_call_unless_there_are_many():
    history = History((2,))
    history.begin(range(100))
    history.catch_up(16)
    assert history.indexes[0].size == 100
    history.ids.extend(range(40))
    history.catch_up(16)
    assert history.indexes[0].size == 116
    history.ids.extend(range(41))
    history.catch_up(16)  # 65 are waiting
    assert history.indexes[0].size == len(history.ids)


def test_skipped_ids_are_indexed_when_the_next_prompt_comes():
    history = History((2,))
    history.begin([1, 2, 3, 4])
    history.catch_up(99)
    history.ids.extend([1, 2, 3])
    history.skip(4, 7, 3)
    history.catch_up(99)
    assert history.indexes[0].ends(history.ids, [2, 3], hash_of([2, 3]), 99, 9) == [3]
    assert history.indexes[0].ends(history.ids, [4, 1], hash_of([4, 1]), 99, 9) == [5]
    history.begin([1, 2, 3, 4, 1, 2, 3, 9])
    history.catch_up(99)
    assert history.indexes[0].ends(history.ids, [2, 3], hash_of([2, 3]), 99, 9) == [7, 3]


def test_nothing_is_skipped_that_is_not_a_copy():
    history = History((2, 3))
    history.begin([1, 2, 3, 4, 5])
    history.catch_up(99)
    history.ids.extend([1, 2, 9, 4, 5])
    history.skip(5, 10, 5)
    history.skip(5, 10, 10)  # not of itself
    history.skip(5, 99, 2)
    history.catch_up(99)
    assert history.indexes[0].ends(history.ids, [9, 4], hash_of([9, 4]), 99, 9) == [9]
    assert history.indexes[1].ends(history.ids, [2, 9, 4], hash_of([2, 9, 4]), 99, 9) == [9]


@given(st.lists(IDS, max_size=150), st.lists(IDS, max_size=150), st.data())
def test_match_length_is_exact(text, ids, data):
    end = data.draw(st.integers(0, len(text)))
    expected = 0
    while expected < min(MAX_MATCH, end, len(ids)) and text[end - expected - 1] == ids[-expected - 1]:
        expected += 1
    known = data.draw(st.integers(0, expected))
    assert match_length(text, end, ids, known) == expected


@given(st.lists(IDS, min_size=1, max_size=30), st.data(), st.integers(1, 80))
def test_a_copy_goes_on_into_itself(text, data, n):
    start = data.draw(st.integers(0, len(text) - 1))
    grown = list(text)
    for i in range(n):
        grown.append(grown[start + i])
    assert copy(text, start, n) == grown[len(text) :]


def test_agreement_knows_when_it_is_the_last_word():
    ids = [1, 2, 3]
    assert agreement([2, 3], ids, 1) == (2, True)
    assert agreement([2, 9], ids, 1) == (1, True)
    assert agreement([2, 3, 4], ids, 1) == (2, False)
    assert agreement([4], ids, 3) == (0, False)
