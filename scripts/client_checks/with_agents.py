"""The Agents SDK of OpenAI, over chat completions."""

from __future__ import annotations

import asyncio

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
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
    Person,
    check,
    is_bob,
    is_paris,
    run,
    tells_report,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)
SETTINGS = ModelSettings(temperature=0, max_tokens=MAX_TOKENS)


def model() -> OpenAIChatCompletionsModel:
    """One for each event loop."""
    return OpenAIChatCompletionsModel(
        MODEL, AsyncOpenAI(base_url=BASE_URL, api_key=KEY, timeout=TIMEOUT_S, max_retries=0)
    )


@check("a tool, called and answered")
def a_tool() -> None:
    asked: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """Tells the weather of a city"""
        asked.append(city)
        return REPORT

    settings = SETTINGS.resolve(ModelSettings(tool_choice="required", parallel_tool_calls=False))  # of the first turn
    agent = Agent(
        name="weather", instructions=INSTRUCTIONS, model=model(), model_settings=settings, tools=[get_weather]
    )
    answer = asyncio.run(Runner.run(agent, WEATHER, max_turns=3))
    assert asked, f"no call: {answer.final_output!r}"
    is_paris("get_weather", {"city": asked[0]})
    tells_report(answer.final_output)


@check("output_type")
def output_type() -> None:
    agent = Agent(name="reader", model=model(), model_settings=SETTINGS, output_type=Person)
    is_bob(asyncio.run(Runner.run(agent, PERSON, max_turns=1)).final_output)


run("openai-agents")
