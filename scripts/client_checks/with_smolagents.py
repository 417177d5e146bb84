"""smolagents' ToolCallingAgent."""

from __future__ import annotations

from checks import BASE_URL, KEY, MAX_TOKENS, MODEL, REPORT, TIMEOUT_S, WEATHER, check, is_paris, run, tells_report
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

asked: list[str] = []


@tool
def get_weather(city: str) -> str:
    """Tells the weather of a city

    Args:
        city: name of the city
    """
    asked.append(city)
    return REPORT


@check("ToolCallingAgent: a tool, and the final answer")
def a_tool() -> None:
    model = OpenAIServerModel(
        MODEL,
        api_base=BASE_URL,
        api_key=KEY,
        client_kwargs={"timeout": TIMEOUT_S, "max_retries": 0},
        temperature=0,
        max_tokens=MAX_TOKENS,
    )
    answer = ToolCallingAgent(tools=[get_weather], model=model, max_steps=3, verbosity_level=-1).run(WEATHER)
    assert asked, f"no call: {answer!r}"
    is_paris("get_weather", {"city": asked[0]})
    tells_report(answer)


run("smolagents")
