"""The client of OpenAI, over the Responses API."""

from __future__ import annotations

from typing import Any

import openai
from checks import (
    CLIENT,
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
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
COMMON: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": MAX_TOKENS, "store": False}
TOOL: dict[str, Any] = {"type": "function", **WEATHER_TOOL["function"], "strict": False}


def call_in(response: Any) -> Any:
    """The one call of a response, which is about the weather in Paris."""
    (call,) = (item for item in response.output if item.type == "function_call")
    is_paris(call.name, call.arguments)
    return call


def called(**fields: Any) -> Any:
    """A response that calls the tool."""
    response = client.responses.create(input=ASKED, tools=[TOOL], **COMMON, **fields)
    call_in(response)
    return response


@check("responses: a text")
def a_text() -> None:
    response = client.responses.create(input="Say hello.", instructions="You are friendly.", **COMMON)
    assert response.status == "completed", f"status is {response.status!r}"
    assert response.output_text, "no text"
    assert response.usage.output_tokens > 0, "no tokens"


@check("responses: a text, streamed")
def a_text_streamed() -> None:
    with client.responses.stream(input="Say hello.", **COMMON) as stream:
        events = list(stream)
        response = stream.get_final_response()
    pieces = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert pieces, "no text"
    assert pieces == response.output_text, f"the pieces are another text: {pieces!r}"
    assert [event.sequence_number for event in events if hasattr(event, "sequence_number")], "no numbers"


@check("responses: a tool")
def a_tool() -> None:
    called()


@check("responses: a tool, streamed")
def a_tool_streamed() -> None:
    with client.responses.stream(input=ASKED, tools=[TOOL], **COMMON) as stream:
        call_in(stream.get_final_response())


@check("responses: a tool that must be called")
def a_required_tool() -> None:
    called(tool_choice="required", parallel_tool_calls=False)


@check("responses: a tool that is named")
def a_named_tool() -> None:
    called(tool_choice={"type": "function", "name": "get_weather"})


@check("responses: the tool's result, answered")
def the_result() -> None:
    response = called(include=["reasoning.encrypted_content"])
    result = {"type": "function_call_output", "call_id": call_in(response).call_id, "output": REPORT}
    answer = client.responses.create(input=[*ASKED, *response.output, result], tools=[TOOL], **COMMON)
    tells_report(answer.output_text)


@check("responses.parse: a model of pydantic")
def parsed() -> None:
    is_bob(client.responses.parse(input=PERSON, text_format=Person, **COMMON).output_parsed)


@check("responses.stream: a model of pydantic")
def parsed_stream() -> None:
    with client.responses.stream(input=PERSON, text_format=Person, **COMMON) as stream:
        is_bob(stream.get_final_response().output_parsed)


@check("responses: probabilities")
def probabilities() -> None:
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    response = client.responses.create(input="Say hello.", **COMMON, **fields)
    (part,) = next(item for item in response.output if item.type == "message").content
    assert part.logprobs, "none"
    assert part.text.startswith(part.logprobs[0].token), f"another token: {part.logprobs[0]!r}"


@check("responses.input_tokens.count")
def input_tokens() -> None:
    counted = client.responses.input_tokens.count(input="Say hello.", model=MODEL).input_tokens
    told = client.responses.create(input="Say hello.", **COMMON).usage.input_tokens
    assert counted == told, f"{counted} counted, {told} read"


@check("responses: what needs a memory is refused")
def no_memory() -> None:
    refusal = None
    try:
        client.responses.create(input="Say hello.", previous_response_id="resp_1", **COMMON)
    except openai.BadRequestError as error:
        refusal = error
    assert refusal is not None, "previous_response_id was taken"
    assert refusal.param == "previous_response_id", f"another field: {refusal!r}"


run("openai")
