"""Texts that end because a line begins too early, however they are cut into pieces."""

from __future__ import annotations

import pytest

from uad.engine.decode.sequence import Indentation


@pytest.mark.parametrize(
    ("n", "text", "kept"),
    [
        (0, "a\nb\n\nc", "a\nb\n\nc"),
        (2, "a\n  b\n\t\tc", "a\n  b\n\t\tc"),
        (2, "a\n b\n  c", "a\n "),
        (2, "first\nb", "first\n"),
        (1, "a\n\n  b", "a\n"),
        (4, "a\n    b\n  ", "a\n    b\n  "),
        (3, "no line end at all", "no line end at all"),
    ],
)
def test_the_text_ends_before_a_line_that_begins_too_early(n: int, text: str, kept: str) -> None:
    for size in (1, 2, 3, len(text)):
        indentation = Indentation(n)
        got = "".join(indentation.read(text[i : i + size]) for i in range(0, len(text), size))
        assert got == kept
        assert indentation.is_over == (got != text)
