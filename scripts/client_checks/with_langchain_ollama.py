"""LangChain's ChatOllama."""

from __future__ import annotations

from typing import Any

from checks import (
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
    ROOT_URL,
    TOOL_PERSON,
    WEATHER,
    Person,
    check,
    is_bob,
    is_paris,
    run,
    tells_report,
)
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama

model = ChatOllama(model=MODEL, base_url=ROOT_URL, temperature=0, num_predict=MAX_TOKENS)


@tool
def get_weather(city: str) -> str:
    """Tells the weather of a city"""
    return REPORT


@check("bind_tools, and the result answered")
def bound() -> None:
    with_tool = model.bind_tools([get_weather])
    asked = HumanMessage(WEATHER)
    answer = with_tool.invoke([asked])
    (call,) = answer.tool_calls
    is_paris(call["name"], call["args"])
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    tells_report(with_tool.invoke([asked, answer, result]).content)


@check("stream, with the numbers of tokens")
def streamed() -> None:
    first, *rest = model.stream("Say hello.")
    whole: Any = first
    for chunk in rest:
        whole += chunk
    assert whole.content, "no text"
    assert whole.usage_metadata["output_tokens"] > 0, "no tokens"


@check("with_structured_output, json_schema")
def by_schema() -> None:
    is_bob(model.with_structured_output(Person, method="json_schema").invoke(PERSON))


@check("with_structured_output, function_calling")
def by_call() -> None:
    # Ollama's API cannot say that a tool must be called
    is_bob(
        model.with_structured_output(Person, method="function_calling").invoke(f"{TOOL_PERSON} Write a <tool_call>.")
    )


@check("with_structured_output, json_mode")
def by_json() -> None:
    is_bob(model.with_structured_output(Person, method="json_mode").invoke(f"{PERSON} Keys: name, age, city."))


@check("reasoning is asked for")
def reasoning() -> None:
    assert model.invoke("Say hello.", reasoning=True).content, "no text"


run("langchain-ollama")
