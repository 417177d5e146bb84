"""Words of schemas: those that forbid nothing are left out, what forbids something and is not known is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import llguidance
import pytest
from kit.grammar_kit import GRAMMARS, fits, schema

from uad.base.errors import InvalidRequestError
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
