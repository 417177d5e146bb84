"""Schemas as Google's Gemini API writes them, as JSON schemas. Its words are OpenAPI's, with types in capitals; those
of JSON Schema are taken beside them. Every word is kept: one that cannot be obeyed is refused where it is compiled.
"""

from __future__ import annotations

from typing import Any

from pydantic.alias_generators import to_camel

from uad.base.checkpoint import checkpoint
from uad.base.errors import InvalidRequestError
from uad.http.requests.left_out import leave_out
from uad.text.grammar.schema_words import Schema, put_in_order, schemas_in

MAX_DEPTH = 64
"""Schemas in each other."""
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
"""Numbers of 64 bits, which this API may write as texts."""
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_INNER = (
    *("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_WORDS = frozenset(
    (
        *(*_COUNTS, *_NAMED, *_LISTED, *_INNER, "type", "nullable", "propertyOrdering"),
        *("enum", "const", "format", "pattern", "required", "uniqueItems", "minContains", "maxContains"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("dependentRequired", "dependencies", "$ref", "$dynamicRef", "$recursiveRef"),
        *("$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment"),
        *("title", "description", "default", "example", "examples", "readOnly", "writeOnly", "deprecated"),
        *("contentEncoding", "contentMediaType", "contentSchema", "discriminator", "externalDocs", "xml"),
    )
)
_OTHER_NAMES = {"ref": "$ref", "defs": "$defs"}
_TOGETHER = frozenset({"allOf", "not", "if", "then", "else", "dependentSchemas", "unevaluatedProperties"})
"""Words whose parts hold for one object together, so that each may name some of its members."""
_BESIDE = frozenset({"anyOf", "oneOf", "$ref"})
"""The same, where they stand beside `properties`."""


def schema_of(value: object, where: str) -> Schema:
    """The JSON schema. Objects that name their members have no others, unless several parts of the schema describe one
    object. Raises InvalidRequestError.
    """
    if not isinstance(value, dict):
        raise InvalidRequestError.at(where, "must be a schema, which is an object")
    root: Schema = _schema(value, where, 0)
    parts = list(schemas_in(root))
    if any(_TOGETHER & part.keys() or ("properties" in part and _BESIDE & part.keys()) for part in parts):
        return root
    for part in parts:
        if "properties" in part:
            part.setdefault("additionalProperties", False)
    return root


def _schema(value: object, where: str, depth: int) -> Any:
    checkpoint()
    if isinstance(value, bool) and depth:
        return value
    if not isinstance(value, dict):
        raise InvalidRequestError.at(where, "must be a schema, which is an object")
    if depth >= MAX_DEPTH:
        raise InvalidRequestError.at(where[:200], f"is nested too deeply: more than {MAX_DEPTH} schemas in each other")
    given: Schema = {}
    for name, member in value.items():
        word = _OTHER_NAMES.get(name, to_camel(name) if "_" in name else name)
        if member is not None or word in ("const", "default"):
            if word in given:
                raise InvalidRequestError.at(f"{where}.{word}", "stands there twice")
            given[word] = member
    words = [name for name in given if name in _WORDS or name.startswith("x-")]
    for name in given.keys() - words:
        if isinstance(given[name], str | list | dict) and given[name]:
            raise InvalidRequestError.at(f"{where}.{name[:64]}", "is no word of schemas; leave it out")
        leave_out("generateContent", f"the word {name[:64]!r} of a schema", "schemas have no such word")
    out = {name: _word(name, given[name], f"{where}.{name}", depth) for name in words}
    is_nullable = out.pop("nullable", False)
    if out.get("type") == "type_unspecified":
        del out["type"]
    put_in_order(out)
    return _nullable(out) if is_nullable else out


def _nullable(schema: Schema) -> Schema:
    """The definitions stay where references look for them."""
    outside: Schema = {name: schema.pop(name) for name in ("$defs", "definitions", "$schema") if name in schema}
    return {"anyOf": [schema, {"type": "null"}], **outside}


def _word(name: str, value: Any, where: str, depth: int) -> Any:
    """The value of a word, as JSON Schema writes it."""
    if name in _NAMED:
        if not isinstance(value, dict):
            raise InvalidRequestError.at(where, "must be an object")
        return {member: _schema(inner, f"{where}.{member}", depth + 1) for member, inner in value.items()}
    if name in _LISTED or (name == "items" and isinstance(value, list)):
        several = value if isinstance(value, list) else [value]
        return [_schema(inner, f"{where}.{i}", depth + 1) for i, inner in enumerate(several)]
    if name in _INNER:
        return _schema(value, where, depth + 1)
    if name in _COUNTS:
        return _count(value, where)
    if name == "type":
        return _type(value, where)
    if name == "nullable" and not isinstance(value, bool):
        raise InvalidRequestError.at(where, "must be true or false")
    if name == "propertyOrdering" and not (
        isinstance(value, list) and all(isinstance(member, str) for member in value)
    ):
        raise InvalidRequestError.at(where, "must be a list of names")
    return value.replace("#/defs/", "#/$defs/") if name == "$ref" and isinstance(value, str) else value


def _type(value: object, where: str) -> str | list[str]:
    kinds = value if isinstance(value, list) else [value]
    lower = [kind.lower() for kind in kinds if isinstance(kind, str)]
    if not kinds or len(lower) < len(kinds):
        raise InvalidRequestError.at(where, "must be the name of a type, or a list of them")
    return lower if isinstance(value, list) else lower[0]


def _count(value: object, where: str) -> object:
    if isinstance(value, str) and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise InvalidRequestError.at(where, "must be a whole number")
    return int(value) if isinstance(value, str) else value
