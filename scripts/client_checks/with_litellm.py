"""LiteLLM."""

from __future__ import annotations

from typing import Any

import litellm
from checks import (
    BASE_URL,
    KEY,
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
    ROOT_URL,
    TIMEOUT_S,
    WEATHER,
    WEATHER_TOOL,
    Person,
    check,
    is_bob,
    is_paris,
    run,
    tells_report,
)


def completion(messages: list[Any], **fields: Any) -> Any:
    """An answer of the server."""
    return litellm.completion(
        f"openai/{MODEL}",
        messages,
        api_base=BASE_URL,
        api_key=KEY,
        timeout=TIMEOUT_S,
        temperature=0,
        max_tokens=MAX_TOKENS,
        **fields,
    )


@check("a tool, and the result answered")
def a_tool() -> None:
    messages: list[Any] = [{"role": "user", "content": WEATHER}]
    message = completion(messages, tools=[WEATHER_TOOL]).choices[0].message
    (call,) = message.tool_calls
    is_paris(call.function.name, call.function.arguments)
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": REPORT}]
    tells_report(completion(messages, tools=[WEATHER_TOOL]).choices[0].message.content)


@check("a tool, streamed")
def a_tool_streamed() -> None:
    chunks = list(completion([{"role": "user", "content": WEATHER}], tools=[WEATHER_TOOL], stream=True))
    (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    is_paris(call.function.name, call.function.arguments)


@check("response_format: a model of pydantic")
def by_schema() -> None:
    answer = completion([{"role": "user", "content": PERSON}], response_format=Person)
    is_bob(Person.model_validate_json(answer.choices[0].message.content))


@check("responses: a tool")
def a_response() -> None:
    tool = {"type": "function", **WEATHER_TOOL["function"], "strict": False}
    fields: dict[str, Any] = {"temperature": 0, "max_output_tokens": MAX_TOKENS, "tools": [tool]}
    answer = litellm.responses(
        input=WEATHER, model=f"openai/{MODEL}", api_base=BASE_URL, api_key=KEY, timeout=TIMEOUT_S, **fields
    )
    (call,) = (item for item in answer.output if item.type == "function_call")
    is_paris(call.name, call.arguments)


@check("anthropic/: a tool, and the result answered")
def a_message() -> None:
    messages: list[Any] = [{"role": "user", "content": WEATHER}]
    fields: dict[str, Any] = {"api_base": ROOT_URL, "api_key": KEY, "timeout": TIMEOUT_S}
    fields |= {"max_tokens": MAX_TOKENS, "tools": [WEATHER_TOOL]}
    message = litellm.completion(f"anthropic/{MODEL}", messages, temperature=0, **fields).choices[0].message
    (call,) = message.tool_calls
    is_paris(call.function.name, call.function.arguments)
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": REPORT}]
    answer = litellm.completion(f"anthropic/{MODEL}", messages, temperature=0, **fields)
    tells_report(answer.choices[0].message.content)


def as_ollama(messages: list[Any], **fields: Any) -> Any:
    """An answer of the server by Ollama's API."""
    same: dict[str, Any] = {"api_base": ROOT_URL, "timeout": TIMEOUT_S, "temperature": 0, "max_tokens": MAX_TOKENS}
    return litellm.completion(f"ollama_chat/{MODEL}", messages, **same, **fields)


@check("ollama_chat/: a tool, and the result answered")
def a_talk() -> None:
    messages: list[Any] = [{"role": "user", "content": WEATHER}]
    message = as_ollama(messages, tools=[WEATHER_TOOL]).choices[0].message
    (call,) = message.tool_calls
    is_paris(call.function.name, call.function.arguments)
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": REPORT}]
    tells_report(as_ollama(messages, tools=[WEATHER_TOOL]).choices[0].message.content)


@check("ollama_chat/: a tool, streamed")
def a_talk_streamed() -> None:
    chunks = list(as_ollama([{"role": "user", "content": WEATHER}], tools=[WEATHER_TOOL], stream=True))
    (call,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    is_paris(call.function.name, call.function.arguments)


@check("ollama_chat/: response_format: a model of pydantic")
def a_talk_by_schema() -> None:
    answer = as_ollama([{"role": "user", "content": PERSON}], response_format=Person)
    is_bob(Person.model_validate_json(answer.choices[0].message.content))


@check("ollama/: a text of /api/generate")
def a_text() -> None:
    answer = litellm.completion(
        f"ollama/{MODEL}", [{"role": "user", "content": "Say hello."}], api_base=ROOT_URL, max_tokens=16, temperature=0
    )
    assert answer.choices[0].message.content, "no text"


run("litellm")
