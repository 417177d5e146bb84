"""What tests of the APIs beside chat completions share: answers that are said, and readers of their streams."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import ClientSession

from kit.calls_kit import FORMATS
from kit.fake_runtime import FakeRuntime
from kit.server_kit import with_server
from uad.text.calls.format import AnswerFormat

ANSWERS = AnswerFormat((FORMATS["hermes"],))
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "tea"}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "say", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nHm, hm.\n</think>\n\n"


def saying(text: str, **more: Any) -> FakeRuntime:
    """A runtime that answers so."""
    return FakeRuntime(script=lambda request: text.encode(), answers=ANSWERS, **more)


def named_events(data: bytes) -> list[Any]:
    """The objects of a stream, each of whose events is named as its object's type; comments are left out."""
    found = []
    for part in data.decode().split("\n\n"):
        if part and not part.startswith(":"):
            name, _, text = part.partition("\n")
            event = json.loads(text.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
    return found


def streamed(path: str, body: Any, fake: FakeRuntime, **headers: str) -> list[Any]:
    """One streamed POST to a fresh server, read to the end."""

    async def test(session: ClientSession) -> list[Any]:
        async with session.post(path, json={**body, "stream": True}, headers=headers) as answer:
            data = await answer.read()
            assert answer.status == 200, data
            assert answer.content_type == "text/event-stream"
            return named_events(data)

    return with_server(test, fake)
