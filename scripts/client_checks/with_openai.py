"""The client of OpenAI."""

from __future__ import annotations

import json
from typing import Any

import openai
from checks import (
    CLIENT,
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
    TOOL_PERSON,
    WEATHER,
    WEATHER_TOOL,
    Person,
    check,
    is_bob,
    is_paris,
    run,
    tells_report,
)

client: Any = openai.OpenAI(**CLIENT)
ASKED: list[Any] = [{"role": "user", "content": WEATHER}]
COMMON: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": MAX_TOKENS}


def called(**fields: Any) -> Any:
    """The message of an answer about the weather."""
    answer = client.chat.completions.create(messages=ASKED, tools=[WEATHER_TOOL], **COMMON, **fields)
    assert answer.choices[0].finish_reason == "tool_calls", f"finish_reason is {answer.choices[0].finish_reason!r}"
    return answer.choices[0].message


@check("a tool")
def a_tool() -> None:
    (call,) = called().tool_calls
    is_paris(call.function.name, call.function.arguments)


@check("a tool, streamed")
def a_tool_streamed() -> None:
    name, arguments, finish = "", "", None
    with client.chat.completions.create(messages=ASKED, tools=[WEATHER_TOOL], stream=True, **COMMON) as chunks:
        for choice in (choice for chunk in chunks for choice in chunk.choices):
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or ():
                assert piece.index == 0, "a second call"
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
    assert finish == "tool_calls", f"finish_reason is {finish!r}"
    is_paris(name, arguments)


@check("a tool that must be called")
def a_required_tool() -> None:
    (call,) = called(tool_choice="required", parallel_tool_calls=False).tool_calls
    is_paris(call.function.name, call.function.arguments)


@check("a tool that is named")
def a_named_tool() -> None:
    (call,) = called(tool_choice={"type": "function", "function": {"name": "get_weather"}}).tool_calls
    is_paris(call.function.name, call.function.arguments)


@check("the tool's result, answered")
def the_result() -> None:
    message = called()
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": REPORT}
    answer = client.chat.completions.create(messages=[*ASKED, message, result], tools=[WEATHER_TOOL], **COMMON)
    tells_report(answer.choices[0].message.content)


@check("parse: a model of pydantic")
def parsed() -> None:
    answer = client.chat.completions.parse(
        messages=[{"role": "user", "content": PERSON}], response_format=Person, **COMMON
    )
    is_bob(answer.choices[0].message.parsed)


@check("stream: a model of pydantic")
def parsed_stream() -> None:
    with client.chat.completions.stream(
        messages=[{"role": "user", "content": PERSON}], response_format=Person, **COMMON
    ) as stream:
        is_bob(stream.get_final_completion().choices[0].message.parsed)


@check("parse: a strict tool of pydantic")
def parsed_tool() -> None:
    tool = openai.pydantic_function_tool(Person, name="save")
    answer = client.chat.completions.parse(
        messages=[{"role": "user", "content": TOOL_PERSON}],
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        **COMMON,
    )
    (call,) = answer.choices[0].message.tool_calls
    is_bob(call.function.parsed_arguments)


@check("answers that were parsed or refused, sent back")
def sent_back() -> None:
    asked: Any = {"role": "user", "content": PERSON}
    answer = client.chat.completions.parse(messages=[asked], response_format=Person, **COMMON)
    message = answer.choices[0].message
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    for said in (message, message.model_dump(warnings=False), refused):
        assert client.chat.completions.create(messages=[asked, said, asked], **COMMON).choices


@check("json_object")
def json_object() -> None:
    answer = client.chat.completions.create(
        messages=[{"role": "user", "content": PERSON}], response_format={"type": "json_object"}, **COMMON
    )
    is_bob(Person.model_validate(json.loads(answer.choices[0].message.content or "")))


run("openai")
