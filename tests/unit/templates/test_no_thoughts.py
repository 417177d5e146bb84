"""Prompts that begin a thought where none is wanted."""

from __future__ import annotations

import pytest

from uad.text.templates.prefill import without_thoughts
from uad.text.templates.render import Part, Rendered


@pytest.mark.parametrize(
    ("end", "closed"),
    [
        ("<think>\n", "<think>\n</think>"),
        ("<|START_THINKING|>", "<|START_THINKING|><|END_THINKING|>"),
        ("[THINK]", "[THINK][/THINK]"),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
        ("<|im_start|>assistant\n", "<|im_start|>assistant\n"),
    ],
)
def test_they_are_closed(end: str, closed: str) -> None:
    assert without_thoughts(Rendered((Part("Hi.", False), Part(end, True)))).text == f"Hi.{closed}"


def test_what_a_user_types_begins_none() -> None:
    prompt = Rendered((Part("<think>", False),))
    assert without_thoughts(prompt) == prompt
