"""Messages of the assistant as clients send them back: what they say is read, what it repeats is left out."""

from __future__ import annotations

from typing import Any

import pytest
from kit.api_kit import saying
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, HELLO, post

USER = {"role": "user", "content": "hi"}
NO = "I will not."
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PICKED: dict[str, Any] = {
    "role": "assistant",
    "content": "Hello",
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": None,
    "reasoning_content": None,
}
BACK: list[tuple[dict[str, Any], object]] = [
    (PICKED, "Hello"),
    ({"role": "assistant", "content": None, "refusal": NO}, NO),
    ({"role": "assistant", "refusal": NO}, NO),
    ({"role": "assistant", "content": "", "refusal": NO}, NO),
    ({"role": "assistant", "content": "Hm.", "refusal": NO}, ["Hm.", NO]),
    ({"role": "assistant", "content": [{"type": "refusal", "refusal": NO}]}, NO),
    (
        {"role": "assistant", "content": [{"type": "text", "text": "Hm."}, {"type": "refusal", "refusal": NO}]},
        ["Hm.", NO],
    ),
    ({**PICKED, "parsed": {"a": 1}}, "Hello"),
    ({**PICKED, "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}]}, "Hello"),
    ({**PICKED, "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "Hello"),
    ({**PICKED, "reasoning": "hm"}, "Hello"),
    ({**PICKED, "tool_calls": [{**CALL, "function": {**CALL["function"], "parsed_arguments": {"a": 1}}}]}, "Hello"),
]


@pytest.mark.parametrize(("message", "content"), BACK)
def test_what_the_assistant_said_is_read(message: dict[str, Any], content: object) -> None:
    fake = FakeRuntime()
    result = {"role": "tool", "tool_call_id": "call_1", "content": "18"}
    after = [result] if message.get("tool_calls") else []
    status, answer = post(CHAT, {"messages": [USER, message, *after, USER]}, fake)
    assert status == 200, answer
    ((messages, _, _),) = fake.chats
    texts = content if isinstance(content, str) else [{"type": "text", "text": text} for text in content]  # type: ignore[attr-defined]
    assert messages[1]["content"] == texts
    assert "refusal" not in messages[1]


def test_items_that_clients_of_responses_and_messages_have_parsed_are_taken() -> None:
    said = {"type": "output_text", "text": "{}", "parsed": {"a": 1}, "annotations": []}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}
    result = {"type": "function_call_output", "call_id": "c", "output": "18"}
    items = [USER, {"type": "message", "role": "assistant", "content": [said]}, call, result]
    assert post("/v1/responses", {"input": items}, saying("Hi"))[0] == 200
    block = {"type": "text", "text": "{}", "parsed_output": {"a": 1}}
    talk = [USER, {"role": "assistant", "content": [block]}, USER]
    assert post("/v1/messages", {"messages": talk}, saying("Hi"))[0] == 200


def test_a_refusal_of_responses_is_read() -> None:
    path, fake = "/v1/responses", FakeRuntime()
    item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": NO}]}
    assert post(path, {"input": [USER, item, USER]}, fake)[0] == 200
    assert fake.chats[0][0][1]["content"] == NO


@pytest.mark.parametrize("refusal", [3, ["a"], {"a": "b"}])
def test_a_refusal_that_is_no_text_is_refused_by_its_place(refusal: object) -> None:
    for message in ({"refusal": refusal}, {"content": [{"type": "refusal", "refusal": refusal}]}):
        status, answer = post(CHAT, {"messages": [*HELLO, {"role": "assistant", **message}, USER]}, saying("Hi"))
        assert status == 400
        assert answer["error"]["param"].startswith("messages.1.")


@pytest.mark.parametrize("member", [{"audio": {"id": "a"}}, {"function_call": {"name": "f", "arguments": "{}"}}])
def test_what_cannot_be_read_of_it_is_refused(member: dict[str, Any]) -> None:
    status, answer = post(CHAT, {"messages": [*HELLO, {**PICKED, **member}, USER]}, saying("Hi"))
    assert (status, answer["error"]["param"]) == (400, f"messages.1.{next(iter(member))}")
