"""What the tests of calls share: all formats, some tools, and what an answer says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from uad.text.calls.events import Arguments, CallEnd, CallEvent, CallStart, Content, Thought
from uad.text.calls.files import load_all_calls
from uad.text.calls.format import AnswerFormat
from uad.text.calls.parser import AnswerParser, Start
from uad.text.calls.tools import Calls, Tool
from uad.text.mapping.families import bundled_mappings

FILES = load_all_calls([bundled_mappings()])
FORMATS = {name: file.format for name, file in FILES.items()}
TOOLS = (
    Tool(
        "look_up",
        {
            "type": "object",
            "properties": {"word": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["word", "n"],
        },
    ),
    Tool("say", {"type": "object", "properties": {"text": {"type": "string"}}}),
    Tool(
        "mixed",
        {
            "type": "object",
            "properties": {
                "flag": {"type": "boolean"},
                "list": {"type": "array"},
                "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "any": {},
            },
        },
    ),
)


ALL = Calls(TOOLS)
BEGINNING = Start()


@dataclass(frozen=True)
class Said:
    """Calls are (name, arguments, id)."""

    content: str
    thought: str
    calls: list[tuple[str, str, str]]
    n_ended: int


def said(
    text: str,
    format_: AnswerFormat,
    calls: Calls = ALL,
    start: Start = BEGINNING,
    shows_thoughts: bool = False,
    is_cut: bool = True,
) -> Said:
    """What a text says that arrives whole."""
    return said_in_pieces([text], format_, calls, start, shows_thoughts, is_cut)


def said_in_pieces(
    pieces: Iterable[str],
    format_: AnswerFormat,
    calls: Calls = ALL,
    start: Start = BEGINNING,
    shows_thoughts: bool = False,
    is_cut: bool = True,
) -> Said:
    parser = AnswerParser(format_, calls, start, shows_thoughts)
    events: list[CallEvent] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish(is_cut)
    return Said(
        "".join(event.text for event in events if isinstance(event, Content)),
        "".join(event.text for event in events if isinstance(event, Thought)),
        [
            (
                event.name,
                "".join(one.text for one in events if isinstance(one, Arguments) and one.index == event.index),
                event.id,
            )
            for event in events
            if isinstance(event, CallStart)
        ],
        sum(isinstance(event, CallEnd) for event in events),
    )
