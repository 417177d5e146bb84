"""Schemas through every door: a word is obeyed, or refused, or the log names it once; notes bind nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kit.calls_kit import FORMATS
from kit.fake_runtime import FakeRuntime
from kit.grammar_kit import fits
from kit.server_kit import CHAT, HELLO, post

from uad.http.requests.left_out import leave_out
from uad.text.calls.format import AnswerFormat

RESPONSES, MESSAGES, TALK = "/v1/responses", "/v1/messages", "/api/chat"
GOOGLE = "/v1beta/models/toy:generateContent"
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]


class Door(NamedTuple):
    """A place of requests in which a schema stands. body: the request with a schema; written: an answer of a value."""

    path: str
    body: Callable[[Any], dict[str, Any]]
    format: str = ""

    def written(self, value: object) -> str:
        text = json.dumps(value, ensure_ascii=False)
        plain = value if isinstance(value, str) else text
        match self.format:
            case "":
                return text
            case "hermes":
                return f'<tool_call>\n{{"name": "f", "arguments": {{"v": {text}}}}}\n</tool_call>'
            case "qwen3-coder":
                inner = f"<parameter=v>\n{plain}\n</parameter>\n"
                return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"
            case "gemma-4":
                quoted = f'<|"|>{value}<|"|>' if isinstance(value, str) else text
                return f"<|tool_call>call:f{{v:{quoted}}}<tool_call|>"
            case _:
                return f"<|tool_call_start|>[f(v={text})]<|tool_call_end|>"


def _of_response(strict: bool) -> Callable[[Any], dict[str, Any]]:
    def body(schema: object) -> dict[str, Any]:
        return {
            "messages": HELLO,
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema, "strict": strict}},
        }

    return body


def _arguments(schema: Any) -> dict[str, Any]:
    """A tool's arguments with one of this schema, whose definitions stand outside."""
    outside = {name: schema[name] for name in ("$defs", "definitions", "components", "$schema") if name in schema}
    inside = {name: value for name, value in schema.items() if name not in outside}
    return {"type": "object", "properties": {"v": inside}, "required": ["v"], "additionalProperties": False, **outside}


def _tool(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": _arguments(schema), **more}}


def _declared(word: str) -> Callable[[Any], dict[str, Any]]:
    calling = {"functionCallingConfig": {"mode": "ANY"}}
    return lambda schema: {
        "contents": CONTENTS,
        "tools": [{"functionDeclarations": [{"name": "f", word: _arguments(schema)}]}],
        "toolConfig": calling,
    }


FORM = {"type": "json_schema"}
DOORS: dict[str, Door] = {
    "response_format": Door(CHAT, _of_response(False)),
    "strict response_format": Door(CHAT, _of_response(True)),
    "json_object": Door(
        CHAT, lambda schema: {"messages": HELLO, "response_format": {"type": "json_object", "schema": schema}}
    ),
    "json_schema": Door("/completion", lambda schema: {"prompt": "x", "json_schema": schema}),
    "json_schema, a text": Door("/completion", lambda schema: {"prompt": "x", "json_schema": json.dumps(schema)}),
    "guided_json": Door("/v1/completions", lambda schema: {"prompt": "x", "guided_json": schema}),
    "structured_outputs": Door(CHAT, lambda schema: {"messages": HELLO, "structured_outputs": {"json": schema}}),
    "text.format": Door(
        RESPONSES, lambda schema: {"input": "x", "text": {"format": {**FORM, "name": "n", "schema": schema}}}
    ),
    "output_config": Door(
        MESSAGES, lambda schema: {"messages": HELLO, "output_config": {"format": {**FORM, "schema": schema}}}
    ),
    "output_format": Door(MESSAGES, lambda schema: {"messages": HELLO, "output_format": {**FORM, "schema": schema}}),
    "format": Door(TALK, lambda schema: {"messages": HELLO, "stream": False, "format": schema}),
    "format of generate": Door("/api/generate", lambda schema: {"prompt": "x", "stream": False, "format": schema}),
    "responseJsonSchema": Door(
        GOOGLE, lambda schema: {"contents": CONTENTS, "generationConfig": {"responseJsonSchema": schema}}
    ),
    "responseSchema": Door(
        GOOGLE, lambda schema: {"contents": CONTENTS, "generationConfig": {"responseSchema": schema}}
    ),
    "parametersJsonSchema": Door(GOOGLE, _declared("parametersJsonSchema"), "hermes"),
    "parameters": Door(GOOGLE, _declared("parameters"), "hermes"),
    **{
        f"tools, {name}": Door(
            CHAT, lambda schema: {"messages": HELLO, "tools": [_tool(schema)], "tool_choice": "required"}, name
        )
        for name in ("hermes", "qwen3-coder", "gemma-4", "lfm2")
    },
    "strict tools": Door(
        CHAT,
        lambda schema: {"messages": HELLO, "tools": [_tool(schema, strict=True)], "tool_choice": "required"},
        "hermes",
    ),
    "tools of Responses": Door(
        RESPONSES,
        lambda schema: {
            "input": "x",
            "tools": [{"type": "function", "name": "f", "parameters": _arguments(schema), "strict": False}],
            "tool_choice": "required",
        },
        "hermes",
    ),
    "tools of Messages": Door(
        MESSAGES,
        lambda schema: {
            "messages": HELLO,
            "tools": [{"name": "f", "input_schema": _arguments(schema)}],
            "tool_choice": {"type": "any"},
        },
        "hermes",
    ),
}
DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"
TEXT: dict[str, Any] = {"type": "string"}
LIST: dict[str, Any] = {"type": "array"}
OBJECT: dict[str, Any] = {"type": "object"}
PART = {"$defs": {"a": {"$anchor": "x", **TEXT}}}
KINDS = [{**OBJECT, "properties": {"k": {"const": kind}}, "required": ["k"]} for kind in "ab"]
CASES: list[tuple[str, Any, Any]] = [
    ("type", TEXT, [1]),
    ("enum", {"enum": ["a"]}, "b"),
    ("enum", {**TEXT, "enum": ["a", "aa"], "minLength": 2}, "a"),
    ("enum", {**TEXT, "enum": ["a", "ba"], "pattern": "^b"}, "a"),
    ("enum", {**TEXT, "enum": ["a", "2020-01-01"], "format": "date"}, "a"),
    ("enum", {"enum": ["a", 1, 5], "maximum": 3}, 5),
    ("const", {"const": "a"}, "b"),
    ("const", {"const": None}, True),
    ("const", {"$schema": DRAFT_4, "const": "a"}, "b"),
    ("const", {"const": "a", "allOf": [{"minLength": 2}]}, "a"),
    ("multipleOf", {"type": "integer", "multipleOf": 3}, 4),
    ("maximum", {"type": "integer", "maximum": 3}, 4),
    ("minimum", {"type": "integer", "minimum": 3}, 2),
    ("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 3}, 3),
    ("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 3}, 3),
    ("exclusiveMinimum", {"type": "integer", "minimum": 3, "exclusiveMinimum": True}, 3),
    ("exclusiveMaximum", {"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 3),
    ("maxLength", {**TEXT, "maxLength": 2}, "abc"),
    ("minLength", {**TEXT, "minLength": 2}, "a"),
    ("pattern", {**TEXT, "pattern": "^a+$"}, "b"),
    ("pattern", {**TEXT, "pattern": "^(?!a)"}, "a"),
    ("pattern", {**TEXT, "pattern": 3}, "a"),
    ("maxItems", {**LIST, "maxItems": 1}, [1, 2]),
    ("minItems", {**LIST, "minItems": 2}, [1]),
    ("uniqueItems", {**LIST, "uniqueItems": True}, [1, 1]),
    ("items", {**LIST, "items": TEXT}, [1]),
    ("items", {**LIST, "items": [TEXT]}, [1]),
    ("additionalItems", {**LIST, "items": [TEXT], "additionalItems": False}, ["a", 1]),
    ("prefixItems", {**LIST, "prefixItems": [TEXT]}, [1]),
    ("prefixItems", {"$schema": DRAFT_7, **LIST, "prefixItems": [TEXT]}, [1]),
    ("contains", {**LIST, "contains": TEXT}, [1]),
    ("contains", {"$schema": DRAFT_4, **LIST, "contains": TEXT}, [1]),
    ("minContains", {**LIST, "contains": TEXT, "minContains": 2}, ["a"]),
    ("maxContains", {**LIST, "contains": TEXT, "maxContains": 1}, ["a", "b"]),
    ("unevaluatedItems", {**LIST, "prefixItems": [{}], "unevaluatedItems": False}, [1, 2]),
    ("maxProperties", {**OBJECT, "maxProperties": 1}, {"a": 1, "b": 1}),
    ("minProperties", {**OBJECT, "minProperties": 1}, {}),
    ("required", {**OBJECT, "properties": {"a": TEXT}, "required": ["a"]}, {}),
    ("required", {**OBJECT, "properties": {"a": {**TEXT, "required": True}}}, {}),
    ("properties", {**OBJECT, "properties": {"a": TEXT}}, {"a": 1}),
    ("patternProperties", {**OBJECT, "patternProperties": {"^a": TEXT}}, {"a": 1}),
    ("additionalProperties", {**OBJECT, "additionalProperties": False}, {"a": 1}),
    ("additionalProperties", {**OBJECT, "additionalProperties": TEXT}, {"a": 1}),
    ("propertyNames", {**OBJECT, "propertyNames": {"pattern": "^a"}}, {"b": 1}),
    ("dependencies", {**OBJECT, "dependencies": {"a": ["b"]}}, {"a": 1}),
    ("dependentRequired", {**OBJECT, "dependentRequired": {"a": ["b"]}}, {"a": 1}),
    ("dependentRequired", {"$schema": DRAFT_7, **OBJECT, "dependentRequired": {"a": ["b"]}}, {"a": 1}),
    ("dependentSchemas", {**OBJECT, "dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}),
    ("unevaluatedProperties", {**OBJECT, "properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}),
    ("if", {"if": {"type": "integer"}, "then": {"minimum": 3}}, 1),
    ("allOf", {"allOf": [{"type": "integer"}, {"minimum": 3}]}, 1),
    ("anyOf", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, True),
    ("anyOf", {"anyOf": []}, 1),
    ("anyOf", {"anyOf": TEXT}, 1),
    ("oneOf", {"oneOf": [{"type": "integer"}, {"type": "null"}]}, True),
    ("not", {"not": TEXT}, "a"),
    ("not", {**TEXT, "not": {"const": "a"}}, "a"),
    ("$ref", {"$ref": "#/$defs/a", "minLength": 2, **PART}, "a"),
    ("$ref", {"$ref": "#/definitions/a", "definitions": {"a": {"enum": [1]}}}, 2),
    ("$ref", {"$ref": "#/components/a", "components": {"a": {"enum": [1]}}}, 2),
    ("$ref", {"$ref": "#x", **PART}, [1]),
    ("$ref", {"$ref": "#x", "definitions": {"a": {"$id": "#x", "enum": [1]}}}, 2),
    ("$ref", {"$ref": "#x", "definitions": {"a": {"id": "#x", "enum": [1]}}}, 2),
    ("$ref", {"$ref": "http://example.com/a"}, 1),
    ("$ref", {"$ref": "#/$defs/b"}, 1),
    ("$dynamicRef", {"$dynamicRef": "#x", "$defs": {"a": {"$dynamicAnchor": "x", **TEXT}}}, [1]),
    ("$dynamicRef", {"$schema": DRAFT_7, "$dynamicRef": "#x"}, [1]),
    ("$recursiveRef", {"$recursiveRef": "#", **TEXT}, [1]),
    *(("format", {**TEXT, "format": name}, "x y<") for name in ("date", "time", "date-time", "duration", "email")),
    *(("format", {**TEXT, "format": name}, "x y<") for name in ("hostname", "ipv4", "ipv6", "uri", "uuid")),
    *(("format", {**TEXT, "format": name}, "x y<") for name in ("regex", "uri-reference", "iri", "json-pointer")),
    ("format", {"type": "integer", "format": "int32"}, 1 << 40),
    ("format", {**TEXT, "format": 3}, "x"),
    ("contentEncoding", {**TEXT, "contentEncoding": "base64"}, "%%"),
    ("contentMediaType", {**TEXT, "contentMediaType": "application/json"}, "%%"),
    ("nullable", {"type": "integer", "enum": [1], "nullable": True}, 2),
    ("divisibleBy", {"type": "integer", "divisibleBy": 3}, 4),
    ("disallow", {"disallow": "string"}, "a"),
    ("extends", {"extends": TEXT}, [1]),
    ("minLenght", {**TEXT, "minLenght": 2}, "a"),
    ("min_length", {**TEXT, "min_length": 2}, "a"),
    ("MaxItems", {**LIST, "MaxItems": 1}, [1, 2]),
    ("enumNames", {"enumNames": ["a"]}, "b"),
    ("options", {**TEXT, "options": {"only": "a"}}, "b"),
    ("length", {**TEXT, "length": 3}, "b"),
    ("discriminator", {"oneOf": KINDS, "discriminator": {"propertyName": "k"}}, {"k": "c"}),
]
NOTES: dict[str, Any] = {
    "title": "t",
    "description": "d",
    "examples": ["a"],
    "example": "a",
    "default": "a",
    "$comment": "c",
    "deprecated": True,
    "readOnly": True,
    "writeOnly": True,
    "externalDocs": {"url": "u"},
    "xml": {"name": "x"},
    "discriminator": {"propertyName": "k"},
    "x-order": 3,
    "x-ui": {"widget": "a"},
    "$id": "http://example.com/a",
    "$schema": DRAFT_7,
    "$anchor": "b",
}


def asked(door: Door, schema: object) -> tuple[int, Any, FakeRuntime]:
    """The status and the answer."""
    leave_out.cache_clear()
    answers = AnswerFormat((FORMATS[door.format],)) if door.format else AnswerFormat()
    fake = FakeRuntime(answers=answers)
    return *post(door.path, door.body(schema), fake), fake


@pytest.mark.parametrize("name", DOORS)
def test_a_word_is_obeyed_or_refused_or_the_log_names_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    door, lost = DOORS[name], []
    for word, schema, bad in CASES:
        if door.format == "qwen3-coder" and schema.get("type", "string") == "string" and not isinstance(bad, str):
            continue  # in tags everything is a text
        caplog.clear()
        status, answer, fake = asked(door, schema)
        if status == 400:
            assert answer["error"], word
        else:
            assert status == 200, answer
            constraint = fake.requests[-1].constraint
            assert constraint is not None
            is_named = any(word in line for line in caplog.messages)
            if fits(constraint, door.written(bad)) and not is_named:
                lost.append((word, schema))
    assert not lost


@pytest.mark.parametrize("name", [name for name in DOORS if name not in ("responseSchema", "parameters")])
@pytest.mark.parametrize("word", NOTES)
def test_a_note_binds_nothing_and_has_no_line(name: str, word: str, caplog: pytest.LogCaptureFixture) -> None:
    status, answer, _ = asked(DOORS[name], {**TEXT, word: NOTES[word]})
    assert status == 200, answer
    assert not [line for line in caplog.messages if "of a schema" in line]


TAGS = [name for name in DOORS if name.startswith("tools, ")]


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize(("form", "value"), [("date", "2020-02-03"), ("uri", "http://a.b/c?d=e"), ("ipv6", "fe80::1")])
def test_a_text_of_a_format_may_be_an_argument(name: str, form: str, value: str) -> None:
    _, _, fake = asked(DOORS[name], {**TEXT, "format": form})
    constraint = fake.requests[-1].constraint
    assert constraint is not None
    assert fits(constraint, DOORS[name].written(value))


@pytest.mark.parametrize("name", [name for name in DOORS if name not in ("responseSchema", "parameters")])
def test_a_word_in_another_case_is_refused_with_the_right_one(name: str) -> None:
    for word, right in (
        ("min_length", "minLength"),
        ("Enum", "enum"),
        ("ref", "$ref"),
        ("additional-items", "additionalItems"),
    ):
        status, answer, _ = asked(DOORS[name], {**TEXT, word: 2})
        assert status == 400
        assert f"did you mean {right}?" in str(answer)


def test_a_schema_of_unknown_words_has_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert asked(DOORS["json_schema"], {f"word{i}": 1 for i in range(1000)})[0] == 200
    assert len([line for line in caplog.messages if "of a schema" in line]) == 2 * 17


@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if not door.format])
def test_members_come_in_the_order_that_a_schema_says(name: str) -> None:
    members = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    ordered = {**OBJECT, "properties": members, "required": ["a", "b"], "propertyOrdering": ["b", "a"]}
    _, _, fake = asked(DOORS[name], ordered)
    constraint = fake.requests[-1].constraint
    assert constraint is not None
    assert fits(constraint, '{"b":1,"a":2}')
    assert not fits(constraint, '{"a":1,"b":2}')
