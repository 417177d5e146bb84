"""What a template did not write of a conversation: each message's text is looked for in the rendered prompt.

White space at its ends may differ, JSON is as good as plain, and thoughts of earlier answers may be missing: templates
leave those out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from uad.templates.sandbox import Budget
from uad.templates.seams import Masked, marks, quoted, spoken

_BREAKS = re.compile(r"\n|/(?:no_?)?think")
"""What parts a text into pieces that must all be there: lines, and the switches that templates take out of texts."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Message number `at`, whose text is not in the prompt as it is; `left_out` if it is known that nothing of it
    is. is_call: it is what a call of it says.
    """

    at: int
    left_out: bool
    is_call: bool = False


def by_marks(
    messages: Sequence[Mapping[str, object]], masked: Masked, shown: Mapping[int, str], text: str, budget: Budget
) -> tuple[Loss, ...]:
    """From the seams: `shown` says what stands in the prompt of each masked content."""
    losses = list(_lost_calls(masked, shown, text, budget))
    for at, (message, hidden) in enumerate(zip(messages, masked.values["messages"], strict=True)):
        is_answer = message.get("role") == "assistant"
        wanted = [
            number for text in _texts(hidden, is_answer) for number in marks(text) if masked.contents[number].strip()
        ]
        missing = [number for number in wanted if number not in shown]
        if missing or not (is_answer or all(_is_whole(masked.contents[number], shown[number]) for number in wanted)):
            losses.append(Loss(at, left_out=len(missing) == len(wanted)))
    return tuple(losses)


def _lost_calls(masked: Masked, shown: Mapping[int, str], text: str, budget: Budget) -> Iterator[Loss]:
    """Calls of whose arguments no text is there. Templates compare plain words, so these are looked for."""
    at = 0
    for number, message in enumerate(masked.values["messages"]):
        for call in message.get("tool_calls") or ():
            ends = []
            for said in filter(str.strip, _strings(call.get("function", {}).get("arguments"))):
                hidden = marks(said)
                ends.append(_end(said, text, at, budget) if not hidden else 0 if shown.keys() >= {*hidden} else -1)
            if ends and max(ends) < 0:
                yield Loss(number, left_out=True, is_call=True)
            at = max(at, *ends) if ends else at


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def by_search(messages: Sequence[Mapping[str, object]], text: str, budget: Budget) -> tuple[Loss, ...]:
    """In the prompt itself, for templates that transform what they write. Texts are looked for after the one before,
    then anywhere.
    """
    losses = []
    at = 0
    for number, message in enumerate(messages):
        budget.tick()
        for piece in _pieces(message, text):
            end = _end(piece, text, at, budget)
            if end < 0:
                losses.append(Loss(number, left_out=False))
                break
            at = max(at, end)
    return tuple(losses)


def _pieces(message: Mapping[str, object], text: str) -> Iterator[str]:
    """What must be there of a message: each of its texts, or the pieces of one that is not there as a whole."""
    for content in _texts(message, message.get("role") == "assistant"):
        whole = content.strip()
        for piece in [whole] if whole in text else _BREAKS.split(whole):
            if piece.strip():
                yield piece.strip()


def _end(piece: str, text: str, at: int, budget: Budget) -> int:
    """Where a piece ends: after `at` if it is there, 0 if it is elsewhere, -1 if it is nowhere."""
    for form in (piece, quoted(piece)):
        found = text.find(form, at)
        if found >= 0:
            return found + len(form)
        budget.tick()  # only searches without success go over the same text again and again
        if form in text:
            return 0
    return -1


def _texts(message: Mapping[str, object], is_answer: bool) -> Iterator[str]:
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        text = part["text"] if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield spoken(text) if is_answer else text


def _is_whole(content: str, shown: str) -> bool:
    return shown.strip() == content.strip() or shown.strip() in (quoted(content).strip(), quoted(content.strip()))
