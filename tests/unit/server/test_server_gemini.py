"""Google's Gemini API over HTTP: whole answers and streams, requests, tools, counting, the model, and errors."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.api_kit import CALL, SECOND, THOUGHT, saying
from kit.fake_runtime import HELD, FakeRuntime
from kit.server_kit import CONFIG, events, get, post, with_server
from pydantic import ValidationError

from uad.base.config import ServerConfig
from uad.base.errors import DecodeError, RequestError
from uad.base.types import Constraint, ConstraintKind
from uad.http.apis.gemini import read_content
from uad.http.apis.gemini_answer import ContentDialect, ContentListDialect
from uad.http.apis.gemini_schema import schema_of
from uad.http.apis.problems import problem_of
from uad.http.requests.fields import ChatBody

PATH = "/v1beta/models/toy:generateContent"
STREAM = "/v1beta/models/toy:streamGenerateContent"
COUNT = "/v1beta/models/toy:countTokens"
HELLO = [{"role": "user", "parts": [{"text": "hello"}]}]
LOOK_UP = {"name": "look_up", "parameters": {"type": "OBJECT", "properties": {"word": {"type": "STRING"}}}}
TOOLS = [{"functionDeclarations": [LOOK_UP, {"name": "say"}]}]
PIXEL = base64.b64encode(b"P6 1 1 255 abc").decode()


def asked(body: dict[str, Any], fake: FakeRuntime | None = None, path: str = PATH) -> tuple[FakeRuntime, Any]:
    """What the runtime was asked, and the answer."""
    fake = fake or FakeRuntime()
    status, answer = post(path, {"contents": HELLO, **body}, fake)
    assert status == 200, answer
    return fake, answer


def refused(body: Any, path: str = PATH, **more: Any) -> tuple[int, str, str]:
    """Status, message and field of an error."""
    status, answer = post(path, body, **more)
    error = answer["error"]
    assert error["code"] == status
    details = error.get("details", [{"fieldViolations": [{"field": ""}]}])
    return status, error["message"], details[0]["fieldViolations"][0]["field"]


def streamed(body: dict[str, Any], fake: FakeRuntime, query: str = "?alt=sse") -> tuple[str, bytes]:
    """The type and the bytes of a stream."""

    async def test(session: ClientSession) -> tuple[str, bytes]:
        async with session.post(STREAM + query, json={"contents": HELLO, **body}) as answer:
            data = await answer.read()
            assert answer.status == 200, data
            return answer.content_type, data

    return with_server(test, fake)


def parts_of(frames: list[Any], index: int = 0) -> list[Any]:
    """The parts of a candidate, one after the other."""
    candidates = [one for frame in frames for one in frame["candidates"] if one["index"] == index]
    return [part for one in candidates for part in one["content"]["parts"]]


# --- answers


def test_a_whole_answer() -> None:
    _, answer = asked({"generationConfig": {"seed": 7}}, saying("Hello there."))
    (candidate,) = answer["candidates"]
    assert candidate == {
        "content": {"parts": [{"text": "Hello there."}], "role": "model"},
        "index": 0,
        "finishReason": "STOP",
    }
    usage = answer["usageMetadata"]
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]
    assert usage["candidatesTokenCount"] == answer["timings"]["predicted_n"] > 0
    assert usage["cachedContentTokenCount"] == HELD
    assert answer["modelVersion"] == "toy"
    assert answer["responseId"]


@pytest.mark.parametrize("path", [PATH, "/v1/models/toy:generateContent", "/v1beta/models/org/toy:generateContent"])
def test_any_name_of_a_model_is_taken_in_both_versions(path: str) -> None:
    assert asked({}, saying("Hi"), path)[1]["candidates"][0]["content"]["parts"] == [{"text": "Hi"}]


def test_events_say_the_same_as_the_whole_answer() -> None:
    kind, data = streamed({}, saying("Hello there."))
    assert kind == "text/event-stream"
    frames = events(data)
    assert len(frames) > 2
    assert "".join(part["text"] for part in parts_of(frames)) == "Hello there."
    assert [frame["candidates"][0].get("finishReason") for frame in frames[-2:]] == [None, "STOP"]
    assert [frame for frame in frames if "usageMetadata" in frame] == frames[-1:]
    assert len({frame["responseId"] for frame in frames}) == 1


def test_without_alt_a_stream_is_one_list() -> None:
    for query in ("", "?alt=json"):
        kind, data = streamed({}, saying("Hello there."), query)
        frames = json.loads(data)
        assert kind == "application/json"
        assert len(frames) > 2
        assert "".join(part["text"] for part in parts_of(frames)) == "Hello there."
        assert frames[-1]["candidates"][0]["finishReason"] == "STOP"


def test_a_cut_answer_says_so() -> None:
    _, answer = asked({"generationConfig": {"maxOutputTokens": 5}}, saying("Hello there."))
    assert answer["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert answer["candidates"][0]["content"]["parts"] == [{"text": "Hello"}]


def test_candidates_each_have_an_index() -> None:
    fake, answer = asked({"generationConfig": {"candidateCount": 2, "seed": 3}})
    assert [one["index"] for one in answer["candidates"]] == [0, 1]
    assert [request.sampling.seed for request in fake.requests] == [3, 4]
    n_prompt = len(fake.requests[0].prompt)
    assert answer["usageMetadata"]["promptTokenCount"] == n_prompt
    frames = events(streamed({"generationConfig": {"candidateCount": 2}}, saying("Hi there"))[1])
    assert ["".join(part["text"] for part in parts_of(frames, i)) for i in (0, 1)] == ["Hi there"] * 2
    assert sum("usageMetadata" in frame for frame in frames) == 1


def test_probabilities_of_an_answer() -> None:
    _, answer = asked({"generationConfig": {"responseLogprobs": True, "logprobs": 2}}, saying("Hey"))
    (candidate,) = answer["candidates"]
    chosen, top = candidate["logprobsResult"]["chosenCandidates"], candidate["logprobsResult"]["topCandidates"]
    assert "".join(one["token"] for one in chosen) == "Hey"[: len(chosen)]
    assert len(chosen) == len(top) > 1
    assert all(len(one["candidates"]) == 2 for one in top)
    assert candidate["avgLogprobs"] == pytest.approx(sum(one["logProbability"] for one in chosen) / len(chosen))


def test_a_stream_that_breaks_off_ends_with_an_error_in_both_forms() -> None:
    fake = FakeRuntime(fail=DecodeError("it broke"), fail_after=6)
    assert events(streamed({}, fake)[1])[-1]["error"]["status"] == "INTERNAL"
    fake = FakeRuntime(fail=DecodeError("it broke"), fail_after=6)
    last = json.loads(streamed({}, fake, "")[1])[-1]
    assert last == {"error": {"code": 500, "message": "it broke", "status": "INTERNAL"}}


def test_silence_is_broken_by_blank_lines_that_no_client_takes_for_json() -> None:
    for kind in (ContentDialect, ContentListDialect):
        assert kind.ping.isspace()


# --- thoughts


def test_thoughts_are_shown_on_demand_and_else_travel_sealed() -> None:
    config = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    _, shown = asked(config, saying(f"{THOUGHT}Tea."))
    assert shown["candidates"][0]["content"]["parts"] == [{"text": "Hm, hm.", "thought": True}, {"text": "Tea."}]
    _, hidden = asked({}, saying(f"{THOUGHT}Tea."))
    (part,) = hidden["candidates"][0]["content"]["parts"]
    assert part["text"] == "Tea."
    talk = [*HELLO, hidden["candidates"][0]["content"], {"role": "user", "parts": [{"text": "more"}]}]
    translated = read_content({"contents": talk})
    assert isinstance(translated.chat, ChatBody)
    assert translated.chat.messages[1].reasoning_content == "Hm, hm."
    frames = events(streamed({}, saying(f"{THOUGHT}Tea."))[1])
    assert "".join(one.get("text", "") for one in parts_of(frames)) == "Tea."
    assert sum("thoughtSignature" in one for one in parts_of(frames)) == 1


def test_signatures_of_other_servers_are_passed_over() -> None:
    for signature in ("", "CsIBAVSoXO4", "not base64!", base64.b64encode(b"\xff\xfe").decode()):
        talk = [*HELLO, {"role": "model", "parts": [{"text": "Tea.", "thoughtSignature": signature}]}, *HELLO]
        chat = read_content({"contents": talk}).chat
        assert isinstance(chat, ChatBody)
        assert chat.messages[1].reasoning_content is None


@pytest.mark.parametrize(
    ("config", "kwargs"),
    [
        ({"thinkingBudget": 0}, {"thinking_budget": 0, "enable_thinking": False}),
        ({"thinkingBudget": 64}, {"thinking_budget": 64, "enable_thinking": True}),
        ({"thinkingBudget": -1}, {}),
        ({"thinking_level": "LOW"}, {"reasoning_effort": "low"}),
        ({}, {}),
    ],
)
def test_how_much_is_thought_reaches_the_template(config: dict[str, Any], kwargs: dict[str, Any]) -> None:
    fake, _ = asked({"generationConfig": {"thinkingConfig": config}})
    assert fake.chats[0][1] == kwargs


# --- requests


def test_the_conversation_reaches_the_template() -> None:
    talk = [
        {"role": "user", "parts": [{"text": "one"}]},
        {"role": "model", "parts": [{"text": "t"}, {"text": "wo"}]},
        {"role": "model", "parts": [{"text": "!"}]},
        {"parts": [{"text": "three"}]},
    ]
    fake, _ = asked({"contents": talk, "systemInstruction": {"parts": [{"text": "Be brief."}]}})
    assert fake.chats[0][0] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two!"},
        {"role": "user", "content": "three"},
    ]


@pytest.mark.parametrize("spelled", ["camel", "snake"])
def test_settings_are_those_of_a_chat_in_both_spellings(spelled: str) -> None:
    camel = {"temperature": 0.5, "topP": 0.9, "topK": 40.0, "maxOutputTokens": 9, "stopSequences": ["END"], "seed": 5}
    camel |= {"presencePenalty": 0.1, "frequencyPenalty": 0.2}
    snake = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_output_tokens": 9, "stop_sequences": ["END"]}
    snake |= {"seed": 5, "presence_penalty": 0.1, "frequency_penalty": 0.2}
    body = {"generationConfig": camel} if spelled == "camel" else {"generation_config": snake}
    (request,) = asked(body)[0].requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 40, 5)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, 0.2)
    assert (request.max_tokens, request.stop) == (9, ("END",))


def test_fields_of_this_server_are_taken_beside_the_apis_own() -> None:
    body = {"min_p": 0.25, "speculative": {"n_max": 3}, "cache_prompt": False, "id_slot": 1}
    (request,) = asked({**body, "safetySettings": [{"category": "x"}], "labels": {"a": "b"}})[0].requests
    assert (request.sampling.min_p, request.speculative.n_max) == (0.25, 3)
    assert (request.cache_prompt, request.slot) == (False, 1)


SCHEMA = {
    "type": "OBJECT",
    "properties": {"b": {"type": "INTEGER", "format": "int32"}, "a": {"type": "STRING", "nullable": True}},
    "propertyOrdering": ["a", "b"],
    "required": ["b"],
}


def test_a_schema_of_the_api_is_a_json_schema() -> None:
    assert schema_of(SCHEMA, "x") == {
        "type": "object",
        "required": ["b"],
        "properties": {
            "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "b": {"type": "integer", "format": "int32"},
        },
        "additionalProperties": False,
    }
    assert [*schema_of(SCHEMA, "x")["properties"]] == ["a", "b"]  # type: ignore[misc]
    assert "additionalProperties" not in schema_of({"type": "OBJECT"}, "x")
    rows = {"type": "ARRAY", "minItems": "1", "max_items": 3, "items": {"type": "STRING", "format": "date"}}
    assert schema_of(rows, "x") == {
        "type": "array",
        "minItems": 1,
        "maxItems": 3,
        "items": {"type": "string", "format": "date"},
    }
    either = {"any_of": [{"type": "NUMBER"}, {"type": "BOOLEAN", "example": True}], "title": "t"}
    assert schema_of(either, "x") == {"title": "t", "anyOf": [{"type": "number"}, {"type": "boolean", "example": True}]}


@pytest.mark.parametrize(
    ("config", "constraint"),
    [
        ({"responseMimeType": "application/json"}, Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "object"}')),
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}},
            Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "string"}'),
        ),
        (
            {"response_mime_type": "application/json", "response_json_schema": {"type": "integer"}},
            Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "integer"}'),
        ),
        ({"responseSchema": {"type": "INTEGER"}}, Constraint(ConstraintKind.JSON_SCHEMA, '{"type": "integer"}')),
        (
            {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a", "b"]}},
            Constraint(ConstraintKind.CHOICE, '["a", "b"]'),
        ),
        ({"responseMimeType": "text/plain"}, None),
    ],
)
def test_the_form_of_an_answer(config: dict[str, Any], constraint: Constraint | None) -> None:
    (request,) = asked({"generationConfig": config})[0].requests
    assert request.constraint == constraint


def test_pictures_are_seen_where_the_model_sees_any() -> None:
    picture = {"inlineData": {"mimeType": "image/x-portable-pixmap", "data": PIXEL}}
    body = {"contents": [{"parts": [picture, {"text": "what?"}]}]}
    (request,) = asked(body, FakeRuntime(sees_images=True))[0].requests
    assert len(request.images) == 1
    where = "contents.0.parts.0.inlineData"
    assert refused(body)[::2] == (400, where)
    broken = {"contents": [{"parts": [{"inline_data": {"mime_type": "image/png", "data": "aGVsbG8="}}]}]}
    status, message, field = refused(broken, fake=FakeRuntime(sees_images=True))
    assert (status, field) == (400, where)
    assert message.startswith(f"{where}: is no image")


# --- tools


def test_calls_are_parts_in_whole_answers_and_streams() -> None:
    text = f"I look.\n{CALL}\n{SECOND}"
    _, answer = asked({"tools": TOOLS}, saying(text))
    said, first, second = answer["candidates"][0]["content"]["parts"]
    assert said == {"text": "I look.\n"} or said == {"text": "I look."}
    assert (first["functionCall"]["name"], first["functionCall"]["args"]) == ("look_up", {"word": "tea"})
    assert (second["functionCall"]["name"], second["functionCall"]["args"]) == ("say", {})
    assert answer["candidates"][0]["finishReason"] == "STOP"
    calls = [part for part in parts_of(events(streamed({"tools": TOOLS}, saying(text))[1])) if "functionCall" in part]
    assert [one["functionCall"]["args"] for one in calls] == [{"word": "tea"}, {}]


def test_a_call_that_is_cut_in_its_arguments_is_left_out() -> None:
    body = {"tools": TOOLS, "generationConfig": {"maxOutputTokens": len(CALL) - 20}}
    _, answer = asked(body, saying(CALL))
    assert answer["candidates"][0]["content"]["parts"] == [{"text": ""}]
    assert answer["candidates"][0]["finishReason"] == "MAX_TOKENS"


def test_functions_reach_the_template_and_tools_of_google_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    fake, _ = asked({"tools": [*TOOLS, {"googleSearch": {}}, {"code_execution": {}}]})
    offered = [one["function"] for one in fake.chats[0][1]["tools"]]  # type: ignore[attr-defined]
    assert [one["name"] for one in offered] == ["look_up", "say"]
    assert offered[0]["parameters"] == schema_of(LOOK_UP["parameters"], "x")
    assert "'tools.googleSearch' is left out" in caplog.text


def test_calls_and_results_find_each_other_without_ids() -> None:
    talk = [
        *HELLO,
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "say"}}, {"functionCall": {"name": "look_up", "args": {}}}],
        },
        {
            "role": "function",
            "parts": [
                {"functionResponse": {"name": "look_up", "response": {"output": "a drink"}}},
                {"functionResponse": {"name": "say", "response": {"said": True}}},
            ],
        },
    ]
    fake, _ = asked({"contents": talk, "tools": TOOLS})
    _, calls, first, second = fake.chats[0][0]
    ids = [one["id"] for one in calls["tool_calls"]]  # type: ignore[attr-defined]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids[::-1]
    assert (first["content"], first["name"]) == ("a drink", "look_up")
    assert second["content"] == '{"said":true}'


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        ({"mode": "AUTO"}, "auto"),
        ({"mode": "any"}, "required"),
        ({"mode": "NONE", "allowedFunctionNames": ["say"]}, "none"),
        ({"mode": "MODE_UNSPECIFIED"}, "auto"),
        ({"mode": "ANY", "allowed_function_names": ["say"]}, ("required", ("say",))),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["say"]}, ("auto", ("say",))),
    ],
)
def test_modes_of_calling(config: dict[str, Any], choice: object) -> None:
    translated = read_content({"contents": HELLO, "tools": TOOLS, "toolConfig": {"functionCallingConfig": config}})
    assert isinstance(translated.chat, ChatBody)
    found: Any = translated.chat.tool_choice
    assert (found if isinstance(found, str) else (found.mode, found.names)) == choice
    is_validated = config["mode"] == "VALIDATED"
    assert all(bool(tool.function.strict) == is_validated for tool in translated.chat.tools)
    assert translated.relaxed is None


# --- counting, the model, keys


def test_the_ids_of_a_prompt_are_counted() -> None:
    fake, _ = asked({})
    n = len(fake.requests[0].prompt)
    whole = {"generateContentRequest": {"model": "models/toy", "contents": HELLO}}
    for body in ({"contents": HELLO}, whole):
        status, answer = post(COUNT, body)
        assert (status, answer["totalTokens"]) == (200, n)


def test_the_model_is_listed_and_shown() -> None:
    status, listed = get("/v1beta/models")
    assert status == 200
    (one,) = listed["models"]
    assert one["name"] == "models/toy"
    assert one["inputTokenLimit"] == 4096
    assert "generateContent" in one["supportedGenerationMethods"]
    assert get("/v1beta/models/toy") == (200, one)
    status, answer = get("/v1beta/models/other")
    assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
    assert "models/toy" in answer["error"]["message"]
    assert get("/v1/models")[1]["object"] == "list"


GOOGLE = [{"x-goog-api-key": "none"}, {"X-Goog-Api-Client": "google-genai-sdk/3.6.1 gl-python/3.11"}]


@pytest.mark.parametrize("headers", GOOGLE)
def test_below_v1_googles_clients_get_googles_list(headers: dict[str, str]) -> None:
    _, listed = get("/v1beta/models")
    assert get("/v1/models", headers=headers) == (200, listed)
    assert get("/v1/models/toy", headers=headers) == (200, listed["models"][0])
    status, answer = get("/v1/models/other", headers=headers)
    assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
    assert get("/v1/models/toy")[1]["object"] == "model"
    assert get("/models", headers=headers)[1]["object"] == "list"


def test_below_v1_errors_of_keys_are_in_the_words_of_who_asks() -> None:
    status, answer = get("/v1/models", config=KEYED, headers=GOOGLE[0])
    assert (status, answer["error"]["status"]) == (401, "UNAUTHENTICATED")
    status, answer = get("/v1/models", config=KEYED)
    assert (status, answer["error"]["type"]) == (401, "authentication_error")
    assert get("/v1/models", config=KEYED, headers={"x-goog-api-key": "sesame"})[0] == 200
    assert get("/v1/models?key=sesame", config=KEYED, headers=GOOGLE[1])[0] == 200
    assert get("/v1/models?key=sesame", config=KEYED)[0] == 401


@pytest.mark.parametrize("version", ["v1", "v1beta"])
@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent", "countTokens"])
def test_each_method_is_below_both_versions(version: str, method: str) -> None:
    status, answer = post(f"/{version}/models/toy:{method}", {"contents": HELLO}, headers=GOOGLE[0])
    assert status == 200, answer


KEYED = ServerConfig(port=0, alias="toy", api_keys=("sesame",))


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?key=sesame", {}, 200),
        ("?alt=sse&key=no", {}, 401),
        ("", {"x-goog-api-key": "sesame"}, 200),
        ("", {"x-goog-api-key": "no"}, 401),
        ("", {"Authorization": "Bearer sesame"}, 200),
        ("?key=%ff%fe", {}, 401),
        ("", {}, 401),
    ],
)
def test_keys_are_where_the_api_has_them(query: str, headers: dict[str, str], status: int) -> None:
    found, answer = post(PATH + query, {"contents": HELLO}, config=KEYED, headers=headers)
    assert found == status
    if status == 401:
        assert answer["error"]["status"] == "UNAUTHENTICATED"


def test_a_key_in_the_query_of_another_api_opens_nothing() -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert post("/v1/chat/completions?key=sesame", body, config=KEYED)[0] == 401


# --- refusals


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "contents"),
        ({"contents": "hello"}, "contents"),
        ({"contents": ["hello"]}, "contents.0"),
        ({"contents": [{"role": "robot", "parts": []}]}, "contents.0.role"),
        ({"contents": [{"parts": [{"text": 5}]}]}, "contents.0.parts.0.text"),
        ({"contents": [{"parts": [{"executableCode": {"code": "1"}}]}]}, "contents.0.parts.0"),
        (
            {"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": ""}}]}]},
            "contents.0.parts.0.inlineData.mimeType",
        ),
        ({"generationConfig": {"temperature": "hot"}}, "generationConfig.temperature"),
        ({"generationConfig": {"maxOutputTokens": -5}}, "generationConfig.maxOutputTokens"),
        ({"generationConfig": {"candidateCount": 0}}, "generationConfig.candidateCount"),
        ({"generationConfig": {"candidateCount": 99}}, "generationConfig.candidateCount"),
        ({"generationConfig": {"logprobs": 3}}, "generationConfig.logprobs"),
        ({"generationConfig": {"responseMimeType": "image/png"}}, "generationConfig.responseMimeType"),
        ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "generationConfig.responseMimeType"),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, "generationConfig.responseModalities"),
        ({"generationConfig": {"responseSchema": {"type": "NOTHING"}}}, "generationConfig.responseSchema"),
        ({"generationConfig": {"responseSchema": []}}, "generationConfig.responseSchema"),
        (
            {"generationConfig": {"responseSchema": {"type": "ARRAY", "minItems": "x"}}},
            "generationConfig.responseSchema.minItems",
        ),
        (
            {"generationConfig": {"thinkingConfig": {"thinkingBudget": "much"}}},
            "generationConfig.thinkingConfig.thinkingBudget",
        ),
        ({"cachedContent": "cachedContents/1"}, "cachedContent"),
        ({"tools": [{"functionDeclarations": {}}]}, "tools.0.functionDeclarations"),
        ({"tools": [{"functionDeclarations": [{"name": ""}]}]}, "tools.0.functionDeclarations.0.name"),
        (
            {"tools": [{"googleSearch": {}}, {"functionDeclarations": [{"name": "a", "parameters": 5}]}]},
            "tools.1.functionDeclarations.0.parameters",
        ),
        ({"toolConfig": {"functionCallingConfig": {"mode": "OFTEN"}}}, "toolConfig.functionCallingConfig.mode"),
        (
            {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["no"]}}},
            "toolConfig.functionCallingConfig",
        ),
    ],
)
def test_errors_name_the_field_as_the_request_spells_it(body: dict[str, Any], field: str) -> None:
    given = body if "contents" in body or not body else {"contents": HELLO, **body}
    status, message, named = refused(given)
    assert (status, named) == (400, field)
    assert message.startswith(field)


def test_errors_have_the_form_of_google() -> None:
    status, answer = post(PATH, {"contents": []})
    assert status == 400
    assert answer["error"]["status"] == "INVALID_ARGUMENT"
    status, answer = post("/v1beta/models/toy:embedContent", {})
    assert (status, answer["error"]["status"]) == (501, "UNIMPLEMENTED")
    status, answer = get("/v1beta/nowhere")
    assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
    status, answer = post(f"{PATH}?alt=proto", {"contents": HELLO})
    assert (status, answer["error"]["message"]) == (400, "alt: must be json or sse, not 'proto'")
    status, answer = post(PATH, {"contents": [{"parts": [{"text": "x" * 5000}]}]})
    assert (status, answer["error"]["code"]) == (400, 400)
    assert "context size" in answer["error"]["message"]
    assert CONFIG.alias == "toy"


WHOLE: dict[str, Any] = {
    "contents": [
        {"role": "user", "parts": [{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
        {"role": "model", "parts": [{"text": "b", "thought": True, "thoughtSignature": "aGk="}]},
        {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "say", "args": {"a": 1}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "say", "response": {"output": "x"}}}]},
        {"parts": [{"fileData": {"mimeType": "image/png", "fileUri": "http://localhost/a.png"}}]},
    ],
    "systemInstruction": {"parts": [{"text": "a"}]},
    "generationConfig": {
        "temperature": 1,
        "topP": 1,
        "topK": 1,
        "maxOutputTokens": 1,
        "stopSequences": ["a"],
        "seed": 1,
        "candidateCount": 1,
        "presencePenalty": 0,
        "frequencyPenalty": 0,
        "responseLogprobs": True,
        "logprobs": 1,
        "responseMimeType": "application/json",
        "responseModalities": ["TEXT"],
        "responseSchema": {
            "type": "OBJECT",
            "format": "date",
            "nullable": True,
            "required": ["a"],
            "propertyOrdering": ["a"],
            "properties": {"a": {"type": "ARRAY", "minItems": 1, "items": {"enum": ["b"]}}},
            "anyOf": [{"type": "STRING"}],
            "additionalProperties": False,
            "$defs": {"c": {}},
        },
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1, "thinkingLevel": "LOW"},
    },
    "tools": [{"functionDeclarations": [{"name": "say", "description": "a", "parameters": {"type": "OBJECT"}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["say"]}},
}
WRONG = (None, True, 0, -1, 2.5, 10**30, "", "x", [], ["x"], [[]], [None], [{}], {}, {"x": 1}, {"type": []})


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value, the value's own left out."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in inside for found in [(*path, key), *places(inner, (*path, key))]]


@pytest.mark.parametrize("place", places(WHOLE), ids=lambda place: ".".join(map(str, place)))
def test_a_wrong_value_anywhere_is_read_or_refused_by_name(place: tuple[Any, ...]) -> None:
    for wrong in WRONG:
        body: Any = json.loads(json.dumps(WHOLE))
        inner = body
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = wrong
        problem = None
        try:
            read_content({name: value for name, value in body.items() if value is not None})
        except (RequestError, ValidationError) as error:
            problem = problem_of(error)
        assert problem is None or problem.param, wrong


def test_the_whole_request_is_read() -> None:
    assert isinstance(read_content(WHOLE).chat, ChatBody)
