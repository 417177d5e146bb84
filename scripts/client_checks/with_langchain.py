"""LangChain's ChatOpenAI."""

from __future__ import annotations

from typing import Any

from checks import (
    CLIENT,
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
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
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=MODEL, temperature=0, max_tokens=MAX_TOKENS, **CLIENT)


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
    tells_report(
        with_tool.invoke(
            [asked, answer, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])]
        ).content
    )


@check("bind_tools, streamed")
def bound_stream() -> None:
    first, *rest = model.bind_tools([get_weather]).stream(WEATHER)
    whole: Any = first
    for chunk in rest:
        whole += chunk
    (call,) = whole.tool_calls
    is_paris(call["name"], call["args"])


@check("with_structured_output, json_schema")
def by_schema() -> None:
    is_bob(model.with_structured_output(Person, method="json_schema").invoke(PERSON))


@check("with_structured_output, function_calling")
def by_call() -> None:
    is_bob(model.with_structured_output(Person, method="function_calling").invoke(PERSON))


@check("with_structured_output, json_mode")
def by_json() -> None:
    is_bob(model.with_structured_output(Person, method="json_mode").invoke(PERSON))


run("langchain-openai")
