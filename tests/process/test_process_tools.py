"""Tools and thoughts against a real server process with the bundled pair, whose template has no place for tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest
from kit.models import DRAFTS, TARGET
from kit.process import Server

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
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}
        ],
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
        openai.OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=2, timeout=240) as client,
    ):
        yield client


def ask(client: openai.OpenAI, messages: Any = HISTORY, **fields: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "any", "messages": messages, "temperature": 0, "max_tokens": 24, **fields}
    )


def test_tools_and_their_history_are_taken_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = ask(client, tools=[TOOL]).choices[0]
    chunks = [one for one in ask(client, tools=[TOOL], stream=True) if one.choices]
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == (whole.message.content or "")
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_the_same_text_drafted_or_not(client: openai.OpenAI) -> None:
    texts = {
        ask(client, tools=[TOOL], max_tokens=48, extra_body={"speculative": {"enabled": enabled}})
        .choices[0]
        .message.content
        for enabled in (True, False)
    }
    assert len(texts) == 1


def test_tools_are_told_in_the_prompt(client: openai.OpenAI) -> None:
    more = ask(client, tools=[TOOL]).usage.prompt_tokens
    assert more > ask(client).usage.prompt_tokens + 100
    told = client.post("/../apply-template", cast_to=object, body={"messages": HISTORY, "tools": [TOOL]})
    assert isinstance(told, dict)
    assert all(
        part in told["prompt"]
        for part in ("Looks a word up.", '{"name": "look_up", "arguments": {"word": "tea"}}', "A drink.")
    )


def test_a_choice_that_cannot_be_is_refused_at_once(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="tools has no function 'other'"):
        ask(client, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "other"}})
    assert ask(client, tools=[TOOL], tool_choice="none").choices[0].message.tool_calls is None
    with pytest.raises(openai.BadRequestError, match="there is no tool to call"):
        ask(client, tool_choice="required")


SAY: Any = {
    "type": "function",
    "function": {
        "name": "say",
        "parameters": {
            "type": "object",
            "properties": {"loud": {"type": "boolean"}, "times": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["loud", "times"],
            "additionalProperties": False,
        },
    },
}
DRAFTS_OR_NONE = ({"enabled": False}, {"policy": "fixed"}, {"policy": "auto"})


def calls_of(message: Any) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]


def streamed_calls(chunks: Any) -> tuple[list[tuple[str, str]], str]:
    """The calls of a stream, and why it ended. Fails where it has content."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    finish = ""
    for one in (chunk.choices[0] for chunk in chunks if chunk.choices):
        assert not one.delta.content
        for piece in one.delta.tool_calls or ():
            names[piece.index] = names.get(piece.index, "") + (piece.function.name or "")
            arguments[piece.index] = arguments.get(piece.index, "") + (piece.function.arguments or "")
        finish = one.finish_reason or finish
    return list(zip(names.values(), arguments.values(), strict=True)), finish


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("chosen", ["required", "say"])
def test_a_required_call_is_valid_streamed_and_whole_drafted_and_plain(
    client: openai.OpenAI, chosen: str, temperature: float
) -> None:
    bounded = {**SAY, "function": {**SAY["function"], "name": "nod"}}
    tool_choice: Any = "required" if chosen == "required" else {"type": "function", "function": {"name": chosen}}
    fields: Any = {"tools": [bounded, SAY], "tool_choice": tool_choice, "parallel_tool_calls": False}
    fields |= {"temperature": temperature, "seed": 3, "max_tokens": 200}
    answers = []
    for draft in DRAFTS_OR_NONE:
        whole = ask(client, **fields, extra_body={"speculative": draft}).choices[0]
        assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
        answers.append(calls_of(whole.message))
        assert streamed_calls(ask(client, **fields, stream=True, extra_body={"speculative": draft})) == (
            answers[-1],
            "tool_calls",
        )
    assert answers[0] == answers[1] == answers[2]
    ((name, arguments),) = answers[0]
    assert name in ({"nod", "say"} if chosen == "required" else {chosen})
    jsonschema.validate(json.loads(arguments), SAY["function"]["parameters"])


def test_what_a_required_call_forces_is_drafted(client: openai.OpenAI) -> None:
    answer = ask(client, tools=[SAY], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    by = answer.uad["drafters"]["grammar"]
    assert by["draft_n_accepted"] == by["draft_n"] > 20


def test_a_strict_tool_leaves_words_free(client: openai.OpenAI) -> None:
    strict = {**SAY, "function": {**SAY["function"], "strict": True}}
    said = {ask(client, tools=[tool], max_tokens=24).choices[0].message.content for tool in (SAY, strict)}
    assert len(said) == 1
