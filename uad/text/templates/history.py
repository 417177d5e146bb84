"""A conversation with tools, calls and results as its chat template takes them; in words where the template has no
place for them.

Must not know vocabularies.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from uad.base.errors import InvalidRequestError
from uad.text.templates.calling import FUNCTIONS, NINE, Calling
from uad.text.templates.contents import text_of

Message = Mapping[str, object]
PlacedMessages = tuple[tuple[int, Message], ...]
"""Messages as a template gets them, each with its number in the request."""
BETWEEN = "\n\n"
"""Stands between two texts in one turn."""
_TOOLS = """\
You can call tools. Each line between these tags describes one of them in JSON:
<tools>
{tools}
</tools>

To call a tool, write a JSON object with its name and its arguments between tags:
<tool_call>
{{"name": "the tool's name", "arguments": {{"the argument's name": "its value"}}}}
</tool_call>
Write nothing behind a call. Its result comes with the next message, between the tags <tool_response> and
</tool_response>."""
_CALL = "<tool_call>\n{call}\n</tool_call>"
_RESULT = "<tool_response>\n{result}\n</tool_response>"
_RESULT_OF = "Result of {call}:\n{result}"
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_FUNCTION_ID = re.compile(r"functions\.(?P<name>.+):\d+")


def check_calls(placed: PlacedMessages, limit: int) -> None:
    """Raise InvalidRequestError for what is no list of calls, naming the message, and for more than `limit` characters
    of them.
    """
    size = 0
    for at, message in placed:
        calls = message.get("tool_calls") or ()
        where = f"messages[{at}].tool_calls"
        if not isinstance(calls, list | tuple) or not all(map(_is_call, calls)):
            raise InvalidRequestError(
                f"{where} must be a list of calls, each with a function's name and its arguments as JSON", where
            )
        size += sum(len(str(call["function"].get("arguments"))) for call in calls)
        if size > limit:
            raise InvalidRequestError(f"the calls hold more than {limit} characters of arguments", where)


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return False
    return isinstance(function.get("arguments", ""), str | Mapping)


def plain_schema(value: Any) -> Any:
    """A schema, or what holds some, with exactly one type for everything: the first that is not null, text where none
    is named.
    """
    if isinstance(value, list | tuple):
        return [plain_schema(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kinds = value.get("type")
    if isinstance(kinds, list | tuple):
        return plain_schema({**value, "type": next((kind for kind in kinds if kind != "null"), "string")})
    for name in ("anyOf", "oneOf"):
        others = value.get(name)
        if isinstance(others, list | tuple):
            first = next((other for other in others if isinstance(other, Mapping) and other.get("type") != "null"), {})
            return plain_schema({**{key: item for key, item in value.items() if key != name}, **first})
    plain = {name: plain_schema(item) for name, item in value.items()}
    if isinstance(plain.get("properties"), dict):
        plain["properties"] = {name: _typed(item) for name, item in plain["properties"].items()}
    return {**plain, "items": _typed(plain["items"])} if "items" in plain else plain


def _typed(schema: Any) -> Any:
    """With a type, and an object with one for further members."""
    if not isinstance(schema, Mapping):
        return schema
    typed = {**schema, "type": schema.get("type", "string")}
    if typed["type"] == "object" and not isinstance(typed.get("additionalProperties"), Mapping):
        typed["additionalProperties"] = {"type": "string"}
    return typed


def place_calls(placed: PlacedMessages, tools: Sequence[object], does: Calling) -> PlacedMessages:
    """The messages as a template that does this takes them, with the tools written out in words where it does not list
    them.
    """
    placed = tuple(_renamed(placed, does)) if does.calls else placed
    if not does.parallel and does.calls:
        placed = _one_by_one(placed)
    placed = tuple((at, _written(message, does, at)) for at, message in placed)
    if not does.results or not does.calls:
        placed = _results_as_turns(placed)
    return _tools_in_system(placed, tools) if tools and not does.tools else placed


def calls_as_text(placed: PlacedMessages) -> PlacedMessages:
    """The messages with all their calls as text."""
    return tuple((at, _written(message, Calling(), at)) for at, message in placed)


def place_thoughts(placed: PlacedMessages, member: str) -> PlacedMessages:
    """Thoughts that a client sends back, under the name by which the template reads them."""
    if member in ("", "reasoning_content"):
        return placed
    return tuple((at, _thinking(message, member, at)) for at, message in placed)


def _thinking(message: Message, member: str, at: int) -> Message:
    thoughts = message.get("reasoning_content")
    if not isinstance(thoughts, str) or not thoughts:
        return message
    rest = {name: value for name, value in message.items() if name != "reasoning_content"}
    text = text_of(message, at)
    if member == "thinking" and text and message.get("tool_calls"):
        return {**rest, "content": BETWEEN.join((thoughts, text))}  # gpt-oss's template takes one of them beside a call
    return {**rest, member: thoughts}


def _written(message: Message, does: Calling, at: int) -> Message:
    """Calls as the template takes them, or as text where it does not, or where their arguments are no object."""
    calls = message.get("tool_calls")
    if not calls or not isinstance(calls, Sequence):
        return message
    content = message.get("content") or ""
    made = [_with_arguments(call, does.objects) for call in calls]
    if does.calls and None not in made:
        return {**message, "content": content or does.empty, "tool_calls": made}
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    texts = (text_of(message, at), *map(call_text, calls))
    return {**rest, "content": BETWEEN.join(text for text in texts if text)}


def _with_arguments(call: Any, as_object: bool) -> dict[str, object] | None:
    """The call with arguments of the wanted kind; None where they cannot be had."""
    function = call["function"]
    arguments = function.get("arguments") or {}
    value = _parsed(arguments) if isinstance(arguments, str) else arguments
    if value is None:
        return None
    if as_object:
        written: object = value
    else:
        written = arguments if isinstance(arguments, str) else json.dumps(value, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": written}}


def _parsed(text: str) -> Mapping[str, object] | None:
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def call_text(call: Any) -> str:
    """A call as models without a format of their own are asked to write it."""
    function = call["function"]
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return _CALL.format(call=f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": {text}}}')


def result_text(message: Message, at: int, in_tags: bool) -> str:
    """A result in words; in_tags: as models without a format of their own are shown to expect it."""
    text = text_of(message, at)
    return (_RESULT if in_tags else _RESULT_OF).format(result=text, call=message.get("name") or "a tool call")


def _renamed(placed: PlacedMessages, does: Calling) -> Iterator[tuple[int, Message]]:
    """Ids of calls as the template wants them, those of results with them."""
    # Mistral's template wants ids of nine letters and digits: "call_1" becomes the first nine of its hash, in the call
    # and in the result that has this id. The same id gives the same nine, so a longer conversation begins as the
    # shorter one.
    numbers = itertools.count()
    names: dict[object, str] = {}
    for at, message in placed:
        calls = message.get("tool_calls")
        if isinstance(calls, Sequence) and does.ids in (NINE, FUNCTIONS):
            made = [{**call, "id": _id(call, does.ids, next(numbers))} for call in calls]
            names |= {call.get("id"): new["id"] for call, new in zip(calls, made, strict=True)}
            message = {**message, "tool_calls": made}
        elif message.get("tool_call_id") in names:
            message = {**message, "tool_call_id": names[message["tool_call_id"]]}
        elif message.get("role") == "tool" and does.ids == NINE:
            message = {**message, "tool_call_id": _nine(str(message.get("tool_call_id") or "none"))}
        yield at, message


def _id(call: Any, ids: str, number: int) -> str:
    own, name = call.get("id") or "", call["function"]["name"]
    if ids == NINE:
        return _nine(own or str(number))
    match = _FUNCTION_ID.fullmatch(own)
    return own if match and match["name"] == name else f"functions.{name}:{number}"


def _nine(id_: str) -> str:
    return id_ if _NINE.fullmatch(id_) else hashlib.sha256(id_.encode()).hexdigest()[:9]


def _one_by_one(placed: PlacedMessages) -> PlacedMessages:
    """Several calls of one answer as several answers, each with its result after it."""
    # An answer with the calls a and b, then the results of b and a: an answer with a, its result, an answer with b, its
    # result. Results that name no call come last, in their order.
    out: list[tuple[int, Message]] = []
    waiting = list(placed)
    while waiting:
        at, message = waiting.pop(0)
        calls = message.get("tool_calls")
        if not isinstance(calls, Sequence) or len(calls) < 2:
            out.append((at, message))
            continue
        n = next((i for i, (_, other) in enumerate(waiting) if other.get("role") != "tool"), len(waiting))
        results, waiting = waiting[:n], waiting[n:]
        for i, call in enumerate(calls):
            own = [result for result in results if result[1].get("tool_call_id") == call.get("id")]
            results = [result for result in results if result not in own]
            out += [(at, {**message, **({"content": ""} if i else {}), "tool_calls": [call]}), *own]
        out += results
    return tuple(out)


def joined(turn: Sequence[tuple[int, Message]]) -> tuple[int, Message]:
    """Several messages as one, with the number of the last."""
    at, message = turn[-1]
    if len(turn) == 1:
        return turn[0]
    return at, {**message, "content": BETWEEN.join(text_of(message, number) for number, message in turn)}


def _results_as_turns(placed: PlacedMessages) -> PlacedMessages:
    """Results as what the user says, those in a row in one turn."""
    turns: list[list[tuple[int, Message]]] = []
    joins = False
    for at, message in placed:
        is_result = message.get("role") == "tool"
        if is_result:
            message = {"role": "user", "content": result_text(message, at, in_tags=True)}
        if not joins or message.get("role") != "user":
            turns.append([])
        turns[-1].append((at, message))
        joins = is_result
    return tuple(map(joined, turns))


def _tools_in_system(placed: PlacedMessages, tools: Sequence[object]) -> PlacedMessages:
    """The tools at the end of the first system message, or as one."""
    tools_text = _TOOLS.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if placed and placed[0][1].get("role") in ("system", "developer"):
        at, first = placed[0]
        texts = (text_of(first, at), tools_text)
        return ((at, {**first, "content": BETWEEN.join(text for text in texts if text)}), *placed[1:])
    return ((0, {"role": "system", "content": tools_text}), *placed)
