"""How a model writes calls and thoughts: the format whose parser reads what the model's own chat template writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from uad.text.calls.events import Arguments, CallStart, Content
from uad.text.calls.format import AnswerFormat, CallFormat
from uad.text.calls.parser import AnswerParser
from uad.text.calls.tools import Calls, Tool
from uad.text.mapping.families import Family, ThoughtFormat
from uad.text.templates.calling import NUMBER, TOOL, WORD, Calling
from uad.text.templates.seams import THOUGHTS_BEGIN, THOUGHTS_END

GENERIC = "hermes"
"""The format that models without one of their own are asked to write."""
_PARAMETERS = {"type": "object", "properties": {"word": {"type": "string"}, "n": {"type": "integer"}}}


def answer_format(
    template: str, does: Calling, formats: Mapping[str, CallFormat], family: Family | None, hidden: Iterable[str]
) -> AnswerFormat:
    """The format of a model's answers. hidden: names of its control tokens."""
    if does.calls:
        own = written_as(does.answer, formats.values())
    else:
        own = next((format_ for format_ in formats.values() if any(hint in template for hint in format_.hints)), None)
    calls = [own] if own is not None else []
    if not does.tools and own is not formats[GENERIC]:
        calls.insert(0, formats[GENERIC])
    if family is not None and family.name in formats and formats[family.name].channels:
        calls = [formats[family.name]]
    thought = thought_format(template, family)
    return AnswerFormat(tuple(calls), thought or ThoughtFormat(), tuple(hidden), thought is not None, does.doubled)


def written_as(answer: str, formats: Iterable[CallFormat]) -> CallFormat | None:
    """The format in which a template writes the probe's call; None where no known format reads it.

    Of several the one counts that leaves least of the text over; of these one that reads it without mending; and of
    these the one with the longest markers.
    """
    read = [(format_, read_call(answer, format_, TOOL, {"word": WORD, "n": NUMBER})) for format_ in formats]
    # In `<tool_call>{…}</tool_call>` a format without markers may find the JSON, too, but leaves the tags over as text.
    fitting = [
        (len(call.beside), not call.is_exact, -sum(map(len, format_.openers())), format_.name, format_)
        for format_, call in read
        if call is not None
    ]
    return min(fitting, key=lambda fit: fit[:4])[4] if fitting else None


@dataclass(frozen=True)
class ReadCall:
    """One call that was read: its id, what was said beside it, and whether it is written as its format has it."""

    id: str
    beside: str
    is_exact: bool


def read_call(answer: str, format_: CallFormat, name: str, arguments: Mapping[str, object]) -> ReadCall | None:
    """The only call of an answer in a format, if it calls this tool with these arguments, a `word` and the number
    `n`.
    """
    parser = AnswerParser(AnswerFormat((format_,), doubled=True), Calls((Tool(name, _PARAMETERS),)))
    events = parser.feed(answer) + parser.finish()
    calls = [event for event in events if isinstance(event, CallStart)]
    written = "".join(event.text for event in events if isinstance(event, Arguments))
    if len(calls) != 1 or not _says(written, arguments):
        return None
    beside = "".join(event.text for event in events if isinstance(event, Content))
    return ReadCall(calls[0].id, beside, parser.is_exact)


def _says(text: str, value: object) -> bool:
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False


def thought_format(template: str, family: Family | None) -> ThoughtFormat | None:
    """The marks around a model's thoughts: as its family says, or as its template spells the tags; None where neither
    knows any.
    """
    if family is not None and family.thought is not None:
        return family.thought
    if family is not None and family.reasoning is not None and family.reasoning.start.strip():
        return ThoughtFormat(family.reasoning.start.strip(), family.reasoning.end.strip())
    begin, end = re.search(THOUGHTS_BEGIN, template), re.search(THOUGHTS_END, template)
    return ThoughtFormat(begin[0], end[0]) if begin and end else None
