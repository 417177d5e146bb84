"""Streams of Google's Gemini API as its official clients judge them: an event without words makes them drop a turn."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.api_kit import CALL, SECOND, THOUGHT, saying
from kit.fake_runtime import FakeRuntime
from kit.server_kit import events, post, with_server

from uad.base.errors import DecodeError
from uad.http.apis.gemini import read_content
from uad.http.requests.fields import ChatBody

STREAM = "/v1beta/models/toy:streamGenerateContent?alt=sse"
HELLO = [{"role": "user", "parts": [{"text": "hello"}]}]
TOOLS = [{"functionDeclarations": [{"name": "look_up"}, {"name": "say"}]}]
SHOWN = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}


def is_valid(event: dict[str, Any]) -> bool:
    """The strictest rule of google-genai: Python up to 1.39, JavaScript up to 1.0. Later ones let empty texts pass."""
    candidates = event.get("candidates") or [{}]
    parts = (candidates[0].get("content") or {}).get("parts") or []
    return bool(parts) and all(part and part.get("text") != "" for part in parts)


def streamed(body: dict[str, Any], fake: FakeRuntime) -> list[Any]:
    async def test(session: ClientSession) -> list[Any]:
        async with session.post(STREAM, json={"contents": HELLO, **body}) as answer:
            assert answer.status == 200
            return events(await answer.read())

    return with_server(test, fake)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("Hello there.", {}),
        ("H", {}),
        ("Hello.\n\n", {}),
        ("naïve 👩‍🚀", {}),
        (f"{THOUGHT}Tea.", {}),
        (f"{THOUGHT}Tea.", SHOWN),
        (f"{THOUGHT}T", {}),
        (CALL, {"tools": TOOLS}),
        (f"I look.\n{CALL}\n{SECOND}", {"tools": TOOLS}),
        (f"{THOUGHT}{CALL}", {"tools": TOOLS}),
        ("Hello there.", {"generationConfig": {"maxOutputTokens": 5}}),
        ("Hello there.", {"generationConfig": {"stopSequences": ["there"]}}),
        ("Hello there.", {"generationConfig": {"responseLogprobs": True, "logprobs": 2}}),
        (f"{THOUGHT}Hi there", {"generationConfig": {"responseLogprobs": True}}),
    ],
)
def test_every_event_says_something_and_the_last_says_why_it_ended(text: str, more: dict[str, Any]) -> None:
    found = streamed(more, saying(text))
    assert [event for event in found if not is_valid(event)] == []
    assert ["finishReason" in event["candidates"][0] for event in found] == [*[False] * (len(found) - 1), True]
    assert ["usageMetadata" in event for event in found] == [*[False] * (len(found) - 1), True]


@pytest.mark.parametrize(
    ("text", "more"), [(f"{THOUGHT}I look.\n{CALL}", {"tools": TOOLS}), (f"{THOUGHT}Tea, or so.", SHOWN), ("a\nb", {})]
)
def test_the_pieces_of_a_stream_are_the_parts_of_the_whole_answer(text: str, more: dict[str, Any]) -> None:
    _, whole = post("/v1beta/models/toy:generateContent", {"contents": HELLO, **more}, saying(text))
    pieces = [part for event in streamed(more, saying(text)) for part in event["candidates"][0]["content"]["parts"]]

    def said(parts: list[Any], kind: str) -> str:
        return "".join(part["text"] for part in parts if "text" in part and part.get("thought", False) == (kind == "t"))

    parts = whole["candidates"][0]["content"]["parts"]
    assert [said(pieces, kind) for kind in "tx"] == [said(parts, kind) for kind in "tx"]
    assert [one["functionCall"]["args"] for one in pieces if "functionCall" in one] == [
        one["functionCall"]["args"] for one in parts if "functionCall" in one
    ]


def test_two_turns_of_a_streamed_chat_remember_the_first() -> None:
    found = streamed({}, saying("Tea is a drink."))
    turn = [event["candidates"][0]["content"] for event in found]
    assert all(map(is_valid, found))
    chat = read_content({"contents": [*HELLO, *turn, {"role": "user", "parts": [{"text": "more"}]}]}).chat
    assert isinstance(chat, ChatBody)
    assert [message.role for message in chat.messages] == ["user", "assistant", "user"]
    assert chat.messages[1].content is not None
    assert "".join(part.text for part in chat.messages[1].content) == "Tea is a drink."


def test_only_one_character_waits_for_what_follows_it() -> None:
    found = streamed({}, FakeRuntime(script=lambda request: b"Hello there."))
    texts = ["".join(part["text"] for part in event["candidates"][0]["content"]["parts"]) for event in found]
    assert len(texts[-1]) == 1
    assert "".join(texts) == "Hello there."


def test_an_answer_without_words_ends_in_one_event_with_its_thoughts() -> None:
    (only,) = streamed({}, saying(""))
    assert only["candidates"][0]["content"]["parts"] == [{"text": ""}]
    cut = {"generationConfig": {"maxOutputTokens": len(THOUGHT) - 12}}
    (only,) = streamed(cut, saying(THOUGHT + "Tea."))
    (part,) = only["candidates"][0]["content"]["parts"]
    assert (part["text"], only["candidates"][0]["finishReason"]) == ("", "MAX_TOKENS")
    chat = read_content({"contents": [*HELLO, only["candidates"][0]["content"], *HELLO]}).chat
    assert isinstance(chat, ChatBody)
    assert chat.messages[1].reasoning_content is not None
    assert "Hm" in chat.messages[1].reasoning_content
    assert b"Hm" in base64.b64decode(base64.b64decode(part["thoughtSignature"]).decode().removeprefix("uad1:"))


def test_a_stream_that_breaks_off_has_said_all_words_before_its_error() -> None:
    fake = FakeRuntime(script=lambda request: b"Hello there.", fail=DecodeError("it broke"), fail_after=6)
    *said, error = streamed({}, fake)
    assert error["error"]["status"] == "INTERNAL"
    assert all(map(is_valid, said))
    text = "".join(part["text"] for event in said for part in event["candidates"][0]["content"]["parts"])
    assert "Hello there.".startswith(text)
    assert len(text) >= 6


def test_every_candidate_ends_with_its_own_last_words() -> None:
    found = streamed({"generationConfig": {"candidateCount": 2}}, saying("Hi there"))
    assert all(map(is_valid, found))
    ends = [event["candidates"][0] for event in found if "finishReason" in event["candidates"][0]]
    assert sorted(end["index"] for end in ends) == [0, 1]
    assert json.dumps(found).count("usageMetadata") == 1
