"""Finding the likeliest ids of a row without sorting it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from uad.base.common.logits import likeliest, likeliest_each


@given(st.integers(1, 60), st.integers(100, 3000), st.integers(0, 2**32 - 1))
def test_the_k_likeliest_are_among_those_found(k, n, seed):
    row = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    ids = likeliest(row, k)
    if ids is not None:
        assert set(np.argsort(-row)[:k]) <= set(ids)
        assert list(ids) == sorted(ids)


@given(st.integers(1, 20), st.integers(400, 2000), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_equal_logits_among_the_likeliest_are_left_to_the_sort(k, n, n_values, seed):
    row = np.random.default_rng(seed).integers(0, n_values, n).astype(np.float32)
    order = np.sort(row)[::-1][: k + 1]
    if len(set(order)) < len(order):
        assert likeliest(row, k) is None


def test_a_vocabulary_of_common_size_is_cut_to_few():
    row = np.random.default_rng(1).standard_normal(151_936).astype(np.float32)
    ids = likeliest(row, 40)
    assert ids is not None
    assert 40 <= len(ids) < 100


def test_a_row_that_is_mostly_banned_is_left_to_the_sort():
    row = np.full(4096, -np.inf, np.float32)
    row[5] = 1.0
    assert likeliest(row, 40) is None
    row[:100] = np.arange(100)
    ids = likeliest(row, 40)
    assert ids is None or set(range(60, 100)) <= set(ids)


@given(
    st.integers(1, 60),
    st.integers(100, 5000),
    st.integers(1, 6),
    st.sampled_from([2, 40, 10**6]),
    st.integers(0, 2**32 - 1),
)
def test_of_many_rows_those_of_each_are_found(k, n, n_rows, n_values, seed):
    rng = np.random.default_rng(seed)
    rows = (rng.integers(0, n_values, (n_rows, n)) / 100).astype(np.float32)
    rows[0, rng.random(n) < 0.9] = -np.inf
    for ids, row in zip(likeliest_each(rows, k), rows, strict=True):
        expected = likeliest(row, k)
        assert (ids is None) == (expected is None)
        assert ids is None or ids.tolist() == expected.tolist()
