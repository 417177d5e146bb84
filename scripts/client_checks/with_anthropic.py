"""The client of Anthropic."""

from __future__ import annotations

from typing import Any

import anthropic
from checks import (
    CLIENT,
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
    ROOT_URL,
    WEATHER,
    City,
    Person,
    check,
    is_bob,
    is_paris,
    run,
    tells_report,
)

client: Any = anthropic.Anthropic(**{**CLIENT, "base_url": ROOT_URL})
ASKED: list[Any] = [{"role": "user", "content": WEATHER}]
GREETED: list[Any] = [{"role": "user", "content": "Say hello."}]
COMMON: dict[str, Any] = {"model": MODEL, "max_tokens": MAX_TOKENS, "extra_body": {"temperature": 0}}
TOOL = {
    "name": "get_weather",
    "description": "Tells the weather of a city",
    "input_schema": City.model_json_schema(),
}


def called(**fields: Any) -> Any:
    """The message of an answer about the weather, and its one call."""
    message = client.messages.create(messages=ASKED, tools=[TOOL], **COMMON, **fields)
    assert message.stop_reason == "tool_use", f"stop_reason is {message.stop_reason!r}"
    (use,) = (block for block in message.content if block.type == "tool_use")
    is_paris(use.name, use.input)
    return message, use


@check("a text")
def a_text() -> None:
    message = client.messages.create(messages=GREETED, system="You are friendly.", **COMMON)
    assert message.stop_reason == "end_turn", f"stop_reason is {message.stop_reason!r}"
    assert any(block.type == "text" and block.text for block in message.content), f"no text: {message.content!r}"
    assert message.usage.output_tokens > 0, "no tokens"


@check("a text, streamed")
def a_text_streamed() -> None:
    with client.messages.stream(messages=GREETED, **COMMON) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    told = "".join(block.text for block in message.content if block.type == "text")
    assert text, "no text"
    assert text == told, f"the pieces are another text: {text!r}, {told!r}"
    assert message.usage.input_tokens > 0, "no tokens of the prompt"


@check("a tool")
def a_tool() -> None:
    called()


@check("a tool, streamed")
def a_tool_streamed() -> None:
    with client.messages.stream(messages=ASKED, tools=[TOOL], **COMMON) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use", f"stop_reason is {message.stop_reason!r}"
    (use,) = (block for block in message.content if block.type == "tool_use")
    is_paris(use.name, use.input)


@check("a tool that must be called")
def a_required_tool() -> None:
    called(tool_choice={"type": "any", "disable_parallel_tool_use": True})


@check("a tool that is named")
def a_named_tool() -> None:
    called(tool_choice={"type": "tool", "name": "get_weather"})


@check("the tool's result, answered")
def the_result() -> None:
    message, use = called()
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": REPORT}]}
    history = [*ASKED, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(messages=history, tools=[TOOL], **COMMON)
    tells_report("".join(block.text for block in answer.content if block.type == "text"))


@check("thinking is asked for")
def thinking() -> None:
    asked = {"type": "enabled", "budget_tokens": 64}
    with client.messages.stream(messages=GREETED, thinking=asked, **COMMON) as stream:
        message = stream.get_final_message()
    kinds = [block.type for block in message.content]
    assert kinds in (["text"], ["thinking", "text"]), f"other blocks: {kinds}"


@check("parse: a model of pydantic")
def parsed() -> None:
    asked = [{"role": "user", "content": PERSON}]
    is_bob(client.messages.parse(messages=asked, output_format=Person, **COMMON).parsed_output)


@check("stop_sequences")
def stop_sequences() -> None:
    asked = [{"role": "user", "content": "Count from 1 to 9, with a comma between."}]
    message = client.messages.create(messages=asked, stop_sequences=["5"], **COMMON)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "5"), f"another end: {message!r}"


@check("count_tokens")
def count_tokens() -> None:
    counted = client.messages.count_tokens(messages=GREETED, model=MODEL).input_tokens
    usage = client.messages.create(messages=GREETED, **COMMON).usage
    told = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert counted == told, f"{counted} counted, {told} read"


@check("an error, by its class")
def an_error() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    refusal = None
    try:
        client.messages.create(messages=[{"role": "user", "content": [image]}], **COMMON)
    except anthropic.BadRequestError as error:
        refusal = error
    assert refusal is not None, "an image was taken"
    assert refusal.type == "invalid_request_error", f"another type: {refusal!r}"
    assert refusal.request_id, "no id of the request"


run("anthropic")
