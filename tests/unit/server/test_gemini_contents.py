"""What requests of Google's Gemini API hold: read, left out with a line in the log, or refused by name."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import post

from uad.base.types import ConstraintKind
from uad.http.apis.gemini import read_content
from uad.http.apis.gemini_contents import LEFT_OUT
from uad.http.apis.gemini_schema import MAX_DEPTH, schema_of
from uad.http.requests.fields import ChatBody
from uad.http.requests.left_out import leave_out

PATH = "/v1beta/models/toy:generateContent"
HELLO = [{"role": "user", "parts": [{"text": "hello"}]}]
PIXEL = base64.b64encode(b"P6 1 1 255 abc").decode()
PICTURE = {"inlineData": {"mimeType": "image/x-portable-pixmap", "data": PIXEL}}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "look"}}]}


@pytest.fixture(autouse=True)
def _first_request() -> None:
    leave_out.cache_clear()


def chat_of(body: dict[str, Any]) -> ChatBody:
    chat = read_content({"contents": HELLO, **body}).chat
    assert isinstance(chat, ChatBody)
    return chat


def refused(body: dict[str, Any], **more: Any) -> str:
    """The field that a refusal names."""
    status, answer = post(PATH, {"contents": HELLO, **body}, **more)
    assert status == 400, answer
    field = answer["error"]["details"][0]["fieldViolations"][0]["field"]
    assert answer["error"]["message"].startswith(field)
    return str(field)


def result(**members: Any) -> dict[str, Any]:
    """A request whose last turn is the result of a call."""
    return {"contents": [*HELLO, CALL, {"parts": [{"functionResponse": {"name": "look", **members}}]}]}


def part(**members: Any) -> dict[str, Any]:
    return {"contents": [{"parts": [members]}]}


def in_model(**members: Any) -> dict[str, Any]:
    return {"contents": [*HELLO, {"role": "model", "parts": [members]}, *HELLO]}


# --- pictures of results


@pytest.mark.parametrize(
    "given", [PICTURE, {"inline_data": {"data": PIXEL}}, {"inlineData": {**PICTURE["inlineData"], "displayName": "a"}}]
)
def test_pictures_of_a_result_are_seen_or_refused_where_the_model_sees_none(given: dict[str, Any]) -> None:
    body = result(response={"output": "a picture"}, parts=[given])
    fake = FakeRuntime(sees_images=True)
    status, answer = post(PATH, body, fake)
    assert status == 200, answer
    assert len(fake.requests[0].images) == 1
    assert refused(body) == "contents.2.parts.0.functionResponse.parts.0.inlineData"


def test_the_pictures_of_a_result_stand_after_its_text_each_with_its_name() -> None:
    named = {"inlineData": {"data": PIXEL, "displayName": "cat.png"}}
    chat = chat_of(result(response={"image": {"$ref": "cat.png"}}, parts=[named, PICTURE]))
    assert chat.messages[2].content is not None
    assert [one.text if one.image_url is None else "picture" for one in chat.messages[2].content] == [
        '{"image":{"$ref":"cat.png"}}',
        "cat.png:",
        "picture",
        "picture",
    ]


# --- what is refused


CONTENT = {"a": "text"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "hello"}, "prompt"),
        ({"messages": [{"role": "user", "content": "b"}]}, "messages"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"instructions": CONTENT}, "instructions"),
        ({"generationConfig": {"responseFormat": [CONTENT]}}, "generationConfig.responseFormat"),
        ({"generationConfig": {"thinkingConfig": {"words": "a"}}}, "generationConfig.thinkingConfig.words"),
        ({"toolConfig": {"functionCallingConfig": {"names": ["a"]}}}, "toolConfig.functionCallingConfig.names"),
        ({"contents": [{"parts": [], "text": "lost"}]}, "contents.0.text"),
        ({"systemInstruction": {"text": "lost"}}, "systemInstruction.text"),
        ({"systemInstruction": {"parts": [{"functionCall": {"name": "a"}}]}}, "systemInstruction.parts.0"),
        ({"systemInstruction": {"parts": [{"text": "a", "note": "lost"}]}}, "systemInstruction.parts.0.note"),
        (part(text="a", note="lost"), "contents.0.parts.0.note"),
        (part(text="a", **PICTURE), "contents.0.parts.0"),
        (part(functionCall={"name": "a"}), "contents.0.parts.0"),
        (part(toolResponse={"response": CONTENT}), "contents.0.parts.0.toolResponse"),
        (part(inlineData={"data": PIXEL, "caption": "lost"}), "contents.0.parts.0.inlineData.caption"),
        (part(inlineData={"mimeType": "application/pdf", "data": "aGk="}), "contents.0.parts.0.inlineData.mimeType"),
        (part(fileData={"mimeType": "video/mp4", "fileUri": "gs://a"}), "contents.0.parts.0.fileData.mimeType"),
        (part(), "contents.0.parts.0"),
        (in_model(**PICTURE), "contents.1.parts.0"),
        (in_model(text="a", functionCall={"name": "b"}), "contents.1.parts.0"),
        (in_model(toolCall={"args": CONTENT}), "contents.1.parts.0.toolCall"),
        (in_model(functionCall={"name": "a", "partialArgs": [CONTENT]}), "contents.1.parts.0.functionCall.partialArgs"),
        (result(output="lost"), "contents.2.parts.0.functionResponse.output"),
        (result(parts=[{"text": "lost"}]), "contents.2.parts.0.functionResponse.parts.0.text"),
        (result(parts=[{}]), "contents.2.parts.0.functionResponse.parts.0"),
        (
            result(parts=[{"inlineData": {"mimeType": "audio/wav", "data": "aGk="}}]),
            "contents.2.parts.0.functionResponse.parts.0.inlineData.mimeType",
        ),
        ({"tools": [{"functions": [CONTENT]}]}, "tools.0.functions"),
        (
            {"tools": [{"functionDeclarations": [{"name": "a", "schema": CONTENT}]}]},
            "tools.0.functionDeclarations.0.schema",
        ),
        (
            {"tools": [{"functionDeclarations": [{"name": "a", "parameters": {}, "parametersJsonSchema": {}}]}]},
            "tools.0.functionDeclarations.0.parameters",
        ),
        (
            {"tools": [{"functionDeclarations": [{"name": "a", "parametersJsonSchema": 5}]}]},
            "tools.0.functionDeclarations.0.parametersJsonSchema",
        ),
        (
            {"tools": [{"googleSearch": {}}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            "toolConfig.functionCallingConfig",
        ),
    ],
)
def test_what_holds_content_and_is_not_read_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    assert refused(body) == field


def test_counting_refuses_what_would_not_be_counted() -> None:
    path = "/v1beta/models/toy:countTokens"
    status, answer = post(path, {"contents": HELLO, "generateContentRequest": {"contents": HELLO}})
    assert (status, answer["error"]["message"].partition(":")[0]) == (400, "contents")
    assert post(path, {"generateContentRequest": {"contents": HELLO, "prompt": "lost"}})[0] == 400


# --- what is read, or left out knowingly


def test_code_that_ran_on_googles_servers_is_text_of_the_model() -> None:
    ran = [
        {"text": "I compute."},
        {"executableCode": {"language": "PYTHON", "code": "print(2)", "id": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n"}},
        {"text": "It is 2."},
    ]
    chat = chat_of({"contents": [*HELLO, {"role": "model", "parts": ran}, *HELLO]})
    assert chat.messages[1].content is not None
    text = chat.messages[1].content[0].text
    assert text == "I compute.\n```python\nprint(2)\n```\n\n```\n2\n\n```\nIt is 2."


WHERE = {
    "parts": lambda name, value: part(text="a", **{name: value}),
    "inlineData": lambda name, value: part(inlineData={"data": PIXEL, name: value}),
    "fileData": lambda name, value: part(fileData={"fileUri": "http://localhost/a.png", name: value}),
    "functionCall": lambda name, value: in_model(functionCall={"name": "a", name: value}),
    "functionResponse": lambda name, value: result(**{name: value}),
    "executableCode": lambda name, value: in_model(executableCode={"code": "1", name: value}),
    "codeExecutionResult": lambda name, value: in_model(codeExecutionResult={"output": "1", name: value}),
    "generationConfig": lambda name, value: {"generationConfig": {name: value}},
    "toolConfig": lambda name, value: {"toolConfig": {name: value}},
    "functionCallingConfig": lambda name, value: {"toolConfig": {"functionCallingConfig": {name: value}}},
    "functionDeclarations": lambda name, value: {"tools": [{"functionDeclarations": [{"name": "a", name: value}]}]},
    "tools": lambda name, value: {"tools": [{name: value}]},
    "": lambda name, value: {name: value},
}


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_a_member_of_the_table_is_left_out_with_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    parent, _, member = name.rpartition(".")
    for _ in range(2):
        chat_of(WHERE[parent](member, {"some": "thing"} if member != "displayName" else "a name"))
    (line,) = caplog.messages
    assert name in line
    assert LEFT_OUT[name] in line


def test_thoughts_of_another_server_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        chat_of(in_model(text="Tea.", thoughtSignature="CsIBAVSoXO4="))
        chat_of(part(text="Tea.", thoughtSignature="CsIBAVSoXO4="))
    assert [line.partition(" is left out")[0] for line in caplog.messages] == [
        "generateContent: 'parts.thoughtSignature' of another server",
        "generateContent: 'parts.thoughtSignature' of a user",
    ]


def test_what_a_chat_knows_is_neither_refused_nor_left_out(caplog: pytest.LogCaptureFixture) -> None:
    more = {"min_p": 0.1, "speculative": {"n_max": 3}, "speculative.p_min": 0.5, "json_schema": {"type": "string"}}
    chat = chat_of({**more, "model": "models/toy", "cache_prompt": True, "stream": True, "chat_template_kwargs": {}})
    assert (chat.speculative.n_max, chat.speculative.p_min) == (3, 0.5)
    assert not caplog.records


# --- schemas


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"v": {"oneOf": [{"const": "a"}, {"type": "integer"}]}}, "required": ["v"]},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {"enum": ["x", None, 3]}}},
        {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]},
        {"type": "array", "prefixItems": [{"const": 1}], "items": False, "minItems": 1},
        {"type": "string", "pattern": "^a+$", "format": "date-time", "minLength": 2},
        {"type": "number", "minimum": 0, "exclusiveMaximum": 5, "multipleOf": 0.5},
        {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
        {"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        {"not": {"type": "string"}, "if": {"const": 1}, "then": True, "else": {"const": 2}, "x-guidance": {"a": 1}},
        {"const": None, "default": None, "title": "t", "examples": ["a"], "uniqueItems": True},
    ],
)
def test_every_word_of_a_json_schema_is_kept(schema: dict[str, Any]) -> None:
    def closed(value: Any) -> Any:
        """The same where objects that name their members have no others."""
        if not isinstance(value, dict):
            return [closed(one) for one in value] if isinstance(value, list) else value
        out = {name: closed(member) for name, member in value.items()}
        return {"additionalProperties": False, **out} if "properties" in value and "allOf" not in schema else out

    assert schema_of(schema, "x") == closed(schema)


def test_parts_that_describe_one_object_together_leave_room_for_each_other() -> None:
    both = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "anyOf": [{"properties": {"b": {"const": 1}}}]}
    assert "additionalProperties" not in str(schema_of(both, "x"))
    either = {"anyOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 1}}}]}
    assert str(schema_of(either, "x")).count("'additionalProperties': False") == 2


def test_a_nullable_schema_keeps_its_definitions_where_references_look() -> None:
    given = {"type": "ARRAY", "items": {"ref": "#/defs/a"}, "defs": {"a": {"type": "STRING"}}, "nullable": True}
    assert schema_of(given, "x") == {
        "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}}, {"type": "null"}],
        "$defs": {"a": {"type": "string"}},
    }


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"oneof": [{"type": "string"}]}, "x.oneof"),
        ({"properties": {"a": {"choices": ["b"]}}}, "x.properties.a.choices"),
        ({"any_of": [{"type": "string"}], "anyOf": []}, "x.anyOf"),
        ({"type": 5}, "x.type"),
        ({"type": []}, "x.type"),
        ({"nullable": "yes"}, "x.nullable"),
        ({"propertyOrdering": "a"}, "x.propertyOrdering"),
        ({"items": [5]}, "x.items.0"),
        ({"$defs": []}, "x.$defs"),
    ],
)
def test_what_is_no_schema_is_refused_where_it_stands(schema: dict[str, Any], field: str) -> None:
    with pytest.raises(Exception, match=r"^x") as caught:
        schema_of(schema, "x")
    assert getattr(caught.value, "param", None) == field


@pytest.mark.parametrize("name", ["parameters", "parametersJsonSchema"])
def test_a_call_that_is_required_is_held_to_its_schema(name: str) -> None:
    schema = {"type": "object", "properties": {"v": {"oneOf": [{"const": "a"}, {"const": "b"}]}}, "required": ["v"]}
    tools = [{"functionDeclarations": [{"name": "say", name: schema}]}]
    chat = chat_of({"tools": tools, "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}})
    assert chat.tools[0].function.parameters is not None
    assert chat.tools[0].function.parameters["properties"] == schema["properties"]


@pytest.mark.parametrize("name", ["responseSchema", "responseJsonSchema"])
def test_an_answer_is_held_to_every_word_of_its_schema(name: str) -> None:
    fake = FakeRuntime()
    config = {name: {"type": "array", "prefixItems": [{"const": 1}], "items": False, "minItems": 1}}
    assert post(PATH, {"contents": HELLO, "generationConfig": config}, fake)[0] == 200
    constraint = fake.requests[0].constraint
    assert constraint is not None
    assert constraint.kind is ConstraintKind.JSON_SCHEMA
    assert '"prefixItems": [{"const": 1}]' in constraint.text


# --- depth


def nested(n: int, word: str = "items") -> Any:
    """So many schemas in each other."""
    value: Any = {"type": "STRING"}
    for _ in range(n - 1):
        value = {"properties": {"a": value}} if word == "properties" else {word: [value] if word == "anyOf" else value}
    return value


@pytest.mark.parametrize("word", ["items", "properties", "anyOf", "additionalProperties"])
def test_a_schema_is_read_to_a_depth_and_refused_beyond_it(word: str) -> None:
    assert schema_of(nested(MAX_DEPTH, word), "x")
    with pytest.raises(Exception, match="nested too deeply: more than 64 schemas"):
        schema_of(nested(MAX_DEPTH + 1, word), "x")


@pytest.mark.parametrize("n", [100, 190, 400, 900])
@pytest.mark.parametrize(
    "body",
    [
        lambda deep: {"generationConfig": {"responseSchema": deep}},
        lambda deep: {"generationConfig": {"responseJsonSchema": deep}},
        lambda deep: {"tools": [{"functionDeclarations": [{"name": "a", "parameters": deep}]}]},
        lambda deep: {"tools": [{"functionDeclarations": [{"name": "a", "parametersJsonSchema": deep}]}]},
        lambda deep: in_model(functionCall={"name": "a", "args": deep}),
        lambda deep: result(response=deep),
        lambda deep: {"systemInstruction": deep},
        lambda deep: {"safetySettings": deep},
        lambda deep: {"contents": [deep]},
    ],
)
def test_what_is_nested_deeply_is_read_or_refused_wherever_it_stands(body: Any, n: int) -> None:
    status, answer = post(PATH, {"contents": HELLO, **body(nested(n))})
    assert status in (200, 400), answer
