"""Whether a value keeps to a JSON schema: the judge of answers that may be calls. Knows no format.

A schema comes from a request, so nothing in it is taken for granted: a word with a value that it cannot have forbids
nothing, and neither does a word that is not known. `format` is a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from uad.text.calls.tools import ToolSchema, listed, resolved, type_of
from uad.text.grammar.patterns import is_in

MOST_STEPS = 20_000
"""Schemas that are looked at for one value: alternatives within references to the whole would take for ever."""


class _TooLongError(Exception):
    """A value needs more steps than there are."""


def fits(value: object, schema: object, root: ToolSchema) -> bool:
    """Whether the value keeps to the schema, a part of `root`, where references lead. One that takes too long to say
    does not.
    """
    try:
        return SchemaJudge(root).fits(value, schema)
    except (_TooLongError, RecursionError):
        return False


class SchemaJudge:
    """Judges one value. Raises an error that `fits` knows where that takes too long."""

    def __init__(self, root: ToolSchema) -> None:
        self.root = root
        self._n_left = MOST_STEPS

    def fits(self, value: object, schema: object) -> bool:
        """Whether the value keeps to every word of the schema."""
        if not isinstance(schema, Mapping):
            return schema is not False
        self._n_left -= 1
        if self._n_left < 0:
            raise _TooLongError
        checks = dict.fromkeys(_WORDS[word] for word in schema if word in _WORDS)
        return all(check(self, value, schema) for check in checks)


def same(value: object, other: object) -> bool:
    """Whether two values are equal in JSON, where true is not 1, and 1 is 1.0."""
    return _key(value) == _key(other)


def _key(value: object) -> Hashable:
    """A key that equal values share, and no others."""
    if isinstance(value, list):
        return ("array", tuple(map(_key, value)))
    if isinstance(value, Mapping):
        return ("object", frozenset((name, _key(inner)) for name, inner in value.items()))
    return (type_of(value), value)


def may_be(kind: str, schema: object) -> bool:
    """Whether a value of this JSON type, as `type_of` says it, may keep to a schema by what that says of types."""
    kinds = listed(schema.get("type")) if isinstance(schema, Mapping) else []
    known = [kind for kind in kinds if isinstance(kind, str) and kind in _TYPES]
    return len(known) < len(kinds) or not kinds or kind in known or (kind == "number" and "integer" in known)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _listed_in(value: object) -> list[object]:
    """The items of a list; none of what is no list."""
    return value if isinstance(value, list) else []


def _type(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    """A number without a fraction is an integer, however it is written."""
    kind = type_of(value)
    if kind == "number" and "number" not in listed(schema["type"]) and isinstance(value, float):
        return may_be(kind, schema) and value.is_integer()
    return may_be(kind, schema)


def _ref(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    ref = schema["$ref"]
    return not isinstance(ref, str) or judge.fits(value, resolved({"$ref": ref}, judge.root))


def _enum(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return any(same(value, allowed) for allowed in listed(schema["enum"]))


def _const(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return same(value, schema["const"])


def _all_of(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return all(judge.fits(value, part) for part in _listed_in(schema["allOf"]))


def _any_of(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    parts = _listed_in(schema["anyOf"])
    return not parts or any(judge.fits(value, part) for part in parts)


def _one_of(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    parts = _listed_in(schema["oneOf"])
    return not parts or sum(judge.fits(value, part) for part in parts) == 1


def _not(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return not judge.fits(value, schema["not"])


def _if(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return judge.fits(value, schema.get("then" if judge.fits(value, schema["if"]) else "else", True))


def _bound(is_kept: Callable[[float, float], bool], word: str, also: str = "") -> _Check:
    """A word that bounds numbers. also: the word that says of it, in old schemas, that it is not reached."""

    def check(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
        number, limit = _number(value), _number(schema[word])
        if number is None or limit is None:
            return True
        return is_kept(number, limit) and not (schema.get(also) is True and number == limit)

    return check


def _is_multiple(number: float, step: float) -> bool:
    if step <= 0:
        return True
    if isinstance(number, int) and isinstance(step, int):
        return number % step == 0
    try:
        quotient = number / step
    except OverflowError:
        return False
    return math.isfinite(quotient) and math.isclose(quotient, round(quotient), rel_tol=1e-9, abs_tol=1e-9)


def _size(of: type | tuple[type, ...], word: str, is_kept: Callable[[float, float], bool]) -> _Check:
    """A word that bounds how many characters, items or members a value has."""

    def check(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
        limit = _number(schema[word])
        return limit is None or not isinstance(value, of) or is_kept(len(value), limit)  # type: ignore[arg-type]

    return check


def _pattern(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return not isinstance(value, str) or is_in(schema["pattern"], value) is not False


def _items(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    """Items in front have a schema each, in `prefixItems` or in a list of old schemas; the others share one."""
    if not isinstance(value, list):
        return True
    is_old = isinstance(schema.get("items"), list)
    first = schema["items"] if is_old else schema.get("prefixItems")
    first = first if isinstance(first, list) else []
    rest = schema.get("additionalItems" if is_old else "items", True)
    own = [*first, *[rest] * (len(value) - len(first))]
    return all(judge.fits(item, schema) for item, schema in zip(value, own, strict=False))


def _contains(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    if not isinstance(value, list):
        return True
    n = sum(judge.fits(item, schema["contains"]) for item in value)
    least, most = _number(schema.get("minContains")), _number(schema.get("maxContains"))
    return n >= (1 if least is None else least) and (most is None or n <= most)


def _unique(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    if schema["uniqueItems"] is not True or not isinstance(value, list):
        return True
    return len(set(map(_key, value))) == len(value)


def _members(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    """Each member keeps to what is said of its name, or else of all others."""
    if not isinstance(value, Mapping):
        return True
    return all(judge.fits(inner, part) for name, inner in value.items() for part in of_member(schema, name))


def of_member(schema: ToolSchema, name: str) -> Sequence[object]:
    """The schemas that an object's schema has for a member, in its own words. If a pattern that is not understood may
    name the member, the schema for all others does not count.
    """
    own, patterns = schema.get("properties"), schema.get("patternProperties")
    schemas: list[Any] = [own[name]] if isinstance(own, Mapping) and name in own else []
    matches = {pattern: is_in(pattern, name) for pattern in patterns} if isinstance(patterns, Mapping) else {}
    schemas += [patterns[pattern] for pattern, does in matches.items() if does] if isinstance(patterns, Mapping) else []
    if schemas or None in matches.values():
        return schemas
    return [schema.get("additionalProperties", True)]


def _required(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return not isinstance(value, Mapping) or _has(value, schema["required"])


def _has(value: Mapping[str, object], names: object) -> bool:
    """Whether all these members are there."""
    return all(name in value for name in _listed_in(names) if isinstance(name, str))


def _names(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
    return not isinstance(value, Mapping) or all(judge.fits(name, schema["propertyNames"]) for name in value)


def _dependent(word: str) -> _Check:
    """A word that says what else holds where a member is there: other members, or a schema."""

    def check(judge: SchemaJudge, value: object, schema: ToolSchema) -> bool:
        needs = schema[word]
        if not isinstance(value, Mapping) or not isinstance(needs, Mapping):
            return True
        present = [need for name, need in needs.items() if name in value]
        return all(_has(value, need) if isinstance(need, list) else judge.fits(value, need) for need in present)

    return check


_TYPES = frozenset(("null", "boolean", "number", "integer", "string", "array", "object"))
_Check = Callable[[SchemaJudge, object, ToolSchema], bool]
_WORDS: Mapping[str, _Check] = {
    "$ref": _ref,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "minimum": _bound(lambda number, limit: number >= limit, "minimum", "exclusiveMinimum"),
    "maximum": _bound(lambda number, limit: number <= limit, "maximum", "exclusiveMaximum"),
    "exclusiveMinimum": _bound(lambda number, limit: number > limit, "exclusiveMinimum"),
    "exclusiveMaximum": _bound(lambda number, limit: number < limit, "exclusiveMaximum"),
    "multipleOf": _bound(_is_multiple, "multipleOf"),
    "minLength": _size(str, "minLength", lambda n, limit: n >= limit),
    "maxLength": _size(str, "maxLength", lambda n, limit: n <= limit),
    "pattern": _pattern,
    "items": _items,
    "prefixItems": _items,
    "minItems": _size(list, "minItems", lambda n, limit: n >= limit),
    "maxItems": _size(list, "maxItems", lambda n, limit: n <= limit),
    "uniqueItems": _unique,
    "contains": _contains,
    "properties": _members,
    "patternProperties": _members,
    "additionalProperties": _members,
    "required": _required,
    "propertyNames": _names,
    "minProperties": _size(Mapping, "minProperties", lambda n, limit: n >= limit),
    "maxProperties": _size(Mapping, "maxProperties", lambda n, limit: n <= limit),
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
    "dependencies": _dependent("dependencies"),
}
