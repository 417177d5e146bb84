"""Arguments of forced calls in formats that write them one by one: which may be missing, and what they may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.calls_kit import FORMATS, said
from kit.grammar_kit import fits

from uad.base.errors import InvalidRequestError
from uad.base.types import Constraint, ConstraintKind
from uad.text.calls.constraint import grammar_of
from uad.text.calls.format import AnswerFormat
from uad.text.calls.tools import Calls, Tool
from uad.text.grammar.source import JSON_STYLE, LARK

TEXT = {"type": "string"}
SEND = {
    "type": "object",
    "properties": {"to": TEXT, "from": TEXT, "n": {"type": "integer"}},
    "required": ["from"],
}
TAGGED = sorted(name for name, one in FORMATS.items() if one.body == "tagged")
ONE_BY_ONE = sorted(name for name, one in FORMATS.items() if one.body in ("tagged", "gemma", "python"))


def takes(name: str, parameters: dict[str, Any], text: str, tool: str = "send") -> bool:
    """Whether a forced call may be this text."""
    found = grammar_of(FORMATS[name], Calls((Tool(tool, parameters),), "required", parallel=False))
    assert found is not None
    return fits(Constraint(ConstraintKind.GRAMMAR, f"{LARK} {{}}\n{found.lark(style=JSON_STYLE)}"), text)


def qwen(*arguments: tuple[str, str], tool: str = "send") -> str:
    """A call in Qwen3-Coder's tags."""
    inner = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments)
    return f"<tool_call>\n<function={tool}>\n{inner}</function>\n</tool_call>"


def read(text: str, parameters: dict[str, Any], name: str = "qwen3-coder") -> Any:
    """The arguments of the only call that is read."""
    ((_, arguments, _),) = said(text, AnswerFormat((FORMATS[name],)), Calls((Tool("send", parameters),))).calls
    return json.loads(arguments)


@pytest.mark.parametrize(
    ("inner", "is_taken"),
    [
        ('from=<">a<">', True),
        ('to=<">b<">,from=<">a<">', True),
        ('from=<">a<">,n=3', True),
        ('to=<">b<">,from=<">a<">,n=3', True),
        ("", False),
        ('to=<">b<">', False),
        ('to=<">b<">,n=3', False),
        (',from=<">a<">', False),
        ('from=<">a<">,', False),
        ('from=<">a<">n=3', False),
    ],
)
def test_optional_arguments_may_be_missing_in_gemma_4_and_lfm2(inner: str, is_taken: bool) -> None:
    """What is not written leaves no comma."""
    gemma = inner.replace("=", ":").replace('<">', '<|"|>')
    assert takes("gemma-4", SEND, f"<|tool_call>call:send{{{gemma}}}<tool_call|>") is is_taken
    lfm2 = inner.replace('<">', '"').replace(",", ", ")
    assert takes("lfm2", SEND, f"<|tool_call_start|>[send({lfm2})]<|tool_call_end|>") is is_taken


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_call_without_arguments_is_one_where_none_is_required(name: str) -> None:
    nothing, optional = {"type": "object", "properties": {}}, {**SEND, "required": []}
    found = grammar_of(FORMATS[name], Calls((Tool("send", nothing),), "required", parallel=False))
    assert found is not None
    text = found.begin + "".join(getattr(part, "text", "") for part in found.calls[0].parts) + found.finish
    for parameters in (
        {},
        nothing,
        optional,
        {"$ref": "#/$defs/a", "$defs": {"a": optional}},
        {"additionalProperties": TEXT},
    ):
        assert takes(name, parameters, text), parameters
    assert not takes(name, SEND, text)


WAYS: dict[str, dict[str, Any]] = {
    "$ref": {"$ref": "#/$defs/Send", "$defs": {"Send": SEND}},
    "$ref in $ref": {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": SEND}},
    "allOf": {
        "allOf": [
            {"properties": {"to": TEXT}},
            {"properties": {"from": TEXT, "n": {"type": "integer"}}, "required": ["from"]},
        ]
    },
    "allOf beside": {
        "properties": {"to": TEXT, "from": True},
        "allOf": [{"$ref": "#/$defs/a"}],
        "$defs": {"a": {**SEND, "properties": {"from": TEXT, "n": {"type": "integer"}}}},
    },
    "anyOf": {"anyOf": [{**SEND, "required": ["from"]}, {**SEND, "required": ["from", "n"]}]},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_schema_means_the_same_however_it_is_put_together(way: str) -> None:
    parameters = {"type": "object", **WAYS[way]}
    whole = qwen(("to", "b"), ("from", "12"), ("n", "3"))
    assert takes("qwen3-coder", parameters, whole)
    assert takes("qwen3-coder", parameters, qwen(("from", "12")))
    assert not takes("qwen3-coder", parameters, qwen(("to", "b")))
    assert not takes("qwen3-coder", parameters, qwen(("from", "12"), ("n", "x")))
    assert read(whole, parameters) == {"to": "b", "from": "12", "n": 3}


def test_one_of_several_shapes_is_written_whole() -> None:
    cat, dog = (
        {"properties": {"kind": {"const": kind}, kind: TEXT}, "required": ["kind", kind]} for kind in ("cat", "dog")
    )
    for word in ("anyOf", "oneOf"):
        parameters = {"type": "object", word: [cat, dog]}
        assert takes("qwen3-coder", parameters, qwen(("kind", "dog"), ("dog", "Rex")))
        assert not takes("qwen3-coder", parameters, qwen(("kind", "dog"), ("cat", "Tom")))
        assert not takes("qwen3-coder", parameters, qwen(("kind", "dog")))


def test_a_map_takes_any_names() -> None:
    parameters = {"type": "object", "properties": {"to": TEXT}, "additionalProperties": {"type": "integer"}}
    for arguments in ([], [("a", "1")], [("to", "x"), ("tom", "1"), ("b", "2")]):
        assert takes("qwen3-coder", parameters, qwen(*arguments))
    assert not takes("qwen3-coder", parameters, qwen(("a", "x")))
    assert read(qwen(("to", "1"), ("a", "1")), parameters) == {"to": "1", "a": 1}
    assert takes("gemma-4", parameters, "<|tool_call>call:send{tom:1,b:2}<tool_call|>")
    assert takes("lfm2", parameters, '<|tool_call_start|>[send(to="x", b=2)]<|tool_call_end|>')
    assert read(qwen(("a", "1")), {"type": "object", "additionalProperties": TEXT}) == {"a": "1"}
    assert read(qwen(("a", "1")), {"type": "object", "patternProperties": {"^a": TEXT}}) == {"a": "1"}


OPTIONAL_TEXTS = [
    {"type": ["string", "null"]},
    {"anyOf": [TEXT, {"type": "null"}], "default": None},
    {"anyOf": [{"$ref": "#/$defs/text"}, {"type": "null"}]},
    {"oneOf": [{"type": "null"}, TEXT]},
]


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize("schema", OPTIONAL_TEXTS, ids=json.dumps)
def test_a_text_or_null_is_written_as_a_text(schema: dict[str, Any], name: str) -> None:
    """As one that must be a text; `null` alone is null."""
    definitions = {"$defs": {"text": TEXT}}
    parameters = {"type": "object", "properties": {"word": schema}, "required": ["word"], **definitions}
    plain = FORMATS[name].example.strip()
    start = plain[: plain.index("tea")]
    end = plain[plain.index("tea") + 3 :].split(FORMATS[name].tags.value_end.replace("{key}", "word"), 1)  # type: ignore[union-attr]
    closing = FORMATS[name].tags.value_end.replace("{key}", "word")  # type: ignore[union-attr]
    tail = plain[plain.rindex(FORMATS[name].tags.value_end.replace("{key}", "n")) :]  # type: ignore[union-attr]
    tail = tail.removeprefix(FORMATS[name].tags.value_end.replace("{key}", "n"))  # type: ignore[union-attr]
    for text in ("tea", "two words", "", '"use strict"', "[x"):
        call = start + text + end[0] + closing + tail
        assert takes(name, parameters, call, "look_up"), text


@pytest.mark.parametrize(
    ("schema", "texts", "others"),
    [
        ({"type": ["string", "integer"]}, ["a", "12", "-3", "1.5.2"], ["1.5", "1e3"]),
        ({"type": ["string", "number"]}, ["a", "12", "1.5"], []),
        ({"anyOf": [TEXT, {"type": "integer", "minimum": 5}]}, ["a", "5 a"], ["5", "4", "1.5"]),
        ({"anyOf": [TEXT, {"type": "array", "items": {"type": "integer"}}]}, ["a", "[1, 2]"], ["[a]", "[1", "{}"]),
        ({"anyOf": [TEXT, {"const": True}]}, ["a", "true"], ["false"]),
        ({"enum": ["a b", None, 3]}, ["a b", "null", "3"], ["b", "4", '"a b"']),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "äöü"], ["a", "abcd"]),
        ({"type": "string", "pattern": "^[a-z]+/(x|y)$"}, ["ab/x"], ["ab/z", "/x"]),
        ({"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "null"}]}, ["abc", "null"], ["bc", "nul"]),
        ({"type": ["boolean", "null"]}, ["true", "null"], ["True", "a"]),
        ({}, ["a", "1", "[1]", "null"], ["[1"]),
    ],
    ids=json.dumps,
)
def test_what_a_value_in_tags_may_be(schema: dict[str, Any], texts: list[str], others: list[str]) -> None:
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    assert [text for text in texts if not takes("qwen3-coder", parameters, qwen(("x", text)))] == []
    assert [text for text in others if takes("qwen3-coder", parameters, qwen(("x", text)))] == []


def test_a_format_that_says_what_kind_follows_says_so() -> None:
    parameters = {"type": "object", "properties": {"x": {"type": ["string", "null", "integer"]}}, "required": ["x"]}

    def call(says: str, text: str) -> str:
        argument = f'<｜DSML｜parameter name="x" string="{says}">{text}</｜DSML｜parameter>'
        return (
            f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="send">\n{argument}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'
        )

    for says, text, is_taken in (
        ("true", "5", True),
        ("false", "5", True),
        ("false", "null", True),
        ("false", '"5"', False),
    ):
        assert takes("deepseek-v4", parameters, call(says, text)) is is_taken, (says, text)


def test_references_lead_anywhere_in_the_schema() -> None:
    point = {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
        "additionalProperties": False,
    }
    parameters = {
        "type": "object",
        "properties": {"a": point, "b": {"type": "array", "items": {"$ref": "#/properties/a"}}},
    }
    assert takes("qwen3-coder", parameters, qwen(("b", '[{"x": 1}]')))
    assert not takes("qwen3-coder", parameters, qwen(("b", '[{"y": 1}]')))


@pytest.mark.parametrize("name", ["hermes", "llama-3", "apertus"])
def test_a_tools_name_is_escaped_where_it_stands_in_json(name: str) -> None:
    text = FORMATS[name].example.strip().replace("look_up", 'say \\"hi\\"')
    assert takes(name, {}, text.replace('{"word": "tea", "n": 3}', "{}"), 'say "hi"')


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "array"}, "must have the type object"),
        ({"type": "object", "not": {}}, "Unimplemented keys"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "refers to itself"),
        ({"properties": {"a": False}, "required": ["a"]}, "allows no arguments"),
        ({"required": ["a"], "additionalProperties": False}, "allows no arguments"),
        (
            {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(9)]} for i in range(3)]},
            "more than 64 alternatives",
        ),
    ],
    ids=json.dumps,
)
def test_what_is_not_understood_is_refused_with_the_tools_place(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        takes("qwen3-coder", parameters, "")
    assert caught.value.param == "tools.0.function.parameters"
