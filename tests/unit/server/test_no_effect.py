"""What requests hold beside what is read, in all APIs but Google's: content is refused by name, the rest left out, and
docs/apis.md has the table of what is left out knowingly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.api_kit import saying
from kit.server_kit import HELLO, post

from uad.http.requests.left_out import leave_out
from uad.http.requests.no_effect import NO_EFFECT

PAGE = Path(__file__).parents[3] / "docs" / "apis.md"
CHAT, RESPONSES, MESSAGES, TALK = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
BASES: dict[str, Any] = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "x"},
    "/completion": {"prompt": "x"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/apply-template": {"messages": HELLO},
    RESPONSES: {"input": "x"},
    MESSAGES: {"messages": HELLO},
    TALK: {"messages": HELLO, "stream": False},
    "/api/generate": {"prompt": "x", "stream": False},
}
USER = {"role": "user", "content": "hi"}
PART: Any = {"type": "text", "text": "hi"}
FUNCTION = {"name": "f", "parameters": {}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "note": "bridge"}]}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [{**PART, "note": "bridge"}]}
SOURCE = {"type": "text", "data": "a", "note": "bridge"}
LOST: list[tuple[str, Any, str]] = [
    *((path, {"documents": [{"text": "bridge"}]}, "documents") for path in BASES if path != "/apply-template"),
    *((path, {"note": {"text": "the word is bridge"}}, "note") for path in BASES if path != "/apply-template"),
    (CHAT, {"messages": [{**USER, "note": "bridge"}]}, "messages.0.note"),
    (CHAT, {"messages": [{**USER, "images": ["bridge"]}]}, "messages.0.images"),
    (CHAT, {"messages": [{"role": "user", "content": [{**PART, "note": ["bridge"]}]}]}, "messages.0.content.0.note"),
    (CHAT, {"response_format": {"type": "text", "schema": {"const": 1}}}, "response_format.schema"),
    (CHAT, {"response_format": {"type": "json_object", "json_schema": {"a": 1}}}, "response_format.json_schema"),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {}, "schema": {"a": 1}}},
        "response_format.schema",
    ),
    (MESSAGES, {"output_format": {"type": "json_schema", "schema": {}, "rule": {"a": 1}}}, "output_format.rule"),
    (CHAT, {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages.0.function_call"),
    (CHAT, {"messages": [{"role": "assistant", "content": "a", "audio": {"id": "a"}}]}, "messages.0.audio"),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "n": {"a": 1}}]}]}, "messages.0.tool_calls.0.n"),
    (CHAT, {"tools": [{"type": "function", "function": {**FUNCTION, "note": "bridge"}}]}, "tools.0.function.note"),
    (CHAT, {"tools": [{"type": "function", "function": FUNCTION, "note": "bridge"}]}, "tools.0.note"),
    (RESPONSES, {"input": [{**USER, "note": "bridge"}]}, "input.0.note"),
    (RESPONSES, {"input": [{"role": "user", "content": [{**PART, "note": "bridge"}]}]}, "input.0.content.0.note"),
    (RESPONSES, {"tools": [{"type": "function", **FUNCTION, "note": "bridge"}]}, "tools.0.note"),
    (MESSAGES, {"messages": [{**USER, "note": "bridge"}]}, "messages.0.note"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{**PART, "note": "bridge"}]}]}, "messages.0.content.0.note"),
    (MESSAGES, {"system": [{**PART, "note": "bridge"}]}, "system.0.note"),
    (MESSAGES, {"messages": [USER, USE]}, "messages.1.content.0.note"),
    (MESSAGES, {"messages": [{"role": "user", "content": [RESULT]}]}, "messages.0.content.0.content.0.note"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "document", "source": SOURCE}]}]}, "source.note"),
    (MESSAGES, {"tools": [{"name": "f", "input_schema": {}, "note": "bridge"}]}, "tools.0.note"),
    (TALK, {"messages": [{**USER, "note": "bridge"}]}, "messages.0.note"),
]


@pytest.mark.parametrize(("path", "members", "param"), LOST)
def test_content_that_nothing_reads_is_refused_by_its_place(path: str, members: Any, param: str) -> None:
    status, answer = post(path, {**BASES[path], **members}, saying("Hi"))
    assert status == 400, answer
    assert f"{param}: is not read by this server" in str(answer)


@pytest.mark.parametrize("path", [path for path in BASES if path != "/infill"])
def test_settings_of_other_servers_are_left_out_with_one_line(path: str, caplog: pytest.LogCaptureFixture) -> None:
    leave_out.cache_clear()
    more = {"user": "Ann Lee", "metadata": {"title": "two words"}, "mood": "calm", "depth": {"n": 1}}
    for _ in range(2):
        assert post(path, {**BASES[path], **(more if path != RESPONSES else {"mood": "calm"})}, saying("Hi"))[0] == 200
    lines = [line for line in caplog.messages if "is left out" in line]
    assert len(lines) == len(set(lines))
    assert path == "/apply-template" or any("'mood' is left out" in line for line in lines)


def test_what_clients_send_beside_content_is_taken() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    part = {**PART, **cached, "citations": [{"cited_text": "a"}]}
    assert post(MESSAGES, {"system": [part], "messages": [{"role": "user", "content": [part]}]}, saying("Hi"))[0] == 200
    picked = {
        "role": "assistant",
        "content": "a",
        "id": "msg_1",
        "reasoning_details": [{"text": "hm"}],
        "refusal": None,
    }
    assert post(CHAT, {"messages": [USER, picked, {**USER, **cached}]}, saying("Hi"))[0] == 200
    item = {"type": "message", "id": "m", "status": "completed", "role": "assistant"}
    said = {"type": "output_text", "text": "a", "annotations": [{"url": "x"}], "logprobs": [{"token": "a"}]}
    assert post(RESPONSES, {"input": [{**item, "content": [said]}, USER]}, saying("Hi"))[0] == 200


def test_the_page_has_the_table() -> None:
    by_reason: dict[str, list[str]] = {}
    for name, why in NO_EFFECT.items():
        by_reason.setdefault(why, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {why} |" for why, names in by_reason.items()]
    assert "\n".join(["| members | why they have no effect |", "|---|---|", *rows]) in PAGE.read_text("utf-8")
