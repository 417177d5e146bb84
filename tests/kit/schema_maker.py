"""Random JSON schemas of the kinds that people send: nested, with optional members, choices, references, bounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

Schema = dict[str, object]
_NAMES = ("id", "name", "kind", "tags", "parent", "a-b", "größe", "x y", "value_1", "$ref_like", "é", 'quo"te')
_ARGUMENTS = ("id", "name", "from", "a-b", "größe", "n", "value_1", "class", "None", "path.to")
_PATTERNS = ("^[a-z]{2,5}$", "^[A-Z][a-z]+$", r"^\d{3}-\d{4}$", "^(foo|bar)[0-9]?$", r"^[^\s]{1,4}$", "b+")
_FORMATS = ("date", "uuid", "ipv4", "email")
# times have leap seconds, which the judge does not know
_WORDS = ("red", "green", "blue", 'say "hi"', "日本", "a\nb", "")


def make(rng: random.Random) -> Schema:
    """An object's schema; now and then with definitions that refer to themselves."""
    definitions: Schema = {}
    if rng.random() < 0.3:
        definitions["node"] = _closed(
            {"value": _leaf(rng), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}
        )
    if rng.random() < 0.3:
        definitions["shared"] = _leaf(rng)
    top = _object(rng, 3, list(definitions))
    return {**top, "$defs": definitions} if definitions else top


def _any(rng: random.Random, depth: int, definitions: list[str]) -> Schema:
    makers: list[Callable[[], Schema]] = [lambda: _leaf(rng)] * 3
    if depth:
        makers += [lambda: _object(rng, depth - 1, definitions)] * 2
        makers += [lambda: _array(rng, depth - 1, definitions), lambda: _choice(rng, depth - 1, definitions)]
    if definitions:
        makers.append(lambda: {"$ref": f"#/$defs/{rng.choice(definitions)}"})
    return rng.choice(makers)()


def _object(rng: random.Random, depth: int, definitions: list[str]) -> Schema:
    names = rng.sample(_NAMES, rng.randint(1, 5))
    schema: Schema = {"type": "object", "properties": {name: _any(rng, depth, definitions) for name in names}}
    schema["required"] = [name for name in names if rng.random() < 0.7]
    match rng.randrange(4):
        case 0:
            schema["additionalProperties"] = _leaf(rng)
        case 1:
            schema |= {"patternProperties": {"^p_": _leaf(rng)}, "additionalProperties": False}
        case _:
            schema["additionalProperties"] = False
    return schema | ({"title": "A thing", "description": "said in words"} if rng.random() < 0.2 else {})


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _array(rng: random.Random, depth: int, definitions: list[str]) -> Schema:
    low = rng.randint(0, 2)
    schema: Schema = {
        "type": "array",
        "items": _any(rng, depth, definitions),
        "minItems": low,
        "maxItems": low + rng.randint(0, 3),
    }
    if rng.random() < 0.2:
        schema = {"type": "array", "prefixItems": [_leaf(rng), _leaf(rng)], "items": False, "minItems": 2}
    return schema


def _choice(rng: random.Random, depth: int, definitions: list[str]) -> Schema:
    match rng.randrange(4):
        case 0:
            return {"anyOf": [_any(rng, depth, definitions) for _ in range(rng.randint(2, 3))]}
        case 1:
            return {
                "oneOf": [_closed({"type": {"const": name}, "value": _leaf(rng)}) for name in ("cat", "dog", "fish")]
            }
        case 2:
            first, second = {"a": _leaf(rng)}, {"b": _leaf(rng)}
            parts = [{"type": "object", "properties": part, "required": list(part)} for part in (first, second)]
            return {"allOf": parts}
        case _:
            return {"type": rng.sample(["string", "number", "boolean", "null", "integer"], 2)}


def _leaf(rng: random.Random) -> Schema:
    makers: tuple[Callable[[], Schema], ...] = (
        lambda: {"type": "string"},
        lambda: {"type": "string", "minLength": (low := rng.randint(0, 3)), "maxLength": low + rng.randint(0, 9)},
        lambda: {"type": "string", "pattern": rng.choice(_PATTERNS)},
        lambda: {"type": "string", "format": rng.choice(_FORMATS)},
        lambda: {
            "type": "integer",
            "minimum": (low := rng.randint(-1000, 1000)),
            "maximum": low + rng.randint(0, 5000),
        },
        lambda: {"type": "integer", "exclusiveMinimum": rng.randint(-9, 9)},
        lambda: {"type": "number", "minimum": (low := rng.randint(-9, 9)), "maximum": low + rng.randint(1, 100) / 4},
        lambda: {"type": "integer", "multipleOf": rng.choice((2, 5, 10))},
        lambda: {"type": "number"},
        lambda: {"type": "boolean"},
        lambda: {"type": "null"},
        lambda: {"enum": rng.sample(_WORDS, 3)},
        lambda: {"enum": [1, "one", None, True, [1, {"a": 2}]]},
        lambda: {"const": rng.choice((*_WORDS, 3, -0.5, None, {"x": [1]}))},
        dict,
    )
    return rng.choice(makers)()


def make_parameters(rng: random.Random) -> Schema:
    """The schema of a tool's arguments, in the ways in which people and their libraries write it."""
    kind = rng.randrange(8)
    if kind == 0:
        empty: tuple[Schema, ...] = ({}, {"type": "object"}, _closed({}))
        return rng.choice(empty)
    if kind == 1:
        one = _arguments(rng)
        definitions = one.pop("$defs", {})
        return {"$ref": "#/$defs/Input", "$defs": {"Input": one, **definitions}}  # type: ignore[dict-item]
    if kind == 2:
        parts = [_named(rng, names) for names in (("id", "from"), ("name", "a-b"))]
        return {"type": "object", "allOf": parts}
    if kind == 3:
        return {"anyOf": [_closed({"kind": {"const": word}, word: _value(rng)}) for word in ("cat", "dog", "fish")]}
    if kind == 4:
        return {"type": "object", "additionalProperties": _value(rng)}
    if kind == 5:
        return _named(rng, ("id", "name", "from")) | {"additionalProperties": _value(rng)}
    return _arguments(rng)


def _arguments(rng: random.Random) -> Schema:
    """Members with all kinds of values; some of them as references."""
    names = rng.sample(_ARGUMENTS, rng.randint(1, 5))
    own = _named(rng, names) | ({"additionalProperties": False} if rng.random() < 0.5 else {})
    if rng.random() < 0.3:
        properties = own["properties"]
        assert isinstance(properties, dict)
        properties["shared"] = rng.choice(({"$ref": "#/$defs/shared"}, {"anyOf": [{"$ref": "#/$defs/shared"}]}))
        own["$defs"] = {"shared": _value(rng)}
    return own


def _named(rng: random.Random, names: Sequence[str]) -> Schema:
    return {
        "type": "object",
        "properties": {name: _value(rng) for name in names},
        "required": [name for name in names if rng.random() < 0.5],
    }


def _value(rng: random.Random) -> Schema:
    """Of one argument: also texts that may be something else."""
    text = rng.choice(
        ({"type": "string"}, {"type": "string", "minLength": 2, "maxLength": 9}, {"enum": ["5", "null", ""]})
    )
    makers: tuple[Callable[[], Schema], ...] = (
        lambda: {"type": "string"},
        lambda: {"type": ["string", "null"]},
        lambda: {"anyOf": [text, {"type": "null"}], "default": None},
        lambda: {"anyOf": [text, _leaf(rng)]},
        lambda: {"type": ["string", rng.choice(("integer", "number", "boolean"))]},
        lambda: {"anyOf": [{"type": "string"}, {"type": "array", "items": _leaf(rng)}]},
        lambda: {"allOf": [{"type": "string"}, {"minLength": 1}]},
        lambda: _leaf(rng),
        lambda: _object(rng, 1, []),
        lambda: _array(rng, 1, []),
    )
    return rng.choice(makers)()
