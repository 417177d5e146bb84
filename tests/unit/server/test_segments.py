"""Which probabilities go with which segment of an answer."""

from __future__ import annotations

from collections.abc import Iterator

from uad.apis.segments import Added, Segments

from uad.calls.events import Content, Event, Thought
from uad.events import Delta
from uad.types import TokenProb


class ScriptedParser:
    """Says what the next piece of an answer means."""

    def __init__(self, *pieces: list[Event]) -> None:
        self._pieces: Iterator[list[Event]] = iter(pieces)

    def feed(self, text: str) -> list[Event]:
        return next(self._pieces)

    def finish(self) -> list[Event]:
        return []


def piece(text: str) -> Delta:
    probs = tuple(TokenProb(ord(letter), letter.encode(), -0.5) for letter in text)
    return Delta(0, tuple(map(ord, text)), (), text, probs)


def test_a_text_that_begins_in_the_piece_that_ends_a_thought_keeps_its_probabilities() -> None:
    segments = Segments(ScriptedParser([Thought("hm")], [Thought("m."), Content("he")], [Content("llo")]))  # type: ignore[arg-type]
    steps = [step for text in ("<think>hm", "m.</think>he", "llo") for step in segments.feed(piece(text))]
    told = [b"".join(one.data for one in step.probs) for step in steps if isinstance(step, Added)]
    assert told == [b"", b"", b"he", b"llo"]
