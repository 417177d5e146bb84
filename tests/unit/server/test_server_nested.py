"""JSON in JSON, in every field that takes any: what is nested too deeply is refused, in short bodies too, and what is
just not too deep never ends in an internal error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.api_kit import saying
from kit.server_kit import HELLO, with_server

DEEP, TEXT = "@deep@", "@text@"  # in place of the nested value, and of its JSON in a string
FUNCTION: Any = {"name": "f", "parameters": {"type": "object", "properties": {"a": DEEP}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": TEXT}}
DONE = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
CHAT: list[Any] = [
    *({name: DEEP} for name in ("chat_template_kwargs", "tools", "tool_choice", "response_format", "metadata")),
    *({name: DEEP} for name in ("logit_bias", "lora", "prediction", "speculative", "stop", "samplers", "unknown")),
    *({name: value} for name in ("json_schema", "guided_json", "dry_sequence_breakers") for value in (DEEP, TEXT)),
    *({"chat_template_kwargs": {"a": DEEP}}, {"structured_outputs": {"json": DEEP}}, {"logit_bias": {"1": DEEP}}),
    *({"messages": DEEP}, {"messages": [{"role": "user", "content": DEEP}]}, {"lora": [{"id": 0, "scale": DEEP}]}),
    {"response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": DEEP}}},
    {"tools": [{"type": "function", "function": FUNCTION}]},
    {"tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}], "tool_choice": "required"},
    {"messages": [*HELLO, {"role": "assistant", "tool_calls": [CALL]}, DONE]},
    {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{"function": {**FUNCTION, "arguments": DEEP}}]}, DONE]},
]
RESPONSES: list[Any] = [
    *({name: DEEP} for name in ("input", "metadata", "text", "tools", "tool_choice", "reasoning", "include")),
    *({"input": [{"role": "user", "content": DEEP}]}, {"text": {"format": {"type": "json_schema", "schema": DEEP}}}),
    {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"},
    {"tools": [{"type": "function", "name": "f", "strict": False, "parameters": {"default": DEEP}}]},
    {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": TEXT}]},
    {"input": [{"type": "function_call_output", "call_id": "c", "output": DEEP}]},
]
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": DEEP}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": DEEP}]}
MESSAGES: list[Any] = [
    *({name: DEEP} for name in ("messages", "system", "tools", "tool_choice", "metadata", "mcp_servers")),
    *({"messages": [*HELLO, USE]}, {"messages": [*HELLO, RESULT]}, {"messages": [{"role": "user", "content": DEEP}]}),
    {"tools": [{"name": "f", "input_schema": {"type": "object", "properties": {"a": DEEP}}}]},
    {"output_config": {"format": {"type": "json_schema", "schema": DEEP}}},
]
OLLAMA: list[Any] = [
    *({name: DEEP} for name in ("messages", "format", "options", "tools", "keep_alive", "think")),
    *({"options": {"stop": DEEP}}, {"options": {"a": DEEP}}, {"messages": [{"role": "user", "images": DEEP}]}),
    {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": DEEP}}]}]},
]
BODIES: dict[str, tuple[Any, list[Any]]] = {
    "/v1/chat/completions": ({"messages": HELLO}, CHAT),
    "/apply-template": ({"messages": HELLO}, CHAT[:3]),
    "/v1/completions": ({"prompt": "x"}, [{"prompt": DEEP}, {"json_schema": DEEP}, {"json_schema": TEXT}]),
    "/completion": ({"prompt": "x"}, [{"prompt": [DEEP]}, {"response_fields": DEEP}, {"dry_sequence_breakers": TEXT}]),
    "/infill": ({"input_prefix": "a", "input_suffix": "b"}, [{"input_extra": DEEP}, {"input_prefix": DEEP}]),
    "/tokenize": ({}, [{"content": DEEP}]),
    "/v1/responses": ({"input": "x"}, RESPONSES),
    "/v1/messages": ({"messages": HELLO}, MESSAGES),
    "/api/chat": ({"messages": HELLO, "stream": False}, OLLAMA),
    "/api/generate": ({"prompt": "x", "stream": False}, [{"format": DEEP}, {"images": DEEP}, {"context": DEEP}]),
    "/lora-adapters": ([], [[{"id": 0, "scale": DEEP}]]),
}
SHAPES = (("[", "1", "]"), ('{"a":', "1", "}"), ('{"type":"object","properties":{"a":', "{}", "}}"))


def bodies(depth: int) -> Iterator[tuple[str, str, bytes]]:
    """Path, JSON with the place of the nested value, and the body."""
    for path, (base, members) in BODIES.items():
        for member in members:
            shown = json.dumps({**base, **member} if isinstance(member, dict) else member)
            for begin, middle, end in SHAPES:
                deep = begin * depth + middle + end * depth
                text = shown.replace(f'"{DEEP}"', deep).replace(f'"{TEXT}"', json.dumps(deep))
                yield path, shown, text.encode()


@pytest.mark.parametrize("depth", [40, 400, 100_000])
def test_every_field_of_every_api_may_be_nested_to_one_depth(depth: int) -> None:
    async def test(session: ClientSession) -> list[tuple[str, str, int, str]]:
        answers = []
        for path, shown, body in bodies(depth):
            async with session.post(
                path, data=io.BytesIO(body), headers={"Content-Type": "application/json"}
            ) as answer:
                answers.append((path, shown, answer.status, await answer.text()))
        return answers

    answers = with_server(test, saying("hi"))
    assert [answer for answer in answers if answer[2] >= 500] == []
    if depth == 40:
        assert {200, 400} == {answer[2] for answer in answers}
    else:
        # the body of adapters is bounded below what 100,000 levels take
        in_json = [answer for answer in answers if DEEP in answer[1] and "more than 65536 bytes" not in answer[3]]
        assert len(in_json) > 200
        assert [answer for answer in in_json if answer[2] != 400 or "nested too deeply" not in answer[3]][:3] == []
