"""Pairs of values of the tests' dimensions."""

from __future__ import annotations

import itertools

from kit.pairs import pairs


def test_every_two_values_meet_in_few_cases() -> None:
    dimensions = ("abcd", (1, 2, 3), (False, True), (None, 0.0))
    cases = pairs(*dimensions)
    for i, j in itertools.combinations(range(4), 2):
        assert {(case[i], case[j]) for case in cases} == {*itertools.product(dimensions[i], dimensions[j])}
    assert len(cases) == len(set(cases)) < 18 < 48


def test_two_dimensions_are_a_product() -> None:
    assert pairs("ab", [1, 2]) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
