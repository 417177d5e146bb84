"""How arguments are written one by one: in tags, as Python's keywords, in Gemma's braces. For grammars of calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from keyword import kwlist

from uad.calls.format import QUOTE, CallFormat, Tags
from uad.calls.parts import AnyRow, Argument, ArgumentList, FreeText, Json, Literal, NewName, OneOf, Part
from uad.calls.shapes import ArgumentShape, ValueKind, kinds_of, shapes_of
from uad.calls.tools import Schema, Tool, types_in

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


def arguments(format_: CallFormat, after: str, tool: Tool) -> Iterator[Part]:
    """What stands after a tool's name in the format's example, `after`, with the tool's own arguments in it."""
    tags = format_.tags or Tags(key="", key_end="=" if format_.body == "python" else ":", value_end="")
    first, last = after.index(f"{tags.key}word"), after.index(f"{tags.key}n")
    between = after[first:last].partition("tea")[2].removeprefix(_close(tags, "word"))
    gap = after[first:].partition(tags.key_end)[2].partition(tags.value)[0] if tags.value else ""
    closing = after[last:].partition("3")[2].removeprefix(_close(tags, "n"))
    writer = _ArgumentWriter(format_, tags, gap, tool, between if format_.tags else "")
    found = [writer.shape(shape) for shape in shapes_of(tool.parameters)]
    yield Literal(after[:first])
    yield found[0] if len(found) == 1 else AnyRow(tuple((one,) for one in found))
    yield Literal(closing.removeprefix(between) if format_.tags else closing)


def _close(tags: Tags, key: str) -> str:
    """What stands after a value."""
    return ("\n" if tags.lines else "") + tags.value_end.replace("{key}", key)


class _ArgumentWriter:
    """Writes the arguments of one tool. gap: what stands between a name and its value; behind: what stands after each
    argument.
    """

    def __init__(self, format_: CallFormat, tags: Tags, gap: str, tool: Tool, behind: str) -> None:
        self._format = format_
        self._tags = tags
        self._gap = gap
        self._root = tool.parameters
        self._behind = behind
        self._says_kind = bool(tags.text_ends or tags.json_ends)

    def shape(self, shape: ArgumentShape) -> ArgumentList:
        """All arguments of one shape. Names that a schema matches by pattern are not offered, nor are new ones beside
        them.
        """
        listed = [
            Argument(tuple(self._argument(name, schema)), name in shape.required)
            for name, schema in shape.properties.items()
        ]
        taken = (*shape.properties, *(kwlist if self._format.body == "python" else ()))
        is_open = shape.others is not None and not shape.patterns and "{key}" not in self._tags.value_end
        more = tuple(self._argument("", shape.others or {}, (NewName(taken),))) if is_open else ()
        between = {"python": ", ", "gemma": ","}.get(self._format.body, "")
        return ArgumentList(tuple(listed), between, more)

    def _argument(self, name: str, schema: Schema, named: tuple[Part, ...] = ()) -> Iterator[Part]:
        """One argument. named: its name, where that is not given."""
        yield from [Literal(self._tags.key)] if self._tags.key else []
        yield from named
        begun = "" if named else name if self._format.tags else _bare(name)
        rows: dict[str, list[tuple[Part, ...]]] = {}
        for end, parts in self._values(name, schema):
            rows.setdefault(end, []).append(parts)
        start = f"{self._gap}{self._tags.value}" + ("\n" if self._tags.lines else "")
        written = [(Literal(begun + end + start), *_one_of(values)) for end, values in rows.items()]
        yield from _one_of(written)
        yield from [Literal(self._behind)] if self._behind else []

    def _values(self, name: str, schema: Schema) -> Iterator[tuple[str, tuple[Part, ...]]]:
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
        never += (_regex(_CDATA) + "(?s:.*)",) if self._tags.cdata else ()
        if self._tags.nested and others:  # what has tags is read as a list or an object
            never += (f"(?s:.*){_regex(self._tags.nested)}(?s:.*)",)
            never += (r"\s*",) if _BRACKETS in never else ()  # and so is nothing, where it may be one
        for part in (part for text in texts for part in _text(text, close, without, never)):
            yield self._key_end(frozenset({"string"})), (part, Literal(close))
        for kind in others:
            if self._says_kind or kind.type in ("array", "object"):
                yield self._key_end(frozenset({kind.type})), self._json(kind.schema, close)
            elif regex := _scalars(kind):
                yield self._tags.key_end, (FreeText(close, without, must=(regex,)), Literal(close))

    def _json(self, schema: Schema, close: str) -> tuple[Part, ...]:
        return (Json(embedded(schema, self._root)), *([Literal(close)] if close else []))

    def _key_end(self, types: frozenset[str]) -> str:
        """What ends an argument's name, where it says what kind of value follows."""
        if types == {"string"} and self._tags.text_ends:
            return self._tags.text_ends[0]
        kinds = {"number" if kind == "integer" else kind for kind in types}
        ends = self._tags.json_ends
        return next((end for end in ends if any(f'"{kind}"' in end for kind in kinds)), (*ends, self._tags.key_end)[0])


def _one_of(rows: list[tuple[Part, ...]]) -> tuple[Part, ...]:
    return rows[0] if len(rows) == 1 else (AnyRow(tuple(rows)),)


def _bare(name: str) -> str:
    """A name without quotation marks, where that can be read."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _text(kind: ValueKind, until: str, without: str, never: tuple[str, ...] = ()) -> Iterator[Part]:
    """A string of this kind, up to what ends it; nothing where none can be written."""
    if kind.values is None:
        yield FreeText(until, without, tuple(_conditions(kind.schema)), never)
        return
    listed = [text for text in map(str, kind.values) if without not in text]
    texts = [text for text in listed if not any(re.fullmatch(regex, text) for regex in never)]
    if texts:
        yield FreeText(until, without, ("|".join(map(_regex, texts)),)) if never else OneOf(tuple(texts))


def _regex(text: str) -> str:
    return re.escape(text).replace("/", "\\/").replace("\n", "n")


def _conditions(schema: Schema) -> Iterator[str]:
    """Regular expressions for the length and the pattern of a text. A pattern that needs more than they can is left
    out.
    """
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    if low or high is not None:
        yield f"(?s:.{{{low},{'' if high is None else high}}})"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (regex := _whole_match(pattern)):
        yield regex


def _whole_match(pattern: str) -> str:
    """A regular expression for the whole of each text in which a pattern is found; empty where it has what llguidance's
    expressions do not know: anchors but at its ends, looking around, references back.
    """
    tokens = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:|.", pattern, re.DOTALL)
    begins, ends = tokens[:1] == ["^"], tokens[-1:] == ["$"]
    inner = tokens[begins : len(tokens) - ends]
    depth = 0
    for token, following in zip(inner, [*inner[1:], ""], strict=False):
        depth += (token in ("(", "(?:")) - (token == ")")
        is_open = token == "|" and not depth and (begins or ends)
        if token in ("^", "$") or is_open or (token == "(" and following == "?") or re.match(r"\\[1-9bBk]", token):
            return ""
    try:
        re.compile("".join(inner))
    except re.error:
        return ""
    text = "".join(token if token[0] == "\\" else token.replace("/", "\\/") for token in inner)
    return f"{'' if begins else '(?s:.*)'}(?:{text}){'' if ends else '(?s:.*)'}"


def _read_as_others(kinds: list[ValueKind]) -> tuple[str, ...]:
    """Texts that are read as values of another kind, which these kinds do not allow, or write otherwise."""
    found: list[str] = []
    for kind in kinds:
        is_narrow = bool(kind.schema.keys() & _NARROWING)
        if kind.type in ("array", "object"):
            found.append(_BRACKETS)
        elif kind.type in _CONSTANTS:
            found += [_CONSTANTS[kind.type]] if is_narrow and kind.type != "null" else []
        elif is_narrow:
            found += [_FRACTIONS, _EXPONENTS, _WHOLE]
        elif kind.type == "integer" and all(one.type != "number" for one in kinds):
            found += [_FRACTIONS, _EXPONENTS]
    return tuple(dict.fromkeys(found))


def _scalars(kind: ValueKind) -> str:
    """A regular expression for the values of a kind; empty where bounds of numbers would make it long."""
    if kind.values is not None:
        return "|".join(_regex(json.dumps(value)) for value in kind.values)
    return "" if kind.schema.keys() & _NARROWING else _SCALARS[kind.type]


def embedded(schema: Schema, root: Schema) -> Schema:
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
        return [_moved(one) for one in value]
    if not isinstance(value, dict):
        return value
    ref = value.get("$ref")
    moved = {name: _moved(one) for name, one in value.items()}
    return moved | {"$ref": f"#/$defs/root{ref[1:]}"} if isinstance(ref, str) and ref.startswith("#") else moved
