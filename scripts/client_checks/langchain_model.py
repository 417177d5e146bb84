"""LangChain's uses of any chat model: checks that `with_langchain*.py` share."""

from __future__ import annotations

from typing import Any

from checks import PERSON, REPORT, WEATHER, Person, check, is_bob, is_paris, tells_report
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool


@tool
def get_weather(city: str) -> str:
    """Tells the weather of a city"""
    return REPORT


def whole(chunks: Any) -> Any:
    """The answer that a stream makes."""
    first, *rest = chunks
    for chunk in rest:
        first += chunk
    return first


def check_model(model: Any, *, call_prompt: str = PERSON, json_prompt: str = PERSON) -> None:
    """A tool that is called and answered, and a person in three ways; the prompts are those of the last two."""

    @check("bind_tools, and the result answered")
    def bound() -> None:
        with_tool = model.bind_tools([get_weather])
        asked = HumanMessage(WEATHER)
        answer = with_tool.invoke([asked])
        (call,) = answer.tool_calls
        is_paris(call["name"], call["args"])
        result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
        tells_report(with_tool.invoke([asked, answer, result]).content)

    @check("with_structured_output, json_schema")
    def by_schema() -> None:
        is_bob(model.with_structured_output(Person, method="json_schema").invoke(PERSON))

    @check("with_structured_output, function_calling")
    def by_call() -> None:
        is_bob(model.with_structured_output(Person, method="function_calling").invoke(call_prompt))

    @check("with_structured_output, json_mode")
    def by_json() -> None:
        is_bob(model.with_structured_output(Person, method="json_mode").invoke(json_prompt))
