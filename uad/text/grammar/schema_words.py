"""Words of JSON schemas, decided here for every door: a word forbids nothing where it stands and is left out, or it is
obeyed, or it stays and llguidance refuses it with its place; but see `loosened`. `unread_words` names the rest.

JSON Schema has `format` for a note unless a validator says otherwise, so one that llguidance does not know is unread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from uad.base.errors import InvalidRequestError

Schema = dict[str, Any]

FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "unknown")
)
"""Words that llguidance keeps to."""
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_LISTED = ("prefixItems", "anyOf", "oneOf", "allOf", "items")
_ONE = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
_ASSERTIONS = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "not", "if", "anyOf", "oneOf", "allOf"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format"),
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
        *("minContains", "maxContains", "unevaluatedItems", "properties", "patternProperties", "additionalProperties"),
        *("required", "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas"),
        *("dependencies", "unevaluatedProperties"),
    )
)
_NOTES = frozenset(
    (
        *("title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$comment"),
        *("discriminator", "externalDocs", "xml", "propertyOrdering", "then", "else"),
        *("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", *_NAMED),
    )
)
"""Words that bind nothing by themselves, as their specifications say: nobody misses them."""


class IdleWord(NamedTuple):
    """When a word forbids nothing: where values of this type are not allowed anyway, or its own value says so, or the
    words beside it do.
    """

    of: str
    is_idle: Callable[[Any, Schema], bool]


def _allows_all(schema: object, kind: str = "") -> bool:
    """Whether a schema allows every value, or every one of a type."""
    if not isinstance(schema, dict):
        return schema is True
    return all(
        name not in _ASSERTIONS or (name == "type" and kind in listed(value))
        for name, value in schema.items()
        if not _is_idle(name, value, schema)
    )


def listed(types: object) -> list[object]:
    """The values of a schema's word such as `type`, as a list; it may name one thing or several."""
    return types if isinstance(types, list) else [types]


def _all_values(value: object, is_idle: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_idle, value.values()))


WORDS: Mapping[str, IdleWord] = {
    "$schema": IdleWord("", lambda *_: True),  # with an old draft llguidance passes over words of newer ones
    "$dynamicAnchor": IdleWord("", lambda *_: True),
    "$recursiveAnchor": IdleWord("", lambda *_: True),
    "format": IdleWord("string", lambda value, _: isinstance(value, str) and value not in FORMATS),
    "required": IdleWord("object", lambda value, _: value is False),
    "propertyNames": IdleWord("object", lambda value, _: _allows_all(value, "string")),
    "minProperties": IdleWord("object", lambda value, schema: _at_most(value, len(set(_required(schema))))),
    "maxProperties": IdleWord("object", lambda value, schema: _has_few_members(schema, value)),
    "dependentRequired": IdleWord("object", lambda value, _: _all_values(value, lambda names: names == [])),
    "dependentSchemas": IdleWord("object", lambda value, _: _all_values(value, _allows_all)),
    "dependencies": IdleWord(
        "object", lambda value, _: _all_values(value, lambda item: item == [] or _allows_all(item))
    ),
    "unevaluatedProperties": IdleWord("object", lambda value, _: _allows_all(value)),
    "uniqueItems": IdleWord("array", lambda value, schema: value is False or _at_most(schema.get("maxItems"), 1)),
    "contains": IdleWord("array", lambda _, schema: schema.get("minContains") == 0 and "maxContains" not in schema),
    "minContains": IdleWord("array", lambda value, schema: value == 0 or "contains" not in schema),
    "maxContains": IdleWord("array", lambda _, schema: "contains" not in schema),
    "unevaluatedItems": IdleWord("array", lambda value, _: _allows_all(value)),
    "not": IdleWord("", lambda value, _: value is False),
    "if": IdleWord("", lambda _, schema: all(_allows_all(schema.get(name, True)) for name in ("then", "else"))),
    "then": IdleWord("", lambda value, schema: "if" not in schema or _allows_all(value)),
    "else": IdleWord("", lambda value, schema: "if" not in schema or _allows_all(value)),
}
"""Words that llguidance refuses, by name, with the type that each is about. `$dynamicRef` and `$recursiveRef` always
forbid something.
"""


def _is_idle(name: str, value: object, schema: Schema) -> bool:
    """Whether a word of a schema forbids nothing. One that is null was left out by the schema's author."""
    if value is None:
        return name != "const"
    word = WORDS.get(name)
    if word is None:
        return False
    types = schema.get("type")
    is_elsewhere = bool(word.of) and types is not None and word.of not in listed(types)
    return is_elsewhere or word.is_idle(value, schema)


def _at_most(value: object, bound: int) -> bool:
    return isinstance(value, int | float) and value <= bound


def _required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _has_few_members(schema: Schema, most: object) -> bool:
    """Whether an object can have no more members than these anyway."""
    known = schema.get("properties", {})
    is_closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    return is_closed and isinstance(known, dict) and isinstance(most, int | float) and len(known) <= most


def drop_idle_words(root: Schema) -> Schema:
    """The same schema, from which idle words were taken. Its members have the order that `propertyOrdering` gives, and
    `$id: "#a"` of old drafts is an anchor. Raises InvalidRequestError.
    """
    for schema in schemas_in(root):
        for name in [name for name, value in schema.items() if _is_idle(name, value, schema)]:
            del schema[name]
        for name in ("$id", "id"):
            if isinstance(place := schema.get(name), str) and place.startswith("#"):
                schema["$anchor"] = schema.pop(name)[1:]
        put_in_order(schema)
    return root


def put_in_order(schema: Schema) -> None:
    """Put a schema's members in the order that its own `propertyOrdering` gives. Raises InvalidRequestError."""
    order, members = schema.pop("propertyOrdering", []), schema.get("properties")
    if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
        raise InvalidRequestError("propertyOrdering must be a list of names")
    if isinstance(members, dict):
        schema["properties"] = {name: members[name] for name in (*order, *members) if name in members}


def unread_words(root: Schema) -> list[str]:
    """The words of a schema that have no effect though they may be meant to have one, once each. Raises
    InvalidRequestError for a word that is spelled in another case.
    """
    unread: dict[str, None] = {}
    pointed = {ref.split("/")[1] for schema in schemas_in(root) if _is_pointer(ref := schema.get("$ref"))}
    for schema in schemas_in(root):
        for name, value in schema.items():
            if value in (None, False) or name.startswith("x-") or name in _NOTES:
                continue
            if name in _ASSERTIONS:
                is_unread = (name == "format" and value not in FORMATS) or (name == "required" and value is True)
            else:
                is_unread = not (schema is root and name in pointed)
                if right := _SPELLED.get(_plain(name)):
                    raise InvalidRequestError(f"schemas have no word {name[:64]}; did you mean {right}?")
            if is_unread:
                unread[name] = None
    return [*unread]


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


_SPELLED = {_plain(word.removeprefix("$")): word for word in sorted(_ASSERTIONS, reverse=True)}


def _is_pointer(ref: object) -> TypeGuard[str]:
    return isinstance(ref, str) and ref.startswith("#/")


def loosened(root: Schema) -> Schema:
    """The schema of a request that is not strict: lists may repeat items. It is the same object where they may anyway.

    Libraries write `uniqueItems` for each set and each choice of several, and llama.cpp's grammars pass over it.
    """
    if not any(map(_binds_items, schemas_in(root))):
        return root
    loose: Schema = json.loads(json.dumps(root))
    for schema in schemas_in(loose):
        if _binds_items(schema) and (n := _n_values(loose, schema.get("items"))) and "prefixItems" not in schema:
            schema["maxItems"] = min(schema.get("maxItems", n), n)  # of three values no more than three differ
        schema.pop("uniqueItems", None)
    return loose


def _binds_items(schema: Schema) -> bool:
    return "uniqueItems" in schema and not _is_idle("uniqueItems", schema["uniqueItems"], schema)


def _n_values(root: Schema, items: object) -> int:
    """How many values a schema lists; 0 where it lists none."""
    target = target_of(root, items) if isinstance(items, dict) else None
    listing = target if isinstance(target, dict) else items
    values = listing.get("enum") if isinstance(listing, dict) else None
    return len({json.dumps(value) for value in values}) if isinstance(values, list) else 0


def schemas_in(root: Schema) -> Iterator[Schema]:
    """Each schema that a schema is made of, once: itself, those inside of it, and what local references lead to."""
    waiting: list[object] = [root]
    seen: set[int] = set()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        for name in _NAMED:
            named = schema.get(name)
            waiting += named.values() if isinstance(named, dict) else []
        for name in _LISTED:
            several = schema.get(name)
            waiting += several if isinstance(several, list) else []
        waiting += [schema.get(name) for name in _ONE]
        waiting.append(target_of(root, schema))


def target_of(root: Schema, schema: Schema) -> object:
    """The value that a schema's local `$ref` names; None where it has no such reference."""
    ref = schema.get("$ref")
    if not (_is_pointer(ref) or ref == "#"):
        return None
    value: object = root
    for step in ref.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value
