"""Tests' ears: what clients of the APIs of chats make of an answer with the tool `look_up`, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession

from kit.api_kit import saying, streamed
from kit.server_kit import CHAT, HELLO, post, stream, with_server

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}}


@dataclass(frozen=True)
class Heard:
    """What a client makes of an answer: its text, the arguments of its calls, and why it ended."""

    text: str
    calls: tuple[object, ...]
    reason: str


def heard_in_chat(text: str, is_stream: bool, **more: Any) -> Heard:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
    body = {"messages": HELLO, "tools": [tool]}
    if not is_stream:
        choice = post(CHAT, body, saying(text, **more))[1]["choices"][0]
        calls = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", [])]
        return Heard(choice["message"]["content"] or "", tuple(map(json.loads, calls)), choice["finish_reason"])
    content, arguments, reason = "", dict[int, str](), ""
    for chunk in stream(CHAT, body, saying(text, step=1, **more))[:-1]:
        for choice in chunk["choices"]:
            reason = choice["finish_reason"] or reason
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", []):
                arguments[call["index"]] = arguments.get(call["index"], "") + call["function"]["arguments"]
    return Heard(content, tuple(map(json.loads, arguments.values())), reason)


def heard_in_messages(text: str, is_stream: bool, **more: Any) -> Heard:
    body = {"messages": HELLO, "max_tokens": 900, "tools": [{"name": "look_up", "input_schema": SCHEMA}]}
    if not is_stream:
        answer = post("/v1/messages", body, saying(text, **more))[1]
        said = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        calls = tuple(block["input"] for block in answer["content"] if block["type"] == "tool_use")
        return Heard(said, calls, answer["stop_reason"])
    said, written, reason = "", dict[int, str](), ""
    for event in streamed("/v1/messages", body, saying(text, step=1, **more)):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            written[event["index"]] = ""
        delta: dict[str, Any] = event.get("delta", {})
        said += delta.get("text", "")
        if "partial_json" in delta:
            written[event["index"]] += delta["partial_json"]
        reason = delta.get("stop_reason") or reason
    return Heard(said, tuple(map(json.loads, written.values())), reason)


def heard_in_responses(text: str, is_stream: bool, **more: Any) -> Heard:
    body = {"input": "hi", "tools": [{"type": "function", "name": "look_up", "parameters": SCHEMA, "strict": False}]}
    if is_stream:
        events = streamed("/v1/responses", body, saying(text, step=1, **more))
        answer = events[-1]["response"]
        deltas = "".join(one["delta"] for one in events if one["type"] == "response.function_call_arguments.delta")
        done = "".join(one["arguments"] for one in events if one["type"] == "response.function_call_arguments.done")
        assert deltas == done
    else:
        answer = post("/v1/responses", body, saying(text, **more))[1]
    output = answer["output"]
    said = "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])
    calls = [item["arguments"] for item in output if item["type"] == "function_call"]
    return Heard(said, tuple(map(json.loads, calls)), answer["status"])


def heard_in_ollama(text: str, is_stream: bool, **more: Any) -> Heard:
    tool = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
    body = {"model": "m", "messages": HELLO, "tools": [tool], "stream": is_stream}

    async def test(session: ClientSession) -> list[Any]:
        async with session.post("/api/chat", json=body) as answer:
            return [json.loads(line) for line in (await answer.read()).splitlines()]

    lines = with_server(test, saying(text, step=1 if is_stream else 3, **more))
    said = "".join(line["message"]["content"] for line in lines)
    calls = [call["function"]["arguments"] for line in lines for call in line["message"].get("tool_calls", [])]
    return Heard(said, tuple(calls), lines[-1]["done_reason"])


APIS: dict[str, tuple[Callable[..., Heard], str]] = {
    "chat": (heard_in_chat, "tool_calls"),
    "messages": (heard_in_messages, "tool_use"),
    "responses": (heard_in_responses, "completed"),
    "ollama": (heard_in_ollama, "stop"),
}
"""What asks each API, and the reason of an answer that calls."""
