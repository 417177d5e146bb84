"""What a grammar must allow where an answer has to call a tool: a format's own text around names and arguments. Knows
no grammar engine.

The text comes from the format's example, in which the tool's name, its arguments and the call's id are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from uad.base.errors import InvalidRequestError, MappingError
from uad.text.calls.arguments import arguments
from uad.text.calls.format import ANALYSIS, THINK_TAGS, AnswerFormat, CallFormat
from uad.text.calls.lark import HEADER, CallLark, Json, Literal, Part, Pattern
from uad.text.calls.lark import CallGrammar as CallGrammar
from uad.text.calls.lark import CallShape as CallShape
from uad.text.calls.lark import Opening as Opening
from uad.text.calls.tools import Calls, Tool, listed
from uad.text.mapping.families import ThoughtFormat

_NAME = "look_up"
_ID = "a1b2c3d4e"
_IDS = "[a-zA-Z0-9]{9}"
_CALL_CHANNEL = "<|channel|>commentary to=functions."
ASSISTANT = "<|start|>assistant"


def grammar_of(format_: CallFormat, calls: Calls, thought: ThoughtFormat = THINK_TAGS) -> CallGrammar | None:
    """What calls of these tools look like in a format; None where an answer may hold none.

    Raises InvalidRequestError for a tool whose schema is not understood.
    """
    tools = calls.allowed()
    if not tools:
        return None
    begin, call, finish = _cut(format_, format_.example.strip())
    return CallGrammar(
        begin=begin,
        calls=tuple(_shape(format_, call, calls, tool) for tool in tools),
        between=", " if format_.body in ("list", "python") else "\n" if "\n" in call or begin.endswith("\n") else "",
        finish=finish,
        many=calls.parallel and not calls.named,
        trigger=_trigger(format_),
        thought=ANALYSIS if format_.channels else thought,
        after_thought=ASSISTANT if format_.channels else "",
        lazy=tuple(dict.fromkeys(text.replace("{name}", tool.name) for text in format_.lazy for tool in tools)),
    )


def lead_lark(answers: AnswerFormat, specials: Mapping[str, str], is_thought_over: bool) -> str:
    """What may stand before an answer that is no call, as rules of Lark, the first named lead: a thought and what
    follows it. With is_thought_over only the latter.
    """
    around = CallGrammar(thought=answers.marks, after_thought=ASSISTANT if answers.channels else "")
    return CallLark(around, specials, {}).lead(HEADER if answers.channels else (), is_thought_over)


def _shape(format_: CallFormat, call: str, calls: Calls, tool: Tool) -> CallShape:
    try:
        if "object" not in listed(tool.parameters.get("type", "object")):
            raise InvalidRequestError("arguments are an object, so the schema must have the type object")
        return CallShape(tool.name, tuple(_parts(format_, call, tool)))
    except InvalidRequestError as error:
        where = f"tools.{calls.tools.index(tool)}.function.parameters"
        raise InvalidRequestError.at(where, str(error)) from None


def _trigger(format_: CallFormat) -> str:
    """A marker with which calls begin; words that prose may have are none."""
    if format_.channels:
        return _CALL_CHANNEL
    first = next(iter(format_.openers()), "")
    return first if first.startswith(("<", "[", "]<")) else ""


def _cut(format_: CallFormat, text: str) -> tuple[str, str, str]:
    """An example as what stands before its call, the call, and what stands after it."""
    # Hermes' `<tool_call>{"name": …}</tool_call>` is all call, since `start` and `end` stand around each. Nemotron's
    # `<TOOLCALL>[{"name": …}]</TOOLCALL>` has one in a list: `<TOOLCALL>[`, the object, `]</TOOLCALL>`.
    if format_.body in ("list", "python"):
        opener = text.index("[", text.index(format_.begin) + len(format_.begin)) if format_.begin else text.index("[")
        start = opener + 1 + len(re.match(r"\s*", text[opener + 1 :])[0])  # type: ignore[index]
        end = len(text[: text.rindex("]")].rstrip())
    else:
        start = text.index(format_.start) if format_.start else 0 if format_.channels else text.index("{")
        end = text.rindex(format_.end) + len(format_.end) if format_.end else text.rindex("}") + 1
    return text[:start], text[start:end], text[end:]


def _parts(format_: CallFormat, call: str, tool: Tool) -> Iterator[Part]:
    before, after = call.split(_NAME, 1)
    yield from _around_id(before)
    yield Literal(json.dumps(tool.name, ensure_ascii=False)[1:-1] if format_.body in ("json", "list") else tool.name)
    if format_.body in ("tagged", "python", "gemma"):
        yield from arguments(format_, after, tool)
        return
    found = re.search(r"\{\s*\"word\": \"tea\",\s*\"n\": 3\s*\}", after)
    if found is None:
        raise MappingError(f'calls {format_.name}: the example lacks the arguments {{"word": "tea", "n": 3}}')
    yield from _around_id(after[: found.start()])
    yield Json({"type": "object", **tool.parameters} | {"type": "object"})
    yield from _around_id(after[found.end() :])


def _around_id(text: str) -> Iterator[Part]:
    """Literals and what ids may be: of nine letters and digits, or a number after the name."""
    for piece in re.split(f'({_ID}|(?<=:)0(?=<)|(?<=_id": ")0)', text):
        if piece == _ID:
            yield Pattern(_IDS)
        elif piece == "0":
            yield Pattern("[0-9]+")
        elif piece:
            yield Literal(piece)
