"""Which arguments a JSON schema of an object allows, and what kinds of values one of them may have, where calls are not
written as JSON. Knows no format.

A schema is read as JSON Schema says: what `$ref` leads to, the words beside it, and all parts of `allOf` hold together;
of `anyOf` and `oneOf` one part holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from uad.calls.tools import Schema, resolved, type_of
from uad.errors import InvalidRequestError

MAX_SHAPES = 64
MAX_DEPTH = 16
_UNREAD = (
    *("not", "if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "minProperties"),
    *("maxProperties", "enum", "const", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
)
_CHOICES = ("anyOf", "oneOf")
_SAY_NOTHING = ("$defs", "definitions", "$schema", "$id")
_NOTES = ("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment")


@dataclass(frozen=True)
class ArgumentShape:
    """One way to write arguments. properties: those that are named, by name, in order; required: names among them that
    must be there. others: what every other argument may be; None: there is none. patterns: schemas by what names match.
    """

    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    others: Schema | None = None
    is_closed: bool = False
    patterns: Mapping[str, Schema] = field(default_factory=dict)


def shapes_of(parameters: Schema) -> tuple[ArgumentShape, ...]:
    """The ways in which a schema allows arguments. Raises InvalidRequestError where it is not understood, or allows
    none.
    """
    found = tuple(filter(None, map(_completed, _shapes(parameters, parameters, 0))))
    if not found:
        raise InvalidRequestError("the schema allows no arguments, not even none")
    return found


def _shapes(schema: Schema, root: Schema, depth: int) -> list[ArgumentShape]:
    if depth > MAX_DEPTH:
        raise InvalidRequestError("the schema of the arguments refers to itself, or is nested too deeply")
    unread = [word for word in _UNREAD if word in schema]
    if unread:
        raise InvalidRequestError(
            f"Unimplemented keys: {unread} of the arguments; leave them out, or send tool_choice auto"
        )
    types = schema.get("type", "object")
    if "object" not in (types if isinstance(types, list) else [types]):
        raise InvalidRequestError("arguments are an object, so the schema must have the type object")
    found = [_own(schema)]
    if "$ref" in schema:
        target = resolved({"$ref": schema["$ref"]}, root)
        if not target:
            raise InvalidRequestError(f"$ref {str(schema['$ref'])[:64]!r} refers to itself, or to nothing")
        found = _both(found, _shapes(target, root, depth + 1))
    for part in _schemas(schema.get("allOf")):
        found = _both(found, _shapes(part, root, depth + 1))
    for word in _CHOICES:
        if parts := _schemas(schema.get(word)):
            choices = [part for part in parts if _may_be_object(part, root)]
            found = _both(found, [shape for part in choices for shape in _shapes(part, root, depth + 1)])
    return found


def _may_be_object(schema: Schema, root: Schema) -> bool:
    types = resolved(schema, root).get("type", "object")
    return "object" in (types if isinstance(types, list) else [types])


def _own(schema: Schema) -> ArgumentShape:
    """What the words of a schema itself say."""
    named, required, others = schema.get("properties"), schema.get("required"), schema.get("additionalProperties")
    patterns = schema.get("patternProperties")
    return ArgumentShape(
        {name: _as_schema(one) for name, one in named.items()} if isinstance(named, Mapping) else {},
        frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset(),
        {} if others is True else others if isinstance(others, Mapping) else None,
        others is False,
        {name: _as_schema(one) for name, one in patterns.items()} if isinstance(patterns, Mapping) else {},
    )


def _as_schema(value: object) -> Schema:
    """A schema; `false` allows nothing."""
    return value if isinstance(value, Mapping) else {} if value is True else {"enum": []}


def _schemas(value: object) -> list[Schema]:
    return [_as_schema(one) for one in value if one is not True] if isinstance(value, list) else []


def _both(one: list[ArgumentShape], other: list[ArgumentShape]) -> list[ArgumentShape]:
    if len(one) * len(other) > MAX_SHAPES:
        raise InvalidRequestError(f"the schema of the arguments has more than {MAX_SHAPES} alternatives")
    return [_joined(first, second) for first in one for second in other]


def _joined(one: ArgumentShape, other: ArgumentShape) -> ArgumentShape:
    """What both allow. An argument that only one of them names is one of the others of the second."""
    names = dict.fromkeys((*one.properties, *other.properties))
    properties = {name: _all_of(_of(one, name), _of(other, name)) for name in names}
    is_closed = one.is_closed or other.is_closed
    both = [others for others in (one.others, other.others) if others is not None]
    return ArgumentShape(
        properties,
        one.required | other.required,
        None if is_closed or not both else reduce(_all_of, both),
        is_closed,
        {**one.patterns, **other.patterns},
    )


def _of(shape: ArgumentShape, name: str) -> Schema:
    """The schema of an argument of this name."""
    matching = [schema for pattern, schema in shape.patterns.items() if _matches(pattern, name)]
    if name in shape.properties:
        matching.insert(0, shape.properties[name])
    if matching:
        return reduce(_all_of, matching)
    return {"enum": []} if shape.is_closed else shape.others or {}


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        raise InvalidRequestError(f"patternProperties: {pattern[:64]!r} is no regular expression") from None


def _all_of(one: Schema, other: Schema) -> Schema:
    return other if not one or one == other else one if not other else {"allOf": [one, other]}


def _completed(shape: ArgumentShape) -> ArgumentShape | None:
    """The shape with every argument that is required among its properties, and without those that allow no value; None
    where one of these is required.
    """
    names = dict.fromkeys((*shape.properties, *sorted(shape.required)))
    known = {name: _of(shape, name) for name in names}
    empty = {name for name, schema in known.items() if _is_empty(schema)}
    if empty & shape.required:
        return None
    others = None if shape.is_closed else shape.others
    return replace(shape, properties={name: one for name, one in known.items() if name not in empty}, others=others)


def _is_empty(schema: Schema) -> bool:
    return schema.get("enum") == [] or any(map(_is_empty, _schemas(schema.get("allOf"))))


@dataclass(frozen=True)
class ValueKind:
    """Values of one JSON type: its name, and the words of the schema that are about it, without those that say nothing.
    `values` are those that are listed; None: they are not.
    """

    type: str
    schema: Schema
    values: Sequence[object] | None = None


def kinds_of(schema: Schema, root: Schema) -> list[ValueKind] | None:
    """The kinds of values that a schema allows; None where it allows any, or its words are not understood."""
    parts = _parts(schema, root, 0)
    if parts is None:
        return None
    found: list[ValueKind] = []
    for part in parts:
        own = list(_own_kinds(part))
        if not own:
            return None
        found += own
    return found


def _own_kinds(schema: Schema) -> Iterator[ValueKind]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    types = schema.get("type")
    named = [kind for kind in (types if isinstance(types, list) else [types]) if isinstance(kind, str)]
    if not schema.keys() - set(_SAY_NOTHING):
        named = ["string", "number", "boolean", "null", "object", "array"]
    if isinstance(values, list):
        for kind in dict.fromkeys(map(type_of, values)):
            fitting = [value for value in values if type_of(value) == kind and _fits(value, named)]
            if fitting:
                yield ValueKind(kind, {"enum": fitting}, fitting)
        return
    for kind in named:
        yield ValueKind(kind, {**{name: one for name, one in schema.items() if name not in _NOTES}, "type": kind})


def _fits(value: object, types: list[str]) -> bool:
    kind = type_of(value)
    is_whole = isinstance(value, int | float) and value == int(value)
    return not types or kind in types or (kind == "number" and "integer" in types and is_whole)


def _parts(schema: Schema, root: Schema, depth: int) -> list[dict[str, Any]] | None:
    """A schema without references and choices: one of these holds. None where its words do not go together."""
    if depth > MAX_DEPTH:
        return None
    found: list[dict[str, Any]] | None = [
        {name: one for name, one in schema.items() if name not in ("$ref", "allOf", *_CHOICES, *_NOTES)}
    ]
    if "$ref" in schema:
        found = _product(found, _parts(resolved({"$ref": schema["$ref"]}, root), root, depth + 1))
    for part in _schemas(schema.get("allOf")):
        found = _product(found, _parts(part, root, depth + 1))
    for word in _CHOICES:
        if parts := _schemas(schema.get(word)):
            listed = [_parts(part, root, depth + 1) for part in parts]
            whole = None if None in listed else [one for parts in listed if parts is not None for one in parts]
            found = _product(found, whole)
    return found


def _product(one: list[dict[str, Any]] | None, other: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if one is None or other is None or len(one) * len(other) > MAX_SHAPES:
        return None
    found: list[dict[str, Any]] = []
    for first in one:
        for second in other:
            joined = {**first, **second}
            clashes = {name for name in first.keys() & second.keys() if first[name] != second[name]}
            if clashes - {"type"}:
                return None
            if "type" in clashes:
                joined["type"] = _common(first["type"], second["type"])
            found += [joined] if joined.get("type") != [] else []
    return found


def _common(one: object, other: object) -> list[object]:
    """The types that both allow."""
    first, second = ((types if isinstance(types, list) else [types]) for types in (one, other))
    both = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    return both + [kind for kind in second if kind == "integer" and "number" in first and kind not in both]
