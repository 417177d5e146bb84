"""Tools and thoughts against a real server process with the bundled pair, whose template has no place for tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from models import DRAFTS, TARGET
from process import Server

pytestmark = pytest.mark.model
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
HISTORY: Any = [
    {"role": "user", "content": "What is tea?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "A drink."},
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    log = tmp_path_factory.mktemp("server") / "log"
    pair = ("--target", str(TARGET), "--draft", str(DRAFTS["zephyr"]))
    flags = (*pair, "-c", "4096", "--exact", "--spec-policy", "fixed")
    with (
        Server(log, [*flags]) as running,
        openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=2, timeout=60) as client,
    ):
        yield client


def ask(client: openai.OpenAI, messages: Any = HISTORY, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "any", "messages": messages, "temperature": 0, "max_tokens": 24, **fields})


def test_tools_and_their_history_are_taken_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = ask(client, tools=[TOOL]).choices[0]
    chunks = [one for one in ask(client, tools=[TOOL], stream=True) if one.choices]
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == (whole.message.content or "")
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_the_same_text_drafted_or_not(client: openai.OpenAI) -> None:
    texts = {
        ask(client, tools=[TOOL], max_tokens=48, extra_body={"speculative": {"enabled": enabled}}).choices[0].message.content
        for enabled in (True, False)
    }
    assert len(texts) == 1


def test_tools_are_told_in_the_prompt(client: openai.OpenAI) -> None:
    more = ask(client, tools=[TOOL]).usage.prompt_tokens
    assert more > ask(client).usage.prompt_tokens + 100
    told = client.post("/../apply-template", cast_to=object, body={"messages": HISTORY, "tools": [TOOL]})
    assert isinstance(told, dict)
    assert all(part in told["prompt"] for part in ("Looks a word up.", '{"name": "look_up", "arguments": {"word": "tea"}}', "A drink."))


def test_a_choice_that_cannot_be_is_refused_at_once(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="tools has no function 'other'"):
        ask(client, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}})
    assert ask(client, tools=[TOOL], tool_choice="none").choices[0].message.tool_calls is None
    assert ask(client, tool_choice="required").choices[0].message.content is not None
