"""Ollama's own package."""

from __future__ import annotations

from typing import Any

from checks import (
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
from ollama import Client, ResponseError

OPTIONS = {"temperature": 0, "num_predict": MAX_TOKENS, "num_ctx": 8192}
client = Client(host=ROOT_URL, timeout=TIMEOUT_S)


def chat(messages: list[Any], **fields: Any) -> Any:
    """An answer of the server."""
    return client.chat(model=MODEL, messages=messages, options=OPTIONS, **fields)


def said(text: str) -> list[Any]:
    """A conversation that begins."""
    return [{"role": "user", "content": text}]


@check("list, show, ps")
def the_model() -> None:
    (listed,) = client.list().models
    shown = client.show(listed.model)
    assert "completion" in (shown.capabilities or []), f"other capabilities: {shown.capabilities}"
    assert shown.modelinfo, "no numbers of the model"
    (running,) = client.ps().models
    assert running.digest == listed.digest, "another model is running"


@check("chat, and the same streamed")
def a_chat() -> None:
    whole = chat(said("Say hello."))
    pieces = list(chat(said("Say hello."), stream=True))
    assert whole.message.content, "no text"
    assert "".join(one.message.content or "" for one in pieces) == whole.message.content, "another text"
    assert pieces[-1].done_reason == "stop", f"another reason: {pieces[-1].done_reason}"
    assert min(pieces[-1].eval_count or 0, pieces[-1].eval_duration or 0) > 0, "no numbers"


@check("a tool, and the result answered")
def a_tool() -> None:
    messages = said(WEATHER)
    message = chat(messages, tools=[WEATHER_TOOL]).message
    (call,) = message.tool_calls
    is_paris(call.function.name, dict(call.function.arguments))
    messages += [message, {"role": "tool", "tool_name": call.function.name, "content": REPORT}]
    tells_report(chat(messages, tools=[WEATHER_TOOL]).message.content)


@check("a tool, streamed: a Python function")
def a_tool_streamed() -> None:
    def get_weather(city: str) -> str:
        """Tells the weather of a city

        Args:
            city: name of the city
        """
        return REPORT

    calls = [
        call for one in chat(said(WEATHER), tools=[get_weather], stream=True) for call in one.message.tool_calls or ()
    ]
    (call,) = calls
    is_paris(call.function.name, dict(call.function.arguments))


@check("format: a model of pydantic")
def by_schema() -> None:
    is_bob(Person.model_validate_json(chat(said(PERSON), format=Person.model_json_schema()).message.content))


@check('format: "json"')
def by_json() -> None:
    is_bob(Person.model_validate_json(chat(said(f"{PERSON} Keys: name, age, city."), format="json").message.content))


@check("think: taken by a model without thoughts")
def thinking() -> None:
    assert chat(said("Say hello."), think=True).message.content, "no text"


@check("logprobs")
def probabilities() -> None:
    found = chat(said("Say hello."), logprobs=True, top_logprobs=2).logprobs
    assert found, "no probabilities"
    assert len(found[0].top_logprobs) == 2, "not two alternatives"


@check("generate, whole and streamed, with a system message")
def generated() -> None:
    fields: dict[str, Any] = {"prompt": "Say hello.", "system": "Be brief.", "options": OPTIONS}
    whole = client.generate(model=MODEL, **fields).response
    assert whole, "no text"
    assert "".join(one.response for one in client.generate(model=MODEL, stream=True, **fields)) == whole, "another text"


@check("generate: raw, and what stands before a suffix")
def after_a_prompt() -> None:
    options = {**OPTIONS, "num_predict": 16}
    assert client.generate(model=MODEL, prompt="def add(a, b):\n", raw=True, options=options).response, "no text"
    inserted = client.generate(
        model=MODEL, prompt="def add(a, b):\n    return ", suffix="\n\nprint(add(1, 2))", options=options
    ).response
    assert "a + b" in inserted, f"another text: {inserted!r}"


@check("keep_alive: load and unload")
def loaded() -> None:
    assert client.generate(model=MODEL, keep_alive="5m").done_reason == "load", "not loaded"
    assert client.generate(model=MODEL, keep_alive=0).done_reason == "unload", "not unloaded"


@check("an error, by its class")
def refused() -> None:
    found = ""
    try:
        client.embed(model=MODEL, input="hello")
    except ResponseError as error:
        found = error.error
    assert "/api/embed is not supported" in found, f"another error: {found!r}"


run("ollama")
