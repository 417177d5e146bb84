"""LangChain's ChatOpenAI."""

from __future__ import annotations

from checks import CLIENT, MAX_TOKENS, MODEL, WEATHER, check, is_paris, run
from langchain_model import check_model, get_weather, whole
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=MODEL, temperature=0, max_tokens=MAX_TOKENS, **CLIENT)
check_model(model)


@check("bind_tools, streamed")
def bound_stream() -> None:
    (call,) = whole(model.bind_tools([get_weather]).stream(WEATHER)).tool_calls
    is_paris(call["name"], call["args"])


run("langchain-openai")
