"""How arguments are written one by one: in tags, as Python's keywords, in Gemma's braces. For grammars of calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from keyword import kwlist
from typing import Any

from uad.base.errors import InvalidRequestError
from uad.text.calls.format import QUOTE, CallFormat, Tags
from uad.text.calls.judge import fits
from uad.text.calls.lark import (
    AnyRow,
    Argument,
    ArgumentList,
    FreeText,
    GrammarPart,
    JsonValue,
    Literal,
    NewName,
    OneOf,
    slashed,
)
from uad.text.calls.tools import Tool, ToolSchema, listed, resolved, type_of, types_in
from uad.text.grammar.patterns import FORMATS, whole_match

_CDATA = "<![CDATA["
_PLAIN_NAME = re.compile(r"[^\s=,:(){}\[\]\"'<>]{1,256}")
_FRACTIONS = r"\s*[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9_]+)?\s*"
_EXPONENTS = r"\s*[-+]?[0-9][0-9_]*[eE][-+]?[0-9_]+\s*"
_WHOLE = r"\s*[-+]?(?:0[xXoObB])?[0-9][0-9a-fA-F_]*\s*"
_BRACKETS = r"\s*[\[{](?s:.*)"
_CONSTANTS = {"boolean": r"\s*(?:true|false|True|False)\s*", "null": r"\s*(?:null|None)\s*"}
_SCALARS = {
    "null": "null",
    "boolean": "true|false",
    "integer": "-?(?:0|[1-9][0-9]*)",
    "number": r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?",
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength")
_NARROWING = frozenset((*_BOUNDS, "enum", "const", "pattern", "format"))
MAX_SHAPES = 64
MAX_DEPTH = 16
_UNREAD = (
    *("not", "if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "minProperties"),
    *("maxProperties", "enum", "const", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
)
_CHOICES = ("anyOf", "oneOf")
_SAY_NOTHING = ("$defs", "definitions", "$schema", "$id")
_NOTES = ("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment")


def arguments(format_: CallFormat, after: str, tool: Tool) -> Iterator[GrammarPart]:
    """The parts after a tool's name in the format's example, `after`, with the tool's own arguments in it."""
    tags = format_.tags or Tags(key="", key_end="=" if format_.body == "python" else ":", value_end="")
    first, last = after.index(f"{tags.key}word"), after.index(f"{tags.key}n")
    between = after[first:last].partition("tea")[2].removeprefix(_close(tags, "word"))
    gap = after[first:].partition(tags.key_end)[2].partition(tags.value)[0] if tags.value else ""
    closing = after[last:].partition("3")[2].removeprefix(_close(tags, "n"))
    writer = _ArgumentWriter(format_, tags, gap, tool, between if format_.tags else "")
    rows = [writer.shape(shape) for shape in shapes_of(tool.parameters)]
    yield Literal(after[:first])
    yield rows[0] if len(rows) == 1 else AnyRow(tuple((row,) for row in rows))
    yield Literal(closing.removeprefix(between) if format_.tags else closing)


def _close(tags: Tags, key: str) -> str:
    """The text after a value."""
    return ("\n" if tags.lines else "") + tags.value_end.replace("{key}", key)


class _ArgumentWriter:
    """Writes the arguments of one tool. gap: what stands between a name and its value; after: what stands after each
    argument.
    """

    def __init__(self, format_: CallFormat, tags: Tags, gap: str, tool: Tool, after: str) -> None:
        self._format = format_
        self._tags = tags
        self._gap = gap
        self._root = tool.parameters
        self._after = after
        self._says_kind = bool(tags.text_ends or tags.json_ends)

    def shape(self, shape: ArgumentShape) -> ArgumentList:
        """All arguments of one shape. Names that a schema matches by pattern are not offered, nor are new ones beside
        them.
        """
        named = [
            Argument(tuple(self._argument(name, schema)), name in shape.required)
            for name, schema in shape.properties.items()
        ]
        taken = (*shape.properties, *(kwlist if self._format.body == "python" else ()))
        is_open = shape.others is not None and not shape.patterns and "{key}" not in self._tags.value_end
        more = tuple(self._argument("", shape.others or {}, (NewName(taken),))) if is_open else ()
        between = {"python": ", ", "gemma": ","}.get(self._format.body, "")
        return ArgumentList(tuple(named), between, more)

    def _argument(self, name: str, schema: ToolSchema, named: tuple[GrammarPart, ...] = ()) -> Iterator[GrammarPart]:
        """One argument. named: its name, where that is not given."""
        yield from [Literal(self._tags.key)] if self._tags.key else []
        yield from named
        is_bare = self._format.tags is not None or _PLAIN_NAME.fullmatch(name)
        begun = "" if named else name if is_bare else json.dumps(name, ensure_ascii=False)
        rows: dict[str, list[tuple[GrammarPart, ...]]] = {}
        for end, parts in self._values(name, schema):
            rows.setdefault(end, []).append(parts)
        start = f"{self._gap}{self._tags.value}" + ("\n" if self._tags.lines else "")
        written = [(Literal(begun + end + start), *_one_of(values)) for end, values in rows.items()]
        yield from _one_of(written)
        yield from [Literal(self._after)] if self._after else []

    def _values(self, name: str, schema: ToolSchema) -> Iterator[tuple[str, tuple[GrammarPart, ...]]]:
        """The ways to write a value, each with what ends the name before it."""
        kinds = kinds_of(schema, self._root)
        texts = [kind for kind in kinds or () if kind.type == "string"]
        others = [kind for kind in kinds or () if kind.type != "string"]
        close = _close(self._tags, name)
        if self._format.body == "python" or kinds is None or not texts:
            groups = [[kind] for kind in others] if self._says_kind and kinds else [others]
            for group in groups:
                own = schema if len(groups) == 1 else group[0].schema
                types = frozenset(kind.type for kind in group) or types_in(schema, self._root)
                yield self._key_end(types), self._json(own, close)
            return
        if self._format.body == "gemma":
            for part in (part for text in texts for part in _text(text, QUOTE, QUOTE)):
                yield self._tags.key_end, (Literal(QUOTE), part, Literal(QUOTE))
            if others:
                yield self._tags.key_end, self._json({"anyOf": [kind.schema for kind in others]}, close)
            return
        without = close.removeprefix("\n") if self._tags.lines else close
        never = _read_as_others(others) if not self._says_kind else ()
        never += (slashed(_CDATA) + "(?s:.*)",) if self._tags.cdata else ()
        if self._tags.nested and others:  # what has tags is read as a list or an object
            never += (f"(?s:.*){slashed(self._tags.nested)}(?s:.*)",)
            never += (r"\s*",) if _BRACKETS in never else ()  # and so is nothing, where it may be one
        for part in (part for text in texts for part in _text(text, close, without, never)):
            yield self._key_end(frozenset({"string"})), (part, Literal(close))
        for kind in others:
            if self._says_kind or kind.type in ("array", "object"):
                yield self._key_end(frozenset({kind.type})), self._json(kind.schema, close)
            elif regex := _scalars(kind):
                yield self._tags.key_end, (FreeText(close, without, must=(regex,)), Literal(close))

    def _json(self, schema: ToolSchema, close: str) -> tuple[GrammarPart, ...]:
        return (JsonValue(embedded(schema, self._root)), *([Literal(close)] if close else []))

    def _key_end(self, types: frozenset[str]) -> str:
        """The text that ends an argument's name, where it says what kind of value follows."""
        if types == {"string"} and self._tags.text_ends:
            return self._tags.text_ends[0]
        kinds = {"number" if kind == "integer" else kind for kind in types}
        ends = self._tags.json_ends
        return next((end for end in ends if any(f'"{kind}"' in end for kind in kinds)), (*ends, self._tags.key_end)[0])


def _one_of(rows: list[tuple[GrammarPart, ...]]) -> tuple[GrammarPart, ...]:
    return rows[0] if len(rows) == 1 else (AnyRow(tuple(rows)),)


def _text(kind: ValueKind, until: str, without: str, never: tuple[str, ...] = ()) -> Iterator[GrammarPart]:
    """A string of this kind, up to what ends it; nothing where none can be written."""
    must = tuple(_conditions(kind.schema))
    if kind.values is None:
        yield FreeText(until, without, must, never)
        return
    fitting = [text for text in map(str, kind.values) if all(re.fullmatch(regex, text) for regex in must)]
    writable = [text for text in fitting if without not in text]
    texts = [text for text in writable if not any(re.fullmatch(regex, text) for regex in never)]
    if texts:
        yield FreeText(until, without, ("|".join(map(slashed, texts)),)) if never else OneOf(tuple(texts))


def _conditions(schema: ToolSchema) -> Iterator[str]:
    """Regular expressions for the length, the pattern and the format of a text. A pattern that needs more than they
    can is left out; a request with one is refused.
    """
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    if low or high is not None:
        yield f"(?s:.{{{low},{'' if high is None else high}}})"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (regex := whole_match(pattern)):
        yield regex
    if schema.get("format") in FORMATS:
        yield FORMATS[schema["format"]]


def _read_as_others(kinds: list[ValueKind]) -> tuple[str, ...]:
    """Texts that are read as values of another kind, which these kinds do not allow, or write otherwise."""
    names: list[str] = []
    for kind in kinds:
        is_narrow = bool(kind.schema.keys() & _NARROWING)
        if kind.type in ("array", "object"):
            names.append(_BRACKETS)
        elif kind.type in _CONSTANTS:
            names += [_CONSTANTS[kind.type]] if is_narrow and kind.type != "null" else []
        elif is_narrow:
            names += [_FRACTIONS, _EXPONENTS, _WHOLE]
        elif kind.type == "integer" and all(kind.type != "number" for kind in kinds):
            names += [_FRACTIONS, _EXPONENTS]
    return tuple(dict.fromkeys(names))


def _scalars(kind: ValueKind) -> str:
    """A regular expression for the values of a kind; empty where bounds of numbers would make it long."""
    if kind.values is not None:
        return "|".join(slashed(json.dumps(value)) for value in kind.values)
    return "" if kind.schema.keys() & _NARROWING else _SCALARS[kind.type]


def embedded(schema: ToolSchema, root: ToolSchema) -> ToolSchema:
    """A part of a schema that stands alone: references into the whole lead into a copy of it."""
    if schema is root or not _refers(schema):
        return schema
    own = _moved(schema)
    return {**(own if isinstance(own, dict) else {}), "$defs": {"root": _moved(root)}}


def _refers(value: object) -> bool:
    if isinstance(value, dict):
        return "$ref" in value or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _moved(value: object) -> object:
    if isinstance(value, list):
        return [_moved(item) for item in value]
    if not isinstance(value, dict):
        return value
    ref = value.get("$ref")
    moved = {name: _moved(item) for name, item in value.items()}
    return moved | {"$ref": f"#/$defs/root{ref[1:]}"} if isinstance(ref, str) and ref.startswith("#") else moved


@dataclass(frozen=True)
class ArgumentShape:
    """One way to write arguments. properties: those that are named, by name, in order; required: names among them that
    must be there. others: what every other argument may be; None: there are no others. patterns: schemas by what names
    match.
    """

    properties: Mapping[str, ToolSchema] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    others: ToolSchema | None = None
    is_closed: bool = False
    patterns: Mapping[str, ToolSchema] = field(default_factory=dict)


def shapes_of(parameters: ToolSchema) -> tuple[ArgumentShape, ...]:
    """The ways in which a schema allows arguments. Raises InvalidRequestError where it is not understood, or allows
    none.
    """
    shapes = tuple(filter(None, map(_completed, _shapes(parameters, parameters, 0))))
    if not shapes:
        raise InvalidRequestError("the schema allows no arguments, not even none")
    return shapes


def _shapes(schema: ToolSchema, root: ToolSchema, depth: int) -> list[ArgumentShape]:
    if depth > MAX_DEPTH:
        raise InvalidRequestError("the schema of the arguments refers to itself, or is nested too deeply")
    unread = [word for word in _UNREAD if word in schema]
    if unread:
        raise InvalidRequestError(
            f"Unimplemented keys: {unread} of the arguments; leave them out, or send tool_choice auto"
        )
    if "object" not in listed(schema.get("type", "object")):
        raise InvalidRequestError("arguments are an object, so the schema must have the type object")
    shapes = [_own(schema)]
    for word, parts in _factors(schema, root):
        if word == "$ref" and not parts[0]:
            raise InvalidRequestError(f"$ref {str(schema['$ref'])[:64]!r} refers to itself, or to nothing")
        if word in _CHOICES:
            parts = [part for part in parts if "object" in listed(resolved(part, root).get("type", "object"))]
        shapes = _both(shapes, [shape for part in parts for shape in _shapes(part, root, depth + 1)])
    return shapes


def _factors(schema: ToolSchema, root: ToolSchema) -> Iterator[tuple[str, list[ToolSchema]]]:
    """The conditions that hold together with a schema's own words: by the word that says so, schemas of which one
    holds.
    """
    # {"$ref": A, "allOf": [B, C], "anyOf": [D, E]} is A and B and C and (D or E): [A], [B], [C], [D, E]. The product of
    # these lists has every way to keep to the schema: A B C D, and A B C E.
    if "$ref" in schema:
        yield "$ref", [resolved({"$ref": schema["$ref"]}, root)]
    for part in _schemas(schema.get("allOf")):
        yield "allOf", [part]
    for word in _CHOICES:
        if parts := _schemas(schema.get(word)):
            yield word, parts


def _own(schema: ToolSchema) -> ArgumentShape:
    """The shape that a schema's own words describe."""
    named, required, others = schema.get("properties"), schema.get("required"), schema.get("additionalProperties")
    patterns = schema.get("patternProperties")
    return ArgumentShape(
        {name: _as_schema(schema) for name, schema in named.items()} if isinstance(named, Mapping) else {},
        frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset(),
        {} if others is True else others if isinstance(others, Mapping) else None,
        others is False,
        {name: _as_schema(schema) for name, schema in patterns.items()} if isinstance(patterns, Mapping) else {},
    )


def _as_schema(value: object) -> ToolSchema:
    """A schema; `false` allows nothing."""
    return value if isinstance(value, Mapping) else {} if value is True else {"enum": []}


def _schemas(value: object) -> list[ToolSchema]:
    return [_as_schema(schema) for schema in value if schema is not True] if isinstance(value, list) else []


def _both(shapes: list[ArgumentShape], other: list[ArgumentShape]) -> list[ArgumentShape]:
    if len(shapes) * len(other) > MAX_SHAPES:
        raise InvalidRequestError(f"the schema of the arguments has more than {MAX_SHAPES} alternatives")
    return [_joined(first, second) for first in shapes for second in other]


def _joined(shape: ArgumentShape, other: ArgumentShape) -> ArgumentShape:
    """The shape that both allow. An argument that only one of them names is among the others of the second."""
    names = dict.fromkeys((*shape.properties, *other.properties))
    properties = {name: _all_of(_of(shape, name), _of(other, name)) for name in names}
    is_closed = shape.is_closed or other.is_closed
    both = [others for others in (shape.others, other.others) if others is not None]
    return ArgumentShape(
        properties,
        shape.required | other.required,
        None if is_closed or not both else reduce(_all_of, both),
        is_closed,
        {**shape.patterns, **other.patterns},
    )


def _of(shape: ArgumentShape, name: str) -> ToolSchema:
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


def _all_of(schema: ToolSchema, other: ToolSchema) -> ToolSchema:
    return other if not schema or schema == other else schema if not other else {"allOf": [schema, other]}


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
    return replace(shape, properties={name: kept for name, kept in known.items() if name not in empty}, others=others)


def _is_empty(schema: ToolSchema) -> bool:
    return schema.get("enum") == [] or any(map(_is_empty, _schemas(schema.get("allOf"))))


@dataclass(frozen=True)
class ValueKind:
    """Values of one JSON type: its name, and the words of the schema that are about it, without those that say nothing.
    `values` are those that are listed; None: they are not.
    """

    type: str
    schema: ToolSchema
    values: Sequence[object] | None = None


def kinds_of(schema: ToolSchema, root: ToolSchema) -> list[ValueKind] | None:
    """The kinds of values that a schema allows; None where it allows any, or its words are not understood."""
    parts = _parts(schema, root, 0)
    if parts is None:
        return None
    kinds: list[ValueKind] = []
    for part in parts:
        own = list(_own_kinds(part, root))
        if not own:
            return None
        kinds += own
    return kinds


def _own_kinds(schema: ToolSchema, root: ToolSchema) -> Iterator[ValueKind]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    named = [kind for kind in listed(schema.get("type")) if isinstance(kind, str)]
    if not schema.keys() - set(_SAY_NOTHING):
        named = ["string", "number", "boolean", "null", "object", "array"]
    if isinstance(values, list):
        for kind in dict.fromkeys(map(type_of, values)):
            fitting = [value for value in values if type_of(value) == kind and fits(value, schema, root)]
            if fitting:
                note = {"format": schema["format"]} if kind == "string" and "format" in schema else {}
                yield ValueKind(kind, {"enum": fitting, **note}, fitting)
        return
    for kind in named:
        yield ValueKind(kind, {**{name: value for name, value in schema.items() if name not in _NOTES}, "type": kind})


def _parts(schema: ToolSchema, root: ToolSchema, depth: int) -> list[dict[str, Any]] | None:
    """A schema without references and choices: one of these holds. None where its words do not go together."""
    if depth > MAX_DEPTH:
        return None
    parts: list[dict[str, Any]] | None = [
        {name: value for name, value in schema.items() if name not in ("$ref", "allOf", *_CHOICES, *_NOTES)}
    ]
    for _, schemas in _factors(schema, root):
        ways = [_parts(schema, root, depth + 1) for schema in schemas]
        parts = _product(parts, None if None in ways else [part for way in ways if way is not None for part in way])
    return parts


def _product(parts: list[dict[str, Any]] | None, other: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if parts is None or other is None or len(parts) * len(other) > MAX_SHAPES:
        return None
    product: list[dict[str, Any]] = []
    for first in parts:
        for second in other:
            joined = {**first, **second}
            clashes = {name for name in first.keys() & second.keys() if first[name] != second[name]}
            if clashes - {"type"}:
                return None
            if "type" in clashes:
                joined["type"] = _common(first["type"], second["type"])
            product += [joined] if joined.get("type") != [] else []
    return product


def _common(values: object, other: object) -> list[object]:
    """The types that both allow."""
    first, second = listed(values), listed(other)
    both = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    return both + [kind for kind in second if kind == "integer" and "number" in first and kind not in both]
