"""Google's own package for the Gemini API."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from checks import (
    INSTRUCTIONS,
    KEY,
    MAX_TOKENS,
    MODEL,
    PERSON,
    REPORT,
    ROOT_URL,
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
from google import genai
from google.genai import errors, types

client = genai.Client(
    api_key=KEY,
    vertexai=False,
    http_options=types.HttpOptions(
        base_url=ROOT_URL,
        timeout=TIMEOUT_S * 1000,
        retry_options=types.HttpRetryOptions(attempts=1),
    ),
)
WEATHER_TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="get_weather",
            description="Tells the weather of a city",
            parameters=types.Schema(
                type=types.Type.OBJECT,
                properties={"city": types.Schema(type=types.Type.STRING, description="name of the city")},
                required=["city"],
            ),
        )
    ]
)


def config(**fields: Any) -> types.GenerateContentConfig:
    """Settings of a request, greedy and not long."""
    return types.GenerateContentConfig(**{"temperature": 0, "max_output_tokens": MAX_TOKENS, **fields})


def asked(contents: Any, **fields: Any) -> types.GenerateContentResponse:
    """An answer of the server."""
    return client.models.generate_content(model=MODEL, contents=contents, config=config(**fields))


@check("list and get")
def the_model() -> None:
    (listed,) = client.models.list()
    shown = client.models.get(model=listed.name)
    assert shown.name == listed.name, f"another model: {shown.name}"
    assert (shown.input_token_limit or 0) > 0, "no context"
    assert "generateContent" in (shown.supported_actions or []), f"other actions: {shown.supported_actions}"


@check("generate_content, and the same streamed")
def a_text() -> None:
    whole = asked("Say hello.")
    pieces = list(client.models.generate_content_stream(model=MODEL, contents="Say hello.", config=config()))
    assert whole.text, "no text"
    assert "".join(one.text or "" for one in pieces) == whole.text, "another text"
    reason = pieces[-1].candidates[0].finish_reason
    assert reason == types.FinishReason.STOP, f"another reason: {reason}"
    usage = pieces[-1].usage_metadata
    assert usage.total_token_count == usage.prompt_token_count + usage.candidates_token_count, f"{usage}"


@check("a stream of many pieces, by the asynchronous client")
def by_coroutines() -> None:
    async def said() -> str:
        stream = await client.aio.models.generate_content_stream(model=MODEL, contents="Say hello.", config=config())
        return "".join([one.text or "" async for one in stream])

    assert asyncio.run(said()) == asked("Say hello.").text, "another text"


@check("a chat remembers, also what was streamed")
def a_chat() -> None:
    chat = client.chats.create(model=MODEL, config=config(system_instruction="Be brief."))
    first = list(chat.send_message_stream("My name is Bob. Say hello."))
    said = "".join(one.text or "" for one in first)
    assert said, "no text"
    kept = "".join(part.text or "" for turn in chat.get_history(curated=True)[1:] for part in turn.parts)
    assert kept == said, f"the client dropped the turn: {kept!r} is left of {said!r}"
    second = chat.send_message("What is my name?")
    assert second.text, "no second text"
    read = [one.usage_metadata.prompt_token_count for one in (first[-1], second)]
    assert read[1] > read[0] + first[-1].usage_metadata.candidates_token_count, f"prompts of {read} tokens"


@check("stop_sequences and max_output_tokens")
def ends() -> None:
    cut = asked("Count to twenty.", max_output_tokens=4)
    assert cut.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS, "not cut"
    assert cut.usage_metadata.candidates_token_count == 4, f"{cut.usage_metadata}"
    word = (asked("Say hello.").text or "").split()[1]
    assert word not in (asked("Say hello.", stop_sequences=[word]).text or ""), "it went on"


@check("candidate_count and seed")
def candidates() -> None:
    found = asked("Tell me a word.", candidate_count=2, seed=7, temperature=1.0, max_output_tokens=8).candidates
    assert [one.index or 0 for one in found] == [0, 1], f"other candidates: {found}"
    again = asked("Tell me a word.", candidate_count=2, seed=7, temperature=1.0, max_output_tokens=8).candidates
    assert [one.content for one in again] == [one.content for one in found], "another text of the same seed"


@check("response_logprobs")
def probabilities() -> None:
    (one,) = asked("Say hello.", response_logprobs=True, logprobs=2).candidates
    assert one.logprobs_result.chosen_candidates[0].log_probability <= 0, "no probability"
    assert len(one.logprobs_result.top_candidates[0].candidates) == 2, "not two alternatives"


@check("response_schema: a model of pydantic")
def by_model() -> None:
    is_bob(asked(PERSON, response_mime_type="application/json", response_schema=Person).parsed)


@check("response_json_schema")
def by_schema() -> None:
    schema = Person.model_json_schema()
    text = asked(PERSON, response_mime_type="application/json", response_json_schema=schema).text
    is_bob(Person.model_validate_json(text or ""))


@check("text/x.enum")
def by_words() -> None:
    schema = {"type": "STRING", "enum": ["cat", "dog"]}
    text = asked("Which one barks?", response_mime_type="text/x.enum", response_schema=schema).text
    assert text in ("cat", "dog"), f"another word: {text!r}"


@check("a tool, and the result answered")
def a_tool() -> None:
    fields = {"tools": [WEATHER_TOOL], "system_instruction": INSTRUCTIONS}
    contents = [types.Content(role="user", parts=[types.Part.from_text(text=WEATHER)])]
    answer = asked(contents, **fields)
    (call,) = answer.function_calls
    is_paris(call.name, dict(call.args))
    result = types.Part.from_function_response(name=call.name, response={"output": REPORT})
    contents += [answer.candidates[0].content, types.Content(role="user", parts=[result])]
    tells_report(asked(contents, **fields).text)


@check("a tool that has to be called, streamed")
def a_required_tool() -> None:
    mode = types.FunctionCallingConfig(mode="ANY", allowed_function_names=["get_weather"])
    stream = client.models.generate_content_stream(
        model=MODEL,
        contents="What is the weather in Paris?",
        config=config(tools=[WEATHER_TOOL], tool_config=types.ToolConfig(function_calling_config=mode)),
    )
    (call,) = [call for piece in stream for call in piece.function_calls or ()]
    is_paris(call.name, dict(call.args))


@check("a Python function that the package calls itself")
def by_itself() -> None:
    asked_for: list[str] = []

    def get_weather(city: str) -> str:
        """Tells the weather of a city."""
        asked_for.append(city)
        return REPORT

    text = asked(WEATHER, tools=[get_weather], system_instruction=INSTRUCTIONS).text
    City(city=asked_for[0])
    tells_report(text)


@check("thinking_config: taken by a model without thoughts")
def thinking() -> None:
    thoughts = types.ThinkingConfig(include_thoughts=True, thinking_budget=64)
    assert asked("Say hello.", thinking_config=thoughts).text, "no text"


@check("count_tokens")
def counted() -> None:
    n = client.models.count_tokens(model=MODEL, contents="Say hello.").total_tokens
    assert n == asked("Say hello.", max_output_tokens=1).usage_metadata.prompt_token_count, f"another number: {n}"


@check("an error has its field, also of a stream")
def refused() -> None:
    stream = partial(client.models.generate_content_stream, model=MODEL, contents="a")
    for field, ask in (
        ("responseModalities", lambda: asked("a", response_modalities=["AUDIO"])),
        ("cachedContent", lambda: [*stream(config=config(cached_content="no"))]),
    ):
        found: Any = None
        try:
            ask()
        except errors.ClientError as error:
            found = error
        assert found is not None, f"no error: {field}"
        assert (found.code, found.status) == (400, "INVALID_ARGUMENT"), f"{found}"
        assert field in found.message, f"another error: {found}"


run("google-genai")
