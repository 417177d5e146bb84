"""Pydantic AI."""

from __future__ import annotations

from typing import Any

from checks import (
    BASE_URL,
    INSTRUCTIONS,
    KEY,
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
    TIMEOUT_S,
    WEATHER,
    City,
    Person,
    check,
    is_bob,
    is_paris,
    run,
    tells_report,
)
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=KEY))
SETTINGS: Any = {"temperature": 0, "max_tokens": MAX_TOKENS, "timeout": TIMEOUT_S, "parallel_tool_calls": False}


@check("a tool, called and answered")
def a_tool() -> None:
    agent = Agent(model, instructions=INSTRUCTIONS, model_settings=SETTINGS)
    asked: list[str] = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Tells the weather of a city"""
        asked.append(city)
        return REPORT

    answer = agent.run_sync(WEATHER)
    assert asked, f"no call: {answer.output!r}"
    is_paris("get_weather", City(city=asked[0]).model_dump())
    tells_report(answer.output)


@check("output_type: ToolOutput")
def by_tool() -> None:
    is_bob(Agent(model, output_type=ToolOutput(Person), model_settings=SETTINGS).run_sync(PERSON).output)


@check("output_type: NativeOutput")
def native() -> None:
    is_bob(Agent(model, output_type=NativeOutput(Person), model_settings=SETTINGS).run_sync(PERSON).output)


@check("output_type: PromptedOutput")
def prompted() -> None:
    is_bob(Agent(model, output_type=PromptedOutput(Person), model_settings=SETTINGS).run_sync(PERSON).output)


run("pydantic-ai-slim")
