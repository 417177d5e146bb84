"""The Responses API, Anthropic's and Ollama's for `scripts/fuzz.py`: bodies, and what their answers have to be."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

Json = dict[str, Any]
Say = Callable[[int], str]
"""A text of at most n characters."""

RESPONSES = ("/v1/responses", "/responses", "/v1/responses/input_tokens")
MESSAGES = ("/v1/messages", "/v1/messages/count_tokens", "/v1/messages?beta=true")
OLLAMA = ("/api/chat", "/api/generate", "/api/show")
PATHS = (*RESPONSES, *MESSAGES, *OLLAMA)
LAST = {
    "responses": ("response.completed", "response.incomplete"),
    "messages": ("message_stop",),
}
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def body_of(draw: random.Random, path: str, say: Say, most: int) -> Json:
    """A body that the route takes, or nearly."""
    if path in OLLAMA:
        return deepcopy(_talk(draw, path, say, most))
    return deepcopy(_message(draw, say, most) if path in MESSAGES else _response(draw, say, most))


def _some(draw: random.Random, fields: dict[str, Any]) -> Json:
    return {name: fields[name] for name in draw.sample(sorted(fields), k=draw.randint(0, min(5, len(fields))))}


def _response(draw: random.Random, say: Say, most: int) -> Json:
    call = draw.choice(("c1", "", "functions.look_up:0"))
    items = [
        {"role": draw.choice(("system", "developer", "user")), "content": say(64)},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": say(most)}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": say(64)}]},
        {
            "type": "reasoning",
            "summary": [],
            "encrypted_content": draw.choice(("uad1:aGk=", "uad1:!", "gAAA", say(16))),
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": say(64)}]},
        {
            "type": "function_call",
            "call_id": call,
            "name": "look_up",
            "arguments": draw.choice(('{"word": "x"}', say(16))),
        },
        {
            "type": "function_call_output",
            "call_id": call,
            "output": draw.choice((say(64), [], [{"type": "input_text"}])),
        },
        {"type": "item_reference", "id": "x"},
    ]
    kept = [item for item in items if draw.random() < 0.6]
    tools = [
        {"type": "function", "name": "look_up", "parameters": SCHEMA, "strict": draw.random() < 0.5},
        {"type": "function", "name": say(16) or "x"},
        {"type": "web_search"},
    ]
    fields = {
        "instructions": say(64),
        "tools": draw.sample(tools, k=draw.randint(0, 3)),
        "tool_choice": draw.choice(("auto", "none", "required", {"type": "function", "name": "look_up"})),
        "text": {"format": draw.choice(({"type": "text"}, {"type": "json_schema", "name": "x", "schema": SCHEMA}))},
        "reasoning": {"effort": draw.choice(("none", "low", None)), "summary": "auto"},
        "include": draw.choice((["reasoning.encrypted_content"], ["message.output_text.logprobs"], [])),
        "top_logprobs": draw.randint(0, 3),
        "parallel_tool_calls": draw.random() < 0.5,
        "stream": True,
        "store": draw.random() < 0.1,
    }
    said = draw.choice((say(most), [*kept, {"role": "user", "content": say(most)}]))
    return {"input": said, "max_output_tokens": draw.randint(0, 20), **_some(draw, fields)}


def _message(draw: random.Random, say: Say, most: int) -> Json:
    uses = [
        {"type": "thinking", "thinking": say(64), "signature": draw.choice(("", "uad1:aGk=", "x"))},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": say(64)},
        {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"word": say(16)}},
    ]
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": draw.choice((say(64), [], [{"type": "text", "text": "x"}])),
    }
    said = {"role": "user", "content": draw.choice((say(most), [{"type": "text", "text": say(most)}]))}
    turns = [
        {"role": "assistant", "content": [block for block in uses if draw.random() < 0.7]},
        {"role": "user", "content": [result, {"type": "text", "text": say(64)}]},
        {"role": "system", "content": say(64)},
    ]
    tool = {"name": "look_up", "input_schema": SCHEMA, "defer_loading": draw.random() < 0.2}
    fields = {
        "system": draw.choice((say(64), [{"type": "text", "text": say(64)}])),
        "tools": [tool] * draw.randint(0, 2),
        "tool_choice": draw.choice(
            ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "look_up"}, {"type": "none"})
        ),
        "thinking": draw.choice(({"type": "adaptive", "display": "omitted"}, {"type": "enabled", "budget_tokens": 9})),
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "stop_sequences": [say(8) for _ in range(draw.randint(0, 2))],
        "temperature": draw.choice((0, 1)),
        "stream": True,
    }
    kept = [said, *(turn for turn in turns if draw.random() < 0.6)]
    return {"messages": kept, "max_tokens": draw.randint(0, 20), **_some(draw, fields)}


def _talk(draw: random.Random, path: str, say: Say, most: int) -> Json:
    options = {
        "num_predict": draw.randint(-2, 20),
        "num_ctx": 4096,
        "temperature": draw.choice((0, 1.5)),
        "top_k": draw.choice((0, 40.0)),
        "seed": draw.randint(-1, 9),
        "stop": draw.choice((say(8), [say(8)], [])),
        "mirostat": draw.randint(0, 2),
        say(8): 1,
    }
    fields = {
        "options": _some(draw, options),
        "stream": draw.random() < 0.6,
        "format": draw.choice(("json", "", SCHEMA)),
        "keep_alive": draw.choice((0, -1, "5m", "1h30m", say(4))),
        "think": draw.choice((True, False, "low", say(4))),
        "logprobs": draw.random() < 0.5,
        "top_logprobs": draw.randint(0, 3),
        "model": draw.choice(("local", "local:latest", say(16))),
    }
    call = {"function": {"name": "look_up", "arguments": draw.choice(({"word": say(16)}, say(16)))}}
    turns = [
        {"role": "system", "content": say(64)},
        {"role": "user", "content": say(most), "images": draw.choice(([], None, ["aGk="]))},
        {"role": "assistant", "content": say(64), "thinking": say(16), "tool_calls": [call] * draw.randint(0, 2)},
        {"role": "tool", "content": say(64), "tool_name": draw.choice(("look_up", say(8)))},
    ]
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}] * draw.randint(0, 2)
    prompt = {"prompt": say(most), "system": say(32), "raw": draw.random() < 0.3, "suffix": draw.choice(("", say(8)))}
    talk = {"messages": [turn for turn in turns if draw.random() < 0.7], "tools": tools}
    return {**(talk if path == "/api/chat" else prompt), **_some(draw, fields)}


def judged_lines(data: bytes) -> str:
    """The fault of a stream of lines, empty if it has none."""
    try:
        lines = [json.loads(line) for line in data.splitlines()]
    except ValueError:
        return f"a stream's line is no JSON: {data[:80]!r}"
    if any("error" in line for line in lines):
        return "a stream ends with an error"
    return "" if [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True] else "a stream without its end"


def judged_stream(path: str, frames: list[bytes]) -> str:
    """The fault of a stream of named events, empty if it has none."""
    kinds = []
    for frame in frames:
        head, _, data = frame.partition(b"\ndata: ")
        try:
            kinds.append(str(json.loads(data)["type"]))
        except (ValueError, KeyError, TypeError):
            return f"a stream's event is no JSON with a type: {frame[:80]!r}"
        if head != f"event: {kinds[-1]}".encode():
            return f"an event is named {head[:40]!r}, and is {kinds[-1]}"
    if "error" in kinds:
        return "a stream ends with an error"
    ends = LAST["messages" if "/messages" in path else "responses"]
    return "" if kinds and kinds[-1] in ends else f"a stream ends with {kinds[-1:]}"


def judged_text(value: Any) -> str:
    """The fault of an error in Ollama's words, empty if it has none."""
    is_right = isinstance(value, dict) and list(value) == ["error"] and isinstance(value["error"], str)
    return "" if is_right else f"no error of Ollama's: {value!r:.120}"


def judged_error(value: Any) -> str:
    """The fault of an error in Anthropic's words, empty if it has none."""
    error = value.get("error") if isinstance(value, dict) and value.get("type") == "error" else None
    if not isinstance(error, dict) or not error.get("type") or not error.get("message"):
        return f"no error of Anthropic's: {value!r:.120}"
    return "" if str(value.get("request_id", "")).startswith("req_") else "an error without the id of its request"
