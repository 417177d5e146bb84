"""Numbers in lines for people: digits that count, and no exponent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uad.base.common.files import size_text
from uad.base.common.numbers import duration, rounded


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (197.7, 2, "198"),
        (190.0, 2, "190"),
        (6.84, 2, "6.8"),
        (0.999, 2, "1.0"),
        (9.96, 2, "10"),
        (0.0123, 2, "0.012"),
        (0.0, 2, "0"),
        (1234.5, 3, "1,234"),
        (40.893, 3, "40.9"),
    ],
)
def test_as_many_digits_as_count(value: float, digits: int, text: str) -> None:
    assert rounded(value, digits) == text


@given(st.floats(1e-9, 1e15))
def test_no_number_has_an_exponent_and_all_are_near(value: float) -> None:
    text = rounded(value)
    assert "e" not in text
    assert abs(float(text.replace(",", "")) - value) <= 0.06 * value


@pytest.mark.parametrize(
    ("ms", "text"), [(0.2, "0 ms"), (190.4, "190 ms"), (999.6, "1.0 s"), (2910, "2.9 s"), (61_000, "61 s")]
)
def test_times_have_the_unit_that_one_would_say(ms: float, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("n", "text"), [(1.5 * 2**30, "1.5 GiB"), (999.9 * 2**20, "1000 MiB"), (1000 * 2**10, "1000 KiB"), (7, "7 bytes")]
)
def test_sizes_have_no_exponent(n: float, text: str) -> None:
    assert size_text(n) == text
