"""What a grammar must allow where an answer has to call a tool: a format's own text around names and arguments. Knows no grammar engine.

The text comes from the format's example, in which the tool's name, its arguments and the call's id are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from uad.calls.format import QUOTE, CallFormat, Tags
from uad.calls.tools import Calls, Schema, Tool, resolved, types_in
from uad.errors import MappingError

_NAME = "look_up"
_ID = "a1b2c3d4e"
_IDS = "[a-zA-Z0-9]{9}"


@dataclass(frozen=True)
class Literal:
    """Exactly this text."""

    text: str


@dataclass(frozen=True)
class Pattern:
    """A text that a regular expression matches."""

    regex: str


@dataclass(frozen=True)
class Json:
    """A JSON value that a schema allows."""

    schema: Schema


@dataclass(frozen=True)
class Text:
    """Any text up to this one, which follows it."""

    until: str


@dataclass(frozen=True)
class Maybe:
    """These parts, or nothing."""

    parts: tuple[Part, ...]


Part = Literal | Pattern | Json | Text | Maybe


@dataclass(frozen=True)
class CallShape:
    """How a call of one tool is written."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Constraint:
    """`begin`, one of `calls`, more of them behind `between` each if `many`, and `finish`.

    `trigger` is the text with which calls begin. Where none is required, or thoughts come before, the grammar holds from its first
    letter on.
    """

    begin: str
    calls: tuple[CallShape, ...]
    between: str
    finish: str
    many: bool
    required: bool
    trigger: str

    def lark(self, special: Callable[[str], str | None] = lambda name: None) -> str:
        """As a grammar in llguidance's dialect of Lark. `special` gives the notation of a name that is one token, None for letters."""
        return _Lark(self, special).text()


def constraint_of(format_: CallFormat, calls: Calls) -> Constraint | None:
    """What calls of these tools look like in a format; None where an answer may hold none."""
    tools = calls.allowed()
    if not tools:
        return None
    begin, call, finish = _cut(format_, format_.example.strip())
    opener = format_.begin or format_.start or call.split(_NAME, 1)[0]
    return Constraint(
        begin=begin,
        calls=tuple(CallShape(tool.name, tuple(_parts(format_, call, tool))) for tool in tools),
        between=", " if format_.body in ("list", "python") else "\n" if "\n" in call else "",
        finish=finish,
        many=calls.parallel,
        required=calls.are_required,
        trigger=opener,
    )


def _cut(format_: CallFormat, text: str) -> tuple[str, str, str]:
    """An example as what stands before its call, the call, and what stands behind it."""
    if format_.body in ("list", "python"):
        start, end = _list_of(format_, text)
    else:
        start = text.index(format_.start) if format_.start else 0 if format_.channels else text.index("{")
        end = text.rindex(format_.end) + len(format_.end) if format_.end else _json_end(text)
    return text[:start], text[start:end], text[end:]


def _list_of(format_: CallFormat, text: str) -> tuple[int, int]:
    opener = text.index("[", text.index(format_.begin) + len(format_.begin)) if format_.begin else text.index("[")
    start = opener + 1 + len(re.match(r"\s*", text[opener + 1 :])[0])  # type: ignore[index]
    end = text.rindex("]")
    return start, len(text[:end].rstrip())


def _json_end(text: str) -> int:
    return text.rindex("}") + 1


def _parts(format_: CallFormat, call: str, tool: Tool) -> Iterator[Part]:
    before, after = call.split(_NAME, 1)
    yield from _around_id(before)
    yield Literal(tool.name)
    if format_.body in ("tagged", "python", "gemma"):
        yield from _arguments(format_, after, tool)
        return
    found = re.search(r"\{\s*\"word\": \"tea\",\s*\"n\": 3\s*\}", after)
    if found is None:
        raise MappingError(f'calls {format_.name}: the example lacks the arguments {{"word": "tea", "n": 3}}')
    yield from _around_id(after[: found.start()])
    yield Json({"type": "object", **tool.parameters})
    yield from _around_id(after[found.end() :])


def _around_id(text: str) -> Iterator[Part]:
    """Literals and what ids may be: of nine letters and digits, or a number behind the name."""
    for piece in re.split(f'({_ID}|(?<=:)0(?=<)|(?<=_id": ")0)', text):
        if piece == _ID:
            yield Pattern(_IDS)
        elif piece == "0":
            yield Pattern("[0-9]+")
        elif piece:
            yield Literal(piece)


def _arguments(format_: CallFormat, after: str, tool: Tool) -> Iterator[Part]:
    """Arguments one by one in the order of the schema; in tags, those that are not required may be missing."""
    tags = format_.tags or Tags(key="", key_end="=" if format_.body == "python" else ":")
    first, last = after.index(f"{tags.key}word"), after.index(f"{tags.key}n")
    yield Literal(after[:first])
    between = after[first:last].partition("tea")[2].removeprefix(_close(tags, "word"))
    gap = after[first:].partition(tags.key_end)[2].partition(tags.value)[0] if tags.value else ""
    required = tool.parameters.get("required", [])
    properties = resolved(tool.parameters, tool.parameters).get("properties", {})
    for n, (key, schema) in enumerate(properties.items() if isinstance(properties, Mapping) else ()):
        parts = tuple(_argument(format_, tags, gap, key, schema if isinstance(schema, Mapping) else {}, tool))
        if format_.tags is None:
            yield from (Literal(", " if format_.body == "python" else ","), *parts) if n else parts
            continue
        parts = (*parts, Literal(between)) if between else parts
        yield from parts if key in required else (Maybe(parts),)
    closing = after[last:].partition("3")[2].removeprefix(_close(tags, "n"))
    yield Literal(closing.removeprefix(between) if format_.tags else closing)


def _close(tags: Tags, key: str) -> str:
    """What stands behind a value."""
    return ("\n" if tags.lines else "") + tags.value_end.replace("{key}", key)


def _argument(format_: CallFormat, tags: Tags, gap: str, key: str, schema: Schema, tool: Tool) -> Iterator[Part]:
    types = types_in(schema, tool.parameters)
    is_text = types == {"string"} and "enum" not in schema and "const" not in schema
    yield Literal(f"{tags.key}{key}{_key_end(tags, types)}{gap}{tags.value}" + ("\n" if tags.lines else ""))
    close = _close(tags, key)
    if is_text and format_.body == "gemma":
        yield from (Literal(QUOTE), Text(QUOTE), Literal(QUOTE))
    elif is_text and format_.tags is not None:
        yield from (Text(close), Literal(close))
    else:
        yield Json({**schema, **{name: tool.parameters[name] for name in ("$defs", "definitions") if name in tool.parameters}})
        yield from [Literal(close)] if close else []


def _key_end(tags: Tags, types: frozenset[str]) -> str:
    """What ends an argument's name, where it says what kind of value follows."""
    if types == {"string"} and tags.text_ends:
        return tags.text_ends[0]
    kinds = {"number" if kind == "integer" else kind for kind in types}
    return next((end for end in tags.json_ends if any(f'"{kind}"' in end for kind in kinds)), (*tags.json_ends, tags.key_end)[0])


class _Lark:
    """Writes a constraint rule by rule."""

    def __init__(self, constraint: Constraint, special: Callable[[str], str | None]) -> None:
        self._constraint = constraint
        self._special = special
        self._rules: list[str] = []

    def text(self) -> str:
        found = self._constraint
        names = [self._call(n, call) for n, call in enumerate(found.calls)]
        more = f" ({self._literal(found.between)} call)*" if found.many and found.between else " call*" if found.many else ""
        start = f"start: {self._literal(found.begin)} call{more} {self._literal(found.finish)}"
        return "\n".join([start, f"call: {' | '.join(names)}", *self._rules, ""])

    def _call(self, number: int, call: CallShape) -> str:
        name = f"call_{number}"
        self._rules.append(f"{name}: {self._sequence(call.parts, name)}")
        return name

    def _sequence(self, parts: tuple[Part, ...], name: str) -> str:
        """Parts in a row. A rule with a suffix holds that, so that it is left out of the text behind."""
        written: list[str] = []
        done = ""
        for i, part in enumerate(parts):
            rest = Literal(part.text.removeprefix(done)) if isinstance(part, Literal) else part
            written.append(self._part(rest, f"{name}_{i}"))
            done = part.until if isinstance(part, Text) else ""
        return " ".join(written)

    def _part(self, part: Part, name: str) -> str:
        match part:
            case Literal():
                return self._literal(part.text)
            case Pattern():
                return f"/{part.regex}/"
            case Json():
                self._rules.append(f"{name}: %json {json.dumps(part.schema, ensure_ascii=False)}")
                return name
            case Text():
                self._rules.append(f"{name}[suffix={json.dumps(part.until, ensure_ascii=False)}]: /(?s:.*)/")
                return name
            case Maybe():
                return f"({self._sequence(part.parts, name)})?"

    def _literal(self, text: str) -> str:
        """The text with the names that are one token in their own notation."""
        pieces = [piece for piece in re.split(r"(<[^<>\s]+>|\[[A-Z_/]+\])", text) if piece]
        return " ".join(self._special(piece) or json.dumps(piece, ensure_ascii=False) for piece in pieces) or '""'
