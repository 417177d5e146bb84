"""Words of schemas: those that forbid nothing are left out, what forbids something and is not known is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jsonschema
import llguidance
import pytest
from kit.fake_runtime import CONFIG
from kit.grammar_kit import ENCODER, GRAMMARS, TABLE, fits, schema

from uad.base.errors import ConfigError, InvalidRequestError
from uad.runtime.open import _grammars
from uad.text.grammar import grammars, patterns
from uad.text.grammar.schema_words import FORMATS, WORDS, drop_idle_words, loosened

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
IDLE: list[tuple[dict[str, Any], str]] = [
    *(({"type": "string", "format": name}, '"x y"') for name in ("path", "password", "byte", "uri-reference", "regex")),
    ({"type": "integer", "format": "int64"}, "1"),
    ({**OBJECT, "propertyNames": {"type": "string"}}, '{"a":1}'),
    ({**OBJECT, "propertyNames": True}, '{"a":1}'),
    ({**OBJECT, "propertyNames": {"description": "words", "type": ["string", "null"]}}, '{"a":1}'),
    ({"type": "array", "uniqueItems": False}, "[1,1]"),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, "[1]"),
    ({"type": "string", "uniqueItems": True}, '"a"'),
    ({**OBJECT, "required": None}, "{}"),
    ({"required": False}, "1"),
    *(({"type": "string", word: None}, '"a"') for word in ("minLength", "maxLength", "pattern", "format", "enum")),
    *(
        ({word: None}, "[1]")
        for word in ("type", "items", "properties", "additionalProperties", "anyOf", "$ref", "$defs")
    ),
    ({"type": "integer", "minimum": None, "multipleOf": None}, "1"),
    *(
        ({word: value}, "1")
        for word, value in (("title", "t"), ("examples", [1]), ("readOnly", True), ("writeOnly", True))
    ),
    *(
        ({word: "x"}, "1")
        for word in ("$comment", "contentMediaType", "contentEncoding", "x-order", "example", "unknown")
    ),
    ({"deprecated": True, "default": {"a": 1}, "contentSchema": {"not": {}}, "nullable": True}, "1"),
    ({"$schema": "my own", "$id": "http://example.com/a", "$anchor": "a", "$dynamicAnchor": "b"}, "1"),
    ({"$recursiveAnchor": True}, "1"),
    ({"not": False}, "1"),
    ({"if": {"type": "string"}}, "1"),
    ({"if": {"type": "string"}, "then": {}, "else": True}, "1"),
    ({"then": {"type": "string"}, "else": False}, "1"),
    ({"dependentRequired": {}}, "{}"),
    ({"dependentRequired": {"a": []}, "dependentSchemas": {"a": True}, "dependencies": {"a": [], "b": {}}}, '{"a":1}'),
    ({"unevaluatedProperties": True, "unevaluatedItems": {}}, "{}"),
    ({"contains": {"type": "string"}, "minContains": 0}, "[1]"),
    ({"minContains": 2, "maxContains": 3}, "[1]"),
    ({**OBJECT, "minProperties": 0, "maxProperties": 1}, "{}"),
    ({**OBJECT, "minProperties": 1, "required": ["a"]}, '{"a":1}'),
    ({**OBJECT, "properties": {"a": {"type": "string", "format": "path"}}}, '{"a":"x"}'),
    ({"$ref": "#/components/A", "components": {"A": {"type": "string", "format": "path"}}}, '"x"'),
    ({"anyOf": [{"prefixItems": [{"not": False}]}, {"$defs": {"b": {"if": {}}}}]}, "[1]"),
]
FORBIDDING: list[tuple[dict[str, Any], str, str]] = [
    ({"not": {"type": "string"}}, "not", "#/properties/a"),
    ({"if": {"type": "string"}, "then": {"minLength": 2}}, "if", "#/properties/a"),
    ({"propertyNames": {"pattern": "^a"}}, "propertyNames", "#/properties/a"),
    ({"uniqueItems": True}, "uniqueItems", "#/properties/a"),
    ({"contains": {"type": "string"}}, "contains", "#/properties/a"),
    ({"contains": {}, "maxContains": 2}, "contains", "#/properties/a"),
    ({"dependentRequired": {"a": ["b"]}}, "dependentRequired", "#/properties/a"),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, "dependentSchemas", "#/properties/a"),
    ({"dependencies": {"a": ["b"]}}, "dependencies", "#/properties/a"),
    ({"unevaluatedProperties": False}, "unevaluatedProperties", "#/properties/a"),
    ({"unevaluatedItems": False}, "unevaluatedItems", "#/properties/a"),
    ({"$dynamicRef": "#x"}, "$dynamicRef", "#/properties/a"),
    ({"$recursiveRef": "#"}, "$recursiveRef", "#/properties/a"),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 1}, "min/maxProperties", "#/properties/a"),
    ({**OBJECT, "maxProperties": 0}, "min/maxProperties", "#/properties/a"),
]


@pytest.mark.parametrize(("asked", "answer"), IDLE, ids=lambda value: json.dumps(value)[:60])
def test_a_word_that_forbids_nothing_is_left_out(asked: dict[str, Any], answer: str) -> None:
    assert fits(schema(asked), answer)


@pytest.mark.parametrize(("asked", "word", "place"), FORBIDDING, ids=lambda value: json.dumps(value)[:60])
def test_a_word_that_forbids_something_is_refused_with_its_place(asked: dict[str, Any], word: str, place: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(word)) as caught:
        GRAMMARS.check(schema({"type": "object", "properties": {"a": asked}}))
    assert f"(at {place})" in str(caught.value)


def test_what_is_left_out_changes_nothing_for_an_independent_judge() -> None:
    values: list[Any] = [None, True, 1, 2.5, "", "x y", [], [1], [1, 1], ["a"], {}, {"a": 1}, {"a": "x"}, {"b": []}]
    for asked, _ in IDLE:
        whole = {name: value for name, value in asked.items() if value is not None and name not in ("$schema", "$ref")}
        if whole.get("required") is False:
            continue  # no schema of today's draft
        first = jsonschema.Draft202012Validator(whole)
        second = jsonschema.Draft202012Validator(drop_idle_words(json.loads(json.dumps(whole))))
        assert [first.is_valid(value) for value in values] == [second.is_valid(value) for value in values], asked


def test_the_table_has_every_word_that_llguidance_refuses() -> None:
    """Of all words that JSON Schema has; where it learns one, the table loses one."""
    words = [
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveAnchor",
        "$recursiveRef",
        "contains",
        "not",
        "if",
        "then",
        "else",
    ]
    words += ["dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "uniqueItems"]
    words += ["minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems"]
    tokenizer = llguidance.LLTokenizer("byte")
    for word in words:
        text = llguidance.LLMatcher.grammar_from_json_schema(json.dumps({word: {}}))
        assert llguidance.LLMatcher(tokenizer, text, log_level=0).is_error(), word
    assert set(words) - set(WORDS) == {"$dynamicRef", "$recursiveRef"}


@pytest.mark.parametrize("name", sorted(FORMATS - {"unknown"}))
def test_known_formats_are_kept_to(name: str) -> None:
    assert not fits(schema({"type": "string", "format": name}), '"x y"')


VALUES = {"$defs": {"V": {"enum": [1, 2, 2]}}}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"items": {"type": "string"}}, {"items": {"type": "string"}}),
        ({"items": {"enum": [1, 2, 3]}}, {"items": {"enum": [1, 2, 3]}, "maxItems": 3}),
        ({"items": {"enum": [1, 2, 3]}, "maxItems": 2}, {"items": {"enum": [1, 2, 3]}, "maxItems": 2}),
        ({"items": {"enum": [1]}, "maxItems": 9}, {"items": {"enum": [1]}, "maxItems": 1}),
        ({"items": {"$ref": "#/$defs/V"}, **VALUES}, {"items": {"$ref": "#/$defs/V"}, "maxItems": 2, **VALUES}),
        ({"items": {"enum": [1]}, "prefixItems": [{}]}, {"items": {"enum": [1]}, "prefixItems": [{}]}),
        ({"items": True}, {"items": True}),
        ({"anyOf": [{"uniqueItems": True}]}, {"anyOf": [{}]}),
    ],
)
def test_a_loosened_list_has_no_more_items_than_can_differ(asked: dict[str, Any], expected: dict[str, Any]) -> None:
    whole = {"type": "array", "uniqueItems": True, **asked}
    kept = json.dumps(whole)
    assert loosened(whole) == {"type": "array", **expected}
    assert json.dumps(whole) == kept, "the request's own schema was changed"


def test_a_schema_whose_items_may_repeat_is_not_copied() -> None:
    schema_ = {"type": "array", "items": {"enum": [1]}, "uniqueItems": False}
    assert loosened(schema_) is schema_


def test_a_choice_whose_parts_overlap_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    grammars._say_any_of.cache_clear()
    for least in (2, 3):
        GRAMMARS.check(schema({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": least}]}))
    (line,) = caplog.messages
    assert "oneOf in a schema is read as anyOf" in line


def test_a_list_of_names_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="propertyOrdering must be a list of names"):
        GRAMMARS.check(schema({"propertyOrdering": "a"}))


def test_a_schema_for_all_requests_says_at_start_which_words_have_no_effect() -> None:
    bound = schema({"type": "string", "minLenght": 3, "nullable": True, "title": "t"})
    model: Any = SimpleNamespace(vocab=TABLE)
    assert _grammars(replace(CONFIG, constraint=bound), model, ENCODER).notes == (
        "--json-schema: the word 'minLenght' has no effect",
        "--json-schema: the word 'nullable' has no effect",
    )
    with pytest.raises(ConfigError, match="did you mean minLength"):
        _grammars(replace(CONFIG, constraint=schema({"min_length": 3})), model, ENCODER)


TEXTS = {
    "date": ["2020-02-29", "0001-12-31"],
    "time": ["00:00:00Z", "23:59:60.25+02:30"],
    "date-time": ["2020-02-29T12:00:00Z"],
    "duration": ["P1W", "P1Y2M3DT4H5M6S", "PT5M", "P3D"],
    "email": ["a@b.c", "first.last+x@mail.example.com"],
    "hostname": ["a", "a-1.example.com"],
    "ipv4": ["0.0.0.0", "255.249.199.9"],
    "ipv6": ["::", "::1", "fe80::1", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6::"],
    "uri": ["http://a.b/c?d=e#f", "mailto:a@b.c", "urn:isbn:0"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
}
BROKEN = [
    "",
    " ",
    "2020-13-01",
    "2020-1-1",
    "24:00:00Z",
    "12:00",
    "P",
    "PT",
    "P1S",
    "a@",
    "@b",
    "-a",
    "a..b",
    "256.1.1.1",
]
BROKEN += ["1.2.3", ":::", "1::2::3", "1:2:3:4:5:6:7", "a b", "//a", "123e4567", "1:2:3:4:5:6:7::", "::1:2:3:4:5:6:7"]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_formats_of_arguments_are_within_those_of_json(name: str) -> None:
    """Arguments in tags hold what the same argument could be in JSON."""
    known = schema({"type": "string", "format": name})
    for text in TEXTS[name]:
        assert re.fullmatch(patterns.FORMATS[name], text), text
        assert fits(known, json.dumps(text)), text
    for text in [*BROKEN, *(text for texts in TEXTS.values() for text in texts)]:
        assert fits(known, json.dumps(text)) or not re.fullmatch(patterns.FORMATS[name], text), text


def test_every_format_that_json_keeps_to_is_kept_to_in_arguments() -> None:
    assert patterns.FORMATS.keys() == TEXTS.keys() == FORMATS - {"unknown"}
