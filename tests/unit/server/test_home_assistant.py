"""What Home Assistant's integrations send, as recorded from their own code: conversations with tools and data tasks."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.api_kit import THOUGHT, saying, streamed
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, post, with_server

from uad.base.types import Request
from uad.http.requests.left_out import leave_out

SYSTEM = "You are a voice assistant for Home Assistant.\nStatic Context:\n- names: Kitchen Light\n  domain: light\n"
ASKED = "Turn on the kitchen light."
ARGUMENTS = {"name": "Kitchen Light", "domain": ["light"]}
CALL = f"<tool_call>\n{json.dumps({'name': 'HassTurnOn', 'arguments': ARGUMENTS})}\n</tool_call>"
RESULT = json.dumps({"speech": {}, "response_type": "action_done", "data": {"success": [], "failed": []}})
TURN_ON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "area": {"type": "string"},
        "floor": {"type": "string"},
        "domain": {"type": "array", "items": {"type": "string"}},
        "device_class": {"type": "array", "items": {"type": "string"}},
    },
    "required": [],
}
SCRIPT = {  # what selectors of a script's fields become
    "type": "object",
    "properties": {
        "when": {"type": "string", "format": "date-time", "description": "When"},
        "rooms": {"type": "array", "items": {"type": "string", "enum": ["kitchen", "hall"]}, "uniqueItems": True},
        "rgb": {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3, "format": "RGB"},
        "level": {"type": "number", "minimum": 0.0, "maximum": 100.0},
        "len": {"type": "object", "properties": {"days": {"type": "number"}}, "required": []},
        "o": {"type": "object", "additionalProperties": True},
        "cond": {"type": "array", "items": {"nullable": True, "type": "string"}},
        "lang": {"type": "string", "format": "RFC 5646"},
        "t": {"type": "string", "format": "time"},
    },
    "required": ["when"],
}
FUNCTIONS = [
    {"name": "HassTurnOn", "description": "Turns on a device", "parameters": TURN_ON},
    {"name": "script__good_night", "description": "Switches everything off", "parameters": SCRIPT},
    {"name": "GetDateTime", "description": "The time", "parameters": {"type": "object", "properties": {}}},
]
TOOLS = [{"type": "function", "function": one} for one in FUNCTIONS]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "the name"},
        "kind": {"type": "string", "enum": ["person", "pet"]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["old", "new"]}, "uniqueItems": True},
    },
    "required": ["name"],
}
ADJUSTED = {  # the same, as the OpenAI integration changes it
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "the name"},
        "kind": {"type": ["string", "null"], "enum": ["person", "pet"]},
        "tags": {"type": ["array", "null"], "items": {"type": "string", "enum": ["old", "new"]}, "uniqueItems": True},
    },
    "required": ["name", "kind", "tags"],
    "strict": True,
    "additionalProperties": False,
}


def loose(text: str) -> Any:
    """What is kept to of a schema: of two values no more than two differ."""
    return json.loads(text.replace('"uniqueItems": true', '"maxItems": 2'))


# --- Ollama


def ollama(fake: FakeRuntime, **members: Any) -> tuple[dict[str, Any], Request]:
    """What the lines of a stream say together, and the request. The integration always streams."""
    same = {"model": "uad:latest", "stream": True, "options": {"num_ctx": 8192.0}, "keep_alive": "-1s"}
    body = {**same, "tools": [], "think": False, **members}

    async def test(session: ClientSession) -> list[Any]:
        async with session.post("/api/chat", json=body) as answer:
            data = await answer.read()
            assert answer.status == 200, data
            return [json.loads(line) for line in data.splitlines()]

    *lines, last = with_server(test, fake)
    assert last["done"], "the stream does not end"
    said = [line["message"] for line in (*lines, last)]
    words = {name: "".join(one.get(name) or "" for one in said) for name in ("content", "thinking")}
    return {**words, "calls": [call for one in said for call in one.get("tool_calls") or ()]}, fake.requests[-1]


TALK: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKED}]


@pytest.mark.parametrize("think", [False, True, None])
def test_a_conversation_over_ollama_calls_a_tool(think: bool | None) -> None:
    members = {} if think is None else {"think": think}
    found, _ = ollama(saying(f"{THOUGHT}I look.\n{CALL}"), messages=TALK, tools=TOOLS, **members)
    (call,) = found["calls"]
    assert (call["function"]["name"], call["function"]["arguments"]) == ("HassTurnOn", ARGUMENTS)
    assert (found["content"], found["thinking"]) == ("I look.", "Hm, hm.")


def test_its_result_has_no_name_and_the_turn_goes_on() -> None:
    calls = [{"function": {"name": "HassTurnOn", "arguments": ARGUMENTS}}]
    history = [
        *TALK,
        {"role": "assistant", "content": "I look.", "thinking": "Hm, hm.", "tool_calls": calls},
        {"role": "tool", "content": RESULT},
    ]
    fake = saying("It is on.")
    found, _ = ollama(fake, messages=history, tools=TOOLS)
    assert (found["content"], found["calls"]) == ("It is on.", [])
    messages = fake.chats[-1][0]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
    assert messages[-1]["content"] == RESULT


@pytest.mark.parametrize("tools", [[], TOOLS])
def test_a_task_over_ollama_gives_data(tools: list[Any]) -> None:
    found, request = ollama(saying('{"name": "Bob"}'), messages=TALK, tools=tools, format=PERSON)
    assert found["content"] == '{"name": "Bob"}'
    assert request.constraint is not None
    if not tools:
        assert json.loads(request.constraint.text) == loose(json.dumps(PERSON))


# --- OpenAI: Responses


RESPONSES: dict[str, Any] = {"model": "gpt-4o-mini", "max_output_tokens": 3000, "user": "01K", "store": False}
RESPONSES |= {"stream": True, "temperature": 1.0, "top_p": 1.0}
THINKS: dict[str, Any] = {"model": "gpt-5", "reasoning": {"effort": "low", "summary": "auto"}}
THINKS |= {"include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"]}
THINKS |= {"text": {"verbosity": "medium"}, "prompt_cache_retention": "24h"}
HOSTED = [
    {"type": "web_search", "search_context_size": "medium", "user_location": {"type": "approximate", "city": ""}},
    {"type": "code_interpreter", "container": {"type": "auto"}},
]
FLAT = [{"type": "function", **one, "strict": False} for one in FUNCTIONS]


def message(role: str, content: object) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


INPUT = [message("developer", SYSTEM), message("user", ASKED)]


@pytest.mark.parametrize("more", [{"tools": FLAT}, {**THINKS, "tools": [*FLAT, *HOSTED]}], ids=["plain", "thinks"])
def test_a_conversation_over_responses_calls_a_tool_and_goes_on(more: dict[str, Any]) -> None:
    found = streamed("/v1/responses", {**RESPONSES, "input": INPUT, **more}, saying(f"{THOUGHT}I look.\n{CALL}"))
    (added,) = [
        event["item"]
        for event in found
        if event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call"
    ]
    pieces = [event["delta"] for event in found if event["type"] == "response.function_call_arguments.delta"]
    assert json.loads(added["arguments"] + "".join(pieces)) == ARGUMENTS
    thought = next(item for item in found[-1]["response"]["output"] if item["type"] == "reasoning")
    history = [
        *INPUT,
        {"type": "reasoning", "id": thought["id"], "summary": [], "encrypted_content": None},
        message("assistant", "I look."),
        {"type": "function_call", "name": added["name"], "arguments": "{}", "call_id": added["call_id"]},
        {"type": "function_call_output", "call_id": added["call_id"], "output": RESULT},
    ]
    fake = saying("It is on.")
    last = streamed("/v1/responses", {**RESPONSES, "input": history, **more}, fake)[-1]
    assert last["type"] == "response.completed"
    assert fake.chats[-1][0][-1]["content"] == RESULT


@pytest.mark.parametrize("tools", [[], FLAT])
def test_a_task_over_responses_gives_data(tools: list[Any]) -> None:
    form = {"type": "json_schema", "name": "a_person", "schema": ADJUSTED}
    body = {**RESPONSES, "input": INPUT, "tools": tools, "text": {"format": form}}
    fake = saying('{"name": "Bob", "kind": "pet", "tags": null}')
    assert streamed("/v1/responses", body, fake)[-1]["type"] == "response.completed"
    constraint = fake.requests[-1].constraint
    assert constraint is not None
    if not tools:
        assert json.loads(constraint.text) == loose(json.dumps(ADJUSTED))


# --- OpenAI: chats, as the integration of OpenRouter sends them


def test_a_task_over_chats_gives_data() -> None:
    schema = {**ADJUSTED, "properties": {**ADJUSTED["properties"], "tags": {"type": ["array", "null"]}}}
    form = {"type": "json_schema", "json_schema": {"name": "A person", "strict": True, "schema": schema}}
    body = {"model": "uad", "user": "01K", "require_parameters": True, "messages": TALK, "tools": TOOLS}
    status, answer = post(CHAT, {**body, "response_format": form}, saying('{"name": "Bob", "kind": "pet", "tags": []}'))
    assert status == 200, answer


# --- Anthropic


MESSAGES: dict[str, Any] = {"model": "claude-haiku-4-5", "max_tokens": 3000, "system": SYSTEM, "stream": True}
OFFERED = [
    {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in FUNCTIONS
]
REPLY = {"name": "a_person", "description": "Use this tool to reply to the user", "input_schema": PERSON}
USER = {"role": "user", "content": ASKED}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [REPLY], "tool_choice": {"type": "tool", "name": "a_person"}},
        {"tools": [*OFFERED, REPLY], "tool_choice": {"type": "any"}},
    ],
    ids=["alone", "with tools"],
)
def test_a_task_over_messages_calls_the_tool_that_has_its_form(more: dict[str, Any]) -> None:
    call = '<tool_call>\n{"name": "a_person", "arguments": {"name": "Bob"}}\n</tool_call>'
    body = {**MESSAGES, "messages": [USER], "thinking": {"type": "disabled"}, "temperature": 1.0, **more}
    found = streamed("/v1/messages", body, saying(call))
    pieces = [event["delta"].get("partial_json", "") for event in found if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == {"name": "Bob"}


def test_a_conversation_over_messages_goes_on_behind_a_thought_and_a_call() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm, hm.", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "HassTurnOn", "input": ARGUMENTS},
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": RESULT}
    history = [USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    search = {"name": "web_search", "type": "web_search_20250305", "max_uses": 5}
    body = {**MESSAGES, "messages": history, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    fake = saying("It is on.")
    assert streamed("/v1/messages", {**body, "tools": [*OFFERED, search]}, fake)[-1]["type"] == "message_stop"
    assert fake.chats[-1][0][-1]["content"] == RESULT


# --- items that must differ


def test_a_line_of_the_log_says_that_items_may_repeat(caplog: pytest.LogCaptureFixture) -> None:
    leave_out.cache_clear()
    with caplog.at_level(logging.WARNING, "uad.server"):
        post("/completion", {"prompt": "a", "json_schema": {"type": "array", "uniqueItems": True, "title": "a log"}})
    assert "json_schema: uniqueItems is left out" in caplog.text
