"""Sets of tools that cannot be meant, in all APIs: a call that must be made of none, and two tools of one name."""

from __future__ import annotations

from typing import Any

import pytest
from kit.api_kit import saying
from kit.server_kit import CHAT, HELLO, post

RESPONSES, MESSAGES, TALK = "/v1/responses", "/v1/messages", "/api/chat"
GOOGLE = "/v1beta/models/toy:generateContent"
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ANY = {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}
WAITING = {"name": "f", "input_schema": {}, "defer_loading": True}
NAMED = {"type": "function", "function": {"name": "f"}}
ALLOWED = {"mode": "required", "tools": [NAMED]}
NOTHING: list[tuple[str, dict[str, Any], str]] = [
    *((CHAT, {"messages": HELLO, "tool_choice": "required", **tools}, "tool_choice") for tools in ({}, {"tools": []})),
    (CHAT, {"messages": HELLO, "tools": None, "tool_choice": "required", "parallel_tool_calls": True}, "tool_choice"),
    (CHAT, {"messages": HELLO, "tools": [], "tool_choice": NAMED}, "tool_choice"),
    (
        CHAT,
        {"messages": HELLO, "tools": [], "tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED}},
        "tool_choice",
    ),
    (TALK, {"messages": HELLO, "stream": False, "tools": [], "tool_choice": "required"}, "tool_choice"),
    *((RESPONSES, {"input": "x", "tool_choice": "required", **tools}, "tool_choice") for tools in ({}, {"tools": []})),
    (RESPONSES, {"input": "x", "tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    (RESPONSES, {"input": "x", "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    *(
        (MESSAGES, {"messages": HELLO, "tool_choice": {"type": "any"}, **tools}, "tool_choice")
        for tools in ({}, {"tools": []})
    ),
    (MESSAGES, {"messages": HELLO, "tool_choice": {"type": "any"}, "tools": [WAITING]}, "tool_choice"),
    (MESSAGES, {"messages": HELLO, "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
    *(
        (GOOGLE, {**CONTENTS, **ANY, "tools": tools}, "toolConfig.functionCallingConfig")
        for tools in ([], [{}], [{"functionDeclarations": []}], [{"googleSearch": {}}])
    ),
    ("/apply-template", {"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
]
ONE = {"name": "f", "description": "first"}
TWO = {"name": "f", "description": "second"}
DECLARED = [{"functionDeclarations": [ONE]}, {"functionDeclarations": [{**ONE, "name": "g"}, TWO]}]
TWICE: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": HELLO, "tools": [CHAT_TOOL, CHAT_TOOL]}, "tools.1.function.name"),
    (CHAT, {"messages": HELLO, "tools": [CHAT_TOOL, CHAT_TOOL], "tool_choice": "none"}, "tools.1.function.name"),
    (TALK, {"messages": HELLO, "stream": False, "tools": [CHAT_TOOL, CHAT_TOOL]}, "tools.1.function.name"),
    (
        RESPONSES,
        {"input": "x", "tools": [{"type": "web_search"}, *({"type": "function", **one} for one in (ONE, TWO))]},
        "tools.2.name",
    ),
    (MESSAGES, {"messages": HELLO, "tools": [{**one, "input_schema": {}} for one in (ONE, TWO)]}, "tools.1.name"),
    (GOOGLE, {**CONTENTS, "tools": DECLARED}, "tools.1.functionDeclarations.1.name"),
    ("/apply-template", {"messages": HELLO, "tools": [CHAT_TOOL, CHAT_TOOL]}, "tools.1.function.name"),
]


def reason(path: str, body: dict[str, Any]) -> str:
    status, answer = post(path, body, saying("Hi"))
    assert status == 400, answer
    return str(answer)


@pytest.mark.parametrize(("path", "body", "param"), NOTHING)
def test_a_call_that_must_be_made_needs_a_tool(path: str, body: dict[str, Any], param: str) -> None:
    assert param in reason(path, body)


@pytest.mark.parametrize(("path", "body", "param"), TWICE)
def test_two_tools_of_one_name_are_refused_by_their_name(path: str, body: dict[str, Any], param: str) -> None:
    said = reason(path, body)
    assert param in said
    assert "two tools have the name 'f'" in said


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_without_tools_a_choice_that_needs_none_is_taken(choice: str | None) -> None:
    body = {"messages": HELLO, "tools": [], "tool_choice": choice, "parallel_tool_calls": True}
    assert post(CHAT, body, saying("Hi"))[0] == 200
