"""Which probabilities go with which block of an answer."""

from __future__ import annotations

from collections.abc import Iterator

from uad.base.types import TokenProb
from uad.http.apis.blocks import Added, Blocks
from uad.text.calls.events import CallEvent, Content, Thought


class ScriptedParser:
    """Says what the next piece of an answer means."""

    def __init__(self, *pieces: list[CallEvent]) -> None:
        self._pieces: Iterator[list[CallEvent]] = iter(pieces)

    def feed(self, text: str) -> list[CallEvent]:
        return next(self._pieces)

    def finish(self) -> list[CallEvent]:
        return []


def probs_of(text: str) -> list[TokenProb]:
    return [TokenProb(ord(letter), letter.encode(), -0.5) for letter in text]


def test_a_text_that_begins_in_the_piece_that_ends_a_thought_keeps_its_probabilities() -> None:
    parser = ScriptedParser([Thought("hm")], [Thought("m."), Content("he")], [Content("llo")])
    blocks = Blocks(parser, "call_")  # type: ignore[arg-type]
    steps = [step for text in ("<think>hm", "m.</think>he", "llo") for step in blocks.feed(text, probs_of(text))]
    told = [b"".join(one.data for one in step.probs) for step in steps if isinstance(step, Added)]
    assert told == [b"", b"", b"he", b"llo"]
