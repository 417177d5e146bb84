"""The Agents SDK of OpenAI, over chat completions and over responses."""

from __future__ import annotations

import asyncio

from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from checks import (
    CLIENT,
    INSTRUCTIONS,
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
from openai import AsyncOpenAI

set_tracing_disabled(True)
SETTINGS = ModelSettings(temperature=0, max_tokens=MAX_TOKENS)


def model(kind: type[OpenAIChatCompletionsModel | OpenAIResponsesModel]) -> Model:
    """One for each event loop."""
    client = AsyncOpenAI(**CLIENT)
    return kind(MODEL, client)


def calls_tool(kind: type[OpenAIChatCompletionsModel | OpenAIResponsesModel], streams: bool = False) -> None:
    """Raises AssertionError unless an agent calls its tool for Paris and tells what it said."""
    asked: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """Tells the weather of a city"""
        asked.append(city)
        return REPORT

    async def answered() -> object:
        if not streams:
            return (await Runner.run(agent, WEATHER, max_turns=3)).final_output
        answer = Runner.run_streamed(agent, WEATHER, max_turns=3)
        async for _ in answer.stream_events():
            pass
        return answer.final_output

    settings = SETTINGS.resolve(ModelSettings(tool_choice="required", parallel_tool_calls=False))  # of the first turn
    agent = Agent(
        name="weather", instructions=INSTRUCTIONS, model=model(kind), model_settings=settings, tools=[get_weather]
    )
    output = asyncio.run(answered())
    assert asked, f"no call: {output!r}"
    is_paris("get_weather", {"city": asked[0]})
    tells_report(str(output))


def reads_person(kind: type[OpenAIChatCompletionsModel | OpenAIResponsesModel]) -> None:
    """Raises AssertionError unless an agent gives the person as its output."""
    agent = Agent(name="reader", model=model(kind), model_settings=SETTINGS, output_type=Person)
    is_bob(asyncio.run(Runner.run(agent, PERSON, max_turns=1)).final_output)


@check("a tool, called and answered")
def a_tool() -> None:
    calls_tool(OpenAIChatCompletionsModel)


@check("output_type")
def output_type() -> None:
    reads_person(OpenAIChatCompletionsModel)


@check("responses: a tool")
def a_tool_of_a_response() -> None:
    calls_tool(OpenAIResponsesModel)


@check("responses: a tool, streamed")
def a_tool_of_a_stream() -> None:
    calls_tool(OpenAIResponsesModel, streams=True)


@check("responses: output_type")
def output_type_of_a_response() -> None:
    reads_person(OpenAIResponsesModel)


run("openai-agents")
