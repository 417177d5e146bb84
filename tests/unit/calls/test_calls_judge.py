"""The judge of arguments agrees with the library of JSON Schema, and no schema of a request can stop it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from kit.schema_maker import make

from uad.text.calls.judge import fits, may_be, same
from uad.text.calls.tools import type_of
from uad.text.grammar.patterns import MAX_BYTES, is_in

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2.0,
    2.5,
    1e300,
    "",
    "a",
    "ab",
    "abc",
    "é",
    [],
    [1],
    [1, 1],
    [1, True],
    [1, "a"],
    ["a", "b", "c"],
    [[1], [1.0]],
    {},
    {"a": 1},
    {"a": "x"},
    {"b": 1},
    {"a": 1, "b": 2},
    {"a": 1, "x_1": "y"},
    {"a": {"a": {"a": 1}}},
    {"a": [1, 2], "b": None},
]
SCHEMAS: list[Any] = [
    True,
    False,
    {},
    {"type": "integer"},
    {"type": "number"},
    {"type": ["string", "null"]},
    {"type": "boolean"},
    {"enum": [1, "a", [1], {"a": 1}, None]},
    {"const": True},
    {"const": 1},
    {"const": [1, True]},
    {"minimum": 1},
    {"maximum": 2.5},
    {"exclusiveMinimum": 1},
    {"exclusiveMaximum": 2.5},
    {"multipleOf": 2},
    {"multipleOf": 0.5},
    {"minLength": 2},
    {"maxLength": 1},
    {"pattern": "^a"},
    {"pattern": "b"},
    {"pattern": "^(a+)+$"},
    {"minItems": 1},
    {"maxItems": 1},
    {"uniqueItems": True},
    {"items": {"type": "integer"}},
    {"items": False},
    {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    {"contains": {"type": "string"}},
    {"contains": {"const": 1}, "minContains": 2, "maxContains": 2},
    {"properties": {"a": {"type": "integer"}}},
    {"properties": {"a": False}},
    {"properties": {"a": {}}, "additionalProperties": False},
    {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
    {"patternProperties": {"^x_": {"type": "string"}}, "additionalProperties": False},
    {"patternProperties": {"^a": {"type": "integer"}}, "properties": {"a": {"minimum": 1}}},
    {"required": ["a"]},
    {"required": ["a", "b"]},
    {"propertyNames": {"maxLength": 1}},
    {"minProperties": 1},
    {"maxProperties": 1},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"allOf": [{"type": "object"}, {"required": ["a"]}]},
    {"anyOf": [{"type": "string"}, {"minimum": 1}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    {"not": {"type": "object"}},
    {"if": {"type": "integer"}, "then": {"minimum": 1}, "else": {"type": "string"}},
    {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}}},
    {"properties": {"a": {"$ref": "#"}}, "type": ["object", "integer"]},
]
OLD: list[Any] = [
    {"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False},
    {"items": [{"type": "integer"}]},
    {"dependencies": {"a": ["b"]}},
    {"dependencies": {"a": {"required": ["b"]}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_values_are_judged_as_the_library_judges_them(schema: Any) -> None:
    library = Draft202012Validator(schema)
    root = schema if isinstance(schema, dict) else {}
    for value in VALUES:
        assert fits(value, schema, root) == library.is_valid(value), value


@pytest.mark.parametrize("schema", OLD, ids=json.dumps)
def test_words_of_old_schemas_mean_what_they_meant(schema: Any) -> None:
    library = Draft7Validator(schema)
    for value in VALUES:
        assert fits(value, schema, schema) == library.is_valid(value), value
    assert not fits(1, {"minimum": 1, "exclusiveMinimum": True}, {})
    assert fits(2, {"minimum": 1, "exclusiveMinimum": True}, {})


ANY = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2.5, "", "red", "abc", "1234-567", "日本"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "p_x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.integers(0, 10**6), ANY)
def test_schemas_of_all_kinds_are_judged_as_the_library_judges_them(seed: int, value: object) -> None:
    schema = make(random.Random(seed))
    parts = [schema, *schema["properties"].values()]  # type: ignore[attr-defined]
    for part in parts:
        library = Draft202012Validator({**part, "$defs": schema.get("$defs", {})})
        assert fits(value, part, schema) == library.is_valid(value)
        assert may_be(type_of(value), part) or not library.is_valid(value)


JUNK = st.recursive(
    st.sampled_from([None, True, 1, -1.5, "a", "(", "#", "#/$defs/a", "object", "any"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("$ref", "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then", "minimum"),
                    *("multipleOf", "minLength", "pattern", "items", "prefixItems", "contains", "minContains"),
                    *("uniqueItems", "properties", "patternProperties", "additionalProperties", "required"),
                    *("propertyNames", "maxProperties", "dependentRequired", "dependencies", "a"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JUNK, st.sampled_from(VALUES))
def test_whatever_a_request_calls_a_schema_there_is_an_answer(schema: Any, value: object) -> None:
    root = schema if isinstance(schema, dict) else {}
    assert fits(value, schema, root) in (True, False)
    assert isinstance(may_be(type_of(value), schema), bool)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"items": {"oneOf": [{"$ref": "#"}] * 40}},
    ],
)
def test_a_schema_that_takes_too_long_is_not_kept_to(schema: Any) -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    assert not fits(value, schema, schema)


@pytest.mark.parametrize("schema", [{"type": "any"}, {"type": 5}, {"type": []}, {"enum": []}, {"anyOf": []}])
def test_a_word_with_a_value_that_it_cannot_have_forbids_nothing(schema: Any) -> None:
    assert fits("a", schema, schema) == ("enum" not in schema)


def test_numbers_of_any_size_are_judged() -> None:
    assert fits(10**400, {"type": "integer", "multipleOf": 10, "minimum": 1.5}, {})
    assert not fits(10**400, {"multipleOf": 0.5}, {})


def test_true_is_not_one() -> None:
    assert not same({"a": [1]}, {"a": [True]})
    assert same({"a": [1]}, {"a": [1.0]})


def test_a_pattern_is_looked_for_in_time_that_grows_with_the_text() -> None:
    assert is_in("^(a+)+$", "a" * 4000 + "!") is False
    assert is_in("^(a+)+$", "a" * 4000) is True
    assert is_in("b", "abc") is True
    assert is_in("^[a-z]{2}$", "aé") is False
    for unknown in ("(?=a)", "[", "", 5, r"(a)\1"):
        assert is_in(unknown, "a") is None
    assert is_in("a", "a" * (MAX_BYTES + 1)) is None
