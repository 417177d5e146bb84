"""Calls that are not well written, over three APIs, whole and streamed: a call has arguments that clients can parse,
what is none is text, and an answer that says it calls has a call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from kit.api_kit import saying, streamed
from kit.server_kit import CHAT, HELLO, post, stream

START = '<tool_call>\n{"name": "look_up", "arguments": '
END = "}\n</tool_call>"
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}}
CASES: dict[str, tuple[str, str, dict[str, object] | None]] = {
    "a line end": (f'{START}{{"word": "t\nea"}}{END}', "", {"word": "t\nea"}),
    "a comma": (f'{START}{{"word": "tea",}}{END}', "", {"word": "tea"}),
    "no brace": (f'{START}{{"word": "tea"\n</tool_call>', "", {"word": "tea"}),
    "a brace too many": (f'{START}{{"word": "tea"}}}}{END}', "", {"word": "tea"}),
    "nothing": (f'{START}""{END}', "", {}),
    "a list": (f"{START}[]{END}", "", {}),
    "no end": (f'{START}{{"word": "te', "", {"word": "te"}),
    "no number": (f'{START}{{"word": NaN}}{END}', "", {"word": "NaN"}),
    "too deep": (f'{START}{{"word": "tea", "n": {"[" * 300}{END}', "[" * 100 + END, {"word": "tea"}),
    "unreadable in the middle": (f'{START}{{"word": "tea", "n" = 3}}{END}', f', "n" = 3}}{END}', {"word": "tea"}),
    "no arguments": (f"{START}[1]{END}", f"{START}[1]{END}", None),
    "no name": ('<tool_call>\n{"word": "tea"}\n</tool_call>', '<tool_call>\n{"word": "tea"}\n</tool_call>', None),
}


@dataclass(frozen=True)
class Heard:
    """What a client makes of an answer: its text, the arguments of its calls, and why it ended."""

    text: str
    calls: tuple[object, ...]
    reason: str


def chat(text: str, is_stream: bool) -> Heard:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
    body = {"messages": HELLO, "tools": [tool]}
    if not is_stream:
        choice = post(CHAT, body, saying(text))[1]["choices"][0]
        calls = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", [])]
        return Heard(choice["message"]["content"] or "", tuple(map(json.loads, calls)), choice["finish_reason"])
    content, arguments, reason = "", dict[int, str](), ""
    for chunk in stream(CHAT, body, saying(text, step=1))[:-1]:
        for choice in chunk["choices"]:
            reason = choice["finish_reason"] or reason
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", []):
                arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    return Heard(content, tuple(map(json.loads, arguments.values())), reason)


def messages(text: str, is_stream: bool) -> Heard:
    body = {"messages": HELLO, "max_tokens": 900, "tools": [{"name": "look_up", "input_schema": SCHEMA}]}
    if not is_stream:
        answer = post("/v1/messages", body, saying(text))[1]
        said = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        calls = tuple(block["input"] for block in answer["content"] if block["type"] == "tool_use")
        return Heard(said, calls, answer["stop_reason"])
    said, written, reason = "", dict[int, str](), ""
    for event in streamed("/v1/messages", body, saying(text, step=1)):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            written[event["index"]] = ""
        delta: dict[str, Any] = event.get("delta", {})
        said += delta.get("text", "")
        if "partial_json" in delta:
            written[event["index"]] += delta["partial_json"]
        reason = delta.get("stop_reason") or reason
    return Heard(said, tuple(map(json.loads, written.values())), reason)


def responses(text: str, is_stream: bool) -> Heard:
    body = {"input": "hi", "tools": [{"type": "function", "name": "look_up", "parameters": SCHEMA, "strict": False}]}
    if is_stream:
        events = streamed("/v1/responses", body, saying(text, step=1))
        answer = events[-1]["response"]
        deltas = "".join(one["delta"] for one in events if one["type"] == "response.function_call_arguments.delta")
        done = "".join(one["arguments"] for one in events if one["type"] == "response.function_call_arguments.done")
        assert deltas == done
    else:
        answer = post("/v1/responses", body, saying(text))[1]
    output = answer["output"]
    said = "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])
    calls = [item["arguments"] for item in output if item["type"] == "function_call"]
    return Heard(said, tuple(map(json.loads, calls)), answer["status"])


APIS = {"chat": (chat, "tool_calls"), "messages": (messages, "tool_use"), "responses": (responses, "completed")}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("api", APIS)
def test_a_damaged_call_is_a_call_or_text_on_every_api(api: str, case: str) -> None:
    text, rest, wanted = CASES[case]
    ask, calling = APIS[api]
    whole, pieces = ask(text, False), ask(text, True)
    assert whole == pieces
    assert whole.text.endswith(rest)
    assert whole.text or wanted is not None
    if wanted is None:
        assert (whole.text, whole.calls) == (text, ())
        assert whole.reason in ("stop", "end_turn", "completed")
    else:
        (arguments,) = whole.calls
        assert isinstance(arguments, dict)
        assert arguments.get("word") == wanted.get("word")
        assert whole.reason == calling
