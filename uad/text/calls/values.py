"""Values as models write them, made into JSON: as they come (JSON with its usual faults, Gemma's notation, Python's),
or from whole texts (plain texts, tags in tags).

The output is JSON wherever the text breaks off, unless the answer was cut. A string ends at its quotation mark where
something follows that can stand after a string: in `"say "hi" there"}` only the last mark does. In valid JSON that is
every mark without a backslash, so valid JSON is passed on as it is.
"""

from __future__ import annotations

import ast
import codecs
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from uad.text.calls.format import QUOTE
from uad.text.calls.source import (
    EndedError,
    Following,
    FormatSource,
    MalformedError,
    OnCut,
    SoughtTexts,
    Wait,
    bounded,
    words,
)
from uad.text.calls.tools import ToolSchema, resolved, types_in

MAX_DEPTH = 200
"""Lists and objects in one another. Deeper ones no reader of JSON takes."""
MAX_KEY_CHARS = 256
"""Characters of a member's name without quotation marks."""
MAX_WORD_CHARS = 1 << 16
"""Characters of a member's name, or of a value without quotation marks: they are kept back."""
_LONGEST_ESCAPE_CHARS = 10
_CONSTANT = "true|false|null|True|False|None"
KEY = r"[^\s=,:(){}\[\]\"'<>]{1,256}"
_MAX_TAGS = 64
_ValueNode = str | list[tuple[str, "_ValueNode"]]
_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_NUMERAL = re.compile(r"[-+]?[\d.][\w.+-]{0,64}")


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """A piece of a text as it stands inside a JSON string."""
    return quoted(text)[1:-1]


def spelled(word: str) -> str:
    """Python's names of constants in JSON's spelling; any other text as it is."""
    return _WORDS.get(word, word)


def kind_of(text: str) -> str:
    """The JSON type of a text that is JSON; empty for any other text."""
    if text in ("true", "false"):
        return "boolean"
    if text == "null":
        return "null"
    if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return "number"
    if text[:1] in ("{", "[", '"'):
        with suppress(ValueError, RecursionError):
            json.loads(text, parse_float=_finite, parse_constant=_finite)
            return {"{": "object", "[": "array", '"': "string"}[text[0]]
    return ""


def word_json(word: str) -> str:
    """The JSON of a constant or a number, in JSON's spelling or in Python's; empty for any other text."""
    text = spelled(word)
    if text[:1] not in ("{", "[", '"') and kind_of(text):
        return text
    if not _NUMERAL.fullmatch(text):
        return ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return ""
    return json.dumps(value) if isinstance(value, int | float) and math.isfinite(value) else ""


def _finite(text: str) -> float:
    """A number. Raises ValueError for what JSON has no number for."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


@dataclass(frozen=True)
class Bracket:
    """A list, or an object if `colon` stands after the names of its members. pair: its brackets in JSON.

    A string in it ends before `after`, and may end before `begun`, the beginning of such a text.
    """

    close: str
    pair: str
    colon: str
    after: str
    begun: str


@dataclass(frozen=True)
class Notation:
    """How values are written. bare: what a text without quotation marks may be, if it is no JSON. as_is: it is JSON,
    with white space that stays.
    """

    quotes: tuple[str, ...]
    brackets: Mapping[str, Bracket]
    escapes: re.Pattern[str]
    bare: re.Pattern[str]
    as_is: bool = False


_ITEMS = rf"[\]}})]|,\s*(?:[\"'\[{{(\]\-\d]|{_CONSTANT}|<\|\"\|>)"
_LIST = Bracket("]", "[]", "", _ITEMS, r",\s*(?:[a-zA-Z]{0,5}|<\|?\"?\|?)")
_JSON_ESCAPES = re.compile(r"[\"\\/bfnrt']|u[0-9a-fA-F]{4}")
_PLAIN_JSON = re.compile(r"(?:[^\"\\\x00-\x1f]|\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))+")
"""Characters that a JSON string has just as the text has them: emitted at once, since calls hold long texts."""
JSON = Notation(
    ('"', "'"),
    {"{": Bracket("}", "{}", ":", r"[}\]]|,\s*[\"'}]", r",\s*"), "[": _LIST},
    _JSON_ESCAPES,
    re.compile(r'[^"{}\[\]]+'),
    as_is=True,
)
GEMMA = Notation(
    (QUOTE, '"'),
    {
        "{": Bracket(
            "}", "{}", ":", rf"[}}\]]|,\s*(?:{KEY}\s*:|<\|\"\|>|[\"}}])", rf",\s*(?:(?:{KEY})?\s*|<\|?\"?\|?)"
        ),
        "[": _LIST,
    },
    _JSON_ESCAPES,
    re.compile(r'[^"{}\[\]]+'),
)
_PYTHON_ESCAPES = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|[\\'\"abfnrtv]|\n")
_TRIPLE = ('"""', "'''")
PYTHON = Notation(
    (*_TRIPLE, '"', "'"),
    {
        "{": Bracket("}", "{}", ":", rf"[}}\])]|,\s*(?:[\"'}}\-\d]|{_CONSTANT})", r",\s*[a-zA-Z]{0,5}"),
        "[": _LIST,
        "(": Bracket(")", "[]", "", _ITEMS, _LIST.begun),
    },
    _PYTHON_ESCAPES,
    re.compile(r"[\w.+-]+"),
)
ARGUMENTS = Bracket(
    ")", "{}", "=", rf"[)\]][)\s]{{0,64}}[,\]<]|,\s*(?:{KEY}\s*=|\))", rf"[)\]][)\s]{{0,64}}|,\s*(?:{KEY})?\s*"
)
"""The notation of a call in Python. Some templates write strings there without escapes, so what stands after the
bracket counts as well: in `say(text='print('hi')')]` the string ends at the last mark.
"""
LITERAL = Notation(PYTHON.quotes, PYTHON.brackets, PYTHON.escapes, re.compile(r"(?!)"))
"""Python's, in which every other text has quotation marks."""


@lru_cache(maxsize=512)
def _ends(after: str, begun: str, stops: SoughtTexts) -> Following:
    return Following(after, begun, stops, words(), commas=True)


@dataclass
class _Open:
    """A bracket that is open, what is known of its values, and whether nothing stands in it yet."""

    bracket: Bracket
    schema: ToolSchema
    is_fresh: bool = True


Typed = Callable[[str, frozenset[str]], str]
_NOTHING: ToolSchema = {}


class ValueReader:
    """Reads one value. Where all of it may have to be read again, since no call has begun, its strings hold no marks:
    what is no call must be shown soon.

    `stops` are markers that may stand where its brackets are missing. typed: makes JSON of a text by the types that the
    schema allows, for notations in which the text does not say its type.
    """

    def __init__(
        self,
        source: FormatSource,
        tell: OnCut,
        notation: Notation,
        stops: SoughtTexts,
        schema: ToolSchema = _NOTHING,
        typed: Typed | None = None,
    ) -> None:
        self._source = source
        self._tell = tell
        self._notation = notation
        self._stops = stops
        self._root = schema
        self._typed = typed
        self._open: list[_Open] = []
        self._guards = not source.is_marked
        self._quotes = words(*notation.quotes)
        self._closers = frozenset(bracket.close for bracket in notation.brackets.values()) | {")", "}", "]"}

    def value(self) -> Wait[None]:
        """Emit a whole value."""
        if self._guards:
            self._source.set_mark()
        yield from self._all(self._value("", self._root))

    def members(self, bracket: Bracket) -> Wait[None]:
        """Emit a whole value, whose opening bracket has been passed over."""
        self._push(bracket, self._root)
        self._tell(bracket.pair[0])
        yield from self._all()

    def key(self, colon: str = ":") -> Wait[str]:
        """The name of a member, as a JSON string, up to what follows it. Nothing is emitted."""
        quote = yield from self._source.take(self._quotes)
        if quote:
            pieces: list[str] = []
            ends = _ends(re.escape(colon), "(?!)", words())
            if not (yield from self._string(quote, ends, bounded(pieces, MAX_WORD_CHARS), is_name=True)):
                raise EndedError
            return f'"{"".join(pieces)}"'
        text, word = yield from self._source.collect(words(colon, ",", *self._closers), MAX_KEY_CHARS)
        if word != colon or not text.strip():
            raise MalformedError("a member has no name")
        self._source.at -= len(word)
        return quoted(text.strip())

    def _all(self, first: Wait[None] | None = None) -> Wait[None]:
        """Raises MalformedError where the text is no value any more. All brackets are closed then, and the text is to
        be read again from the mark, where there is one.
        """
        try:
            if first is not None:
                yield from first
            while self._open:
                yield from self._next()
        except EndedError:
            if not self._source.is_cut:
                self._close(0)
            elif self._notation.as_is and self._guards and self._source.is_marked:
                self._source.rewind()
                self._source.tell_all(self._tell)
            raise
        except MalformedError:
            self._close(0)
            raise

    def _next(self) -> Wait[None]:
        """Read on after an opening bracket or a value: the end, or the next member."""
        source, top = self._source, self._open[-1]
        if self._guards:
            source.set_mark()
        gap = yield from source.blanks()
        comma = "" if top.is_fresh else (yield from source.take(words(",")))
        after = (yield from source.blanks()) if comma else ""
        char = yield from source.peek()
        if char in self._closers:
            # Brackets that are open inside of what this one closes are closed too: `{"a": [1, 2}` is read as
            # `{"a": [1, 2]}`. A comma before it, as in `[1, 2,]`, is left out with its white space.
            depth = next((i for i in reversed(range(len(self._open))) if self._open[i].bracket.close == char), None)
            if depth is None:
                raise MalformedError("brackets do not match")
            source.at += 1
            self._tell(gap if self._notation.as_is and not comma else "")
            self._close(depth)
            self._emit()
            return
        if not char or (yield from source.stands(self._stops)):
            if source.is_cut:
                raise EndedError
            self._close(0)
            self._emit()
            return
        if not (comma or top.is_fresh):
            raise MalformedError("a comma is missing")
        name, schema = "", top.schema.get("items")
        if top.bracket.colon:
            name = yield from self.key(top.bracket.colon)
            schema = _member_of(name, top.schema) if self._typed is not None else None
            before = yield from source.blanks()
            yield from source.expect(top.bracket.colon)
            gap_after = yield from source.blanks()
            name += f"{before}:{gap_after}" if self._notation.as_is else ": "
        lead = f"{gap}{comma}{after}{name}" if self._notation.as_is else f"{', ' if comma else ''}{name}"
        top.is_fresh = False
        yield from self._value(lead, resolved(schema, self._root) if isinstance(schema, Mapping) else _NOTHING)

    def _close(self, depth: int) -> None:
        self._tell("".join(level.bracket.pair[1] for level in reversed(self._open[depth:])))
        del self._open[depth:]

    def _push(self, bracket: Bracket, schema: ToolSchema) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise MalformedError("nested too deeply")
        self._open.append(_Open(bracket, schema))

    def _emit(self, text: str = "") -> None:
        """Emit this; what was read so far need not be read again."""
        if self._guards:
            self._source.clear_mark()
        self._tell(text)

    def _value(self, lead: str, schema: ToolSchema) -> Wait[None]:
        source = self._source
        types = types_in(schema, self._root) if self._typed is not None else frozenset()
        quote = yield from source.take(self._quotes)
        if quote:
            yield from self._text(quote, lead, types)
            return
        char = yield from source.peek()
        bracket = self._notation.brackets.get(char)
        if bracket is not None:
            self._push(bracket, schema)
            source.at += 1
            self._emit(lead + bracket.pair[0])
            return
        yield from self._word(lead, types)

    def _text(self, quote: str, lead: str, types: frozenset[str]) -> Wait[None]:
        """A string, after its first quotation mark."""
        bracket = self._open[-1].bracket if self._open else self._notation.brackets["{"]
        ends = _ends(bracket.after, bracket.begun, self._stops)
        if types and "string" not in types and self._typed is not None:
            pieces: list[str] = []
            if not (yield from self._string(quote, ends, pieces.append, as_json=False)) and self._source.is_cut:
                raise EndedError
            self._emit(lead + self._typed("".join(pieces), types))
            return
        self._emit(f'{lead}"')
        if quote in _TRIPLE and (yield from self._source.follows(ends, 0)):
            self._tell(f'{escaped(quote[0])}"')  # a mark between two marks, and no string of its own
            return
        if not (yield from self._string(quote, ends, self._tell)) and self._source.is_cut:
            raise EndedError
        self._tell('"')

    def _string(
        self, quote: str, ends: Following, tell: OnCut, as_json: bool = True, is_name: bool = False
    ) -> Wait[bool]:
        """Emit the contents of a string, as JSON writes them; false where the text ends in it. Names hold no marks."""
        # The value in `{"a": "say "hi"", "b": 1}`: `say ` is emitted, and the mark before hi waits for what follows it.
        # `hi` follows no string, so the mark is part of this one: `\"` is emitted. The mark after hi has one after
        # it: part of the string too. After the third stands `, "`, which is what follows a string: it ends here.
        # A mark waits for a few characters only, so a valid string is emitted as fast as it comes.
        source = self._source
        marks = words(quote, "" if quote == QUOTE else "\\")

        def plain(text: str) -> None:
            tell(escaped(text) if as_json else text)

        is_plain = quote == '"' and as_json and self._notation.escapes is _JSON_ESCAPES
        while True:
            if is_plain:
                source.tell_match(_PLAIN_JSON, tell)
            word = yield from source.until(marks, plain)
            if not word:
                return False
            if word == "\\" and quote != QUOTE:
                tell((yield from _escape(source, self._notation)))
            elif (yield from source.is_last(word, ends, plain)):
                return True
            elif is_name or not self._guards:
                raise MalformedError("a mark in a string")

    def _word(self, lead: str, types: frozenset[str]) -> Wait[None]:
        """A value without quotation marks, up to what ends it."""
        source, pieces, limit = self._source, list[str](), MAX_WORD_CHARS if self._guards else MAX_KEY_CHARS
        word = yield from source.until(words(",", *self._closers, *self._stops.texts), bounded(pieces, limit))
        raw = "".join(pieces)
        source.at -= len(word) + len(raw) - len(raw.rstrip())
        text = raw.strip()
        if not word and source.is_cut:
            raise EndedError
        made = self._typed(text, types) if self._typed is not None and types else word_json(text)
        if not text or not (made or self._notation.bare.fullmatch(text)):
            raise MalformedError("no value")
        self._emit(lead + (made or quoted(text)))


def _escape(source: FormatSource, notation: Notation) -> Wait[str]:
    """The JSON of an escape, read after its backslash. One that means nothing is a backslash."""
    match = yield from source.match(notation.escapes, _LONGEST_ESCAPE_CHARS)
    if not match or match == "'":
        return match or "\\\\"
    if notation.escapes is _JSON_ESCAPES or match[0] == "u":
        return f"\\{match}"
    try:
        return "" if match == "\n" else escaped(codecs.decode(f"\\{match}", "unicode_escape"))
    except UnicodeDecodeError:
        return escaped(f"\\{match}")


def _member_of(name: str, schema: ToolSchema) -> object:
    """The schema for the member with this name, which is a JSON string."""
    known = schema.get("properties")
    for key, member in known.items() if isinstance(known, Mapping) else ():
        if quoted(key) == name:
            return member
    return schema.get("additionalProperties")


def read_whole(text: str, notation: Notation, repairs: bool = False) -> str:
    """The JSON of a text that is one value. repairs: brackets at its end may be missing, and one may be too many.

    Raises ValueError.
    """
    source, pieces = FormatSource(), list[str]()
    source.add(text)
    source.end(is_cut=not repairs)
    try:
        for _ in ValueReader(source, pieces.append, notation, words()).value():
            raise AssertionError("a text that has ended is waited for")
    except MalformedError as error:
        raise ValueError(str(error)) from None
    if source.rest().strip(" \t\r\n" + ("}]" if repairs else "")):
        raise ValueError("more than one value")
    return "".join(pieces)


def of_text(raw: str, types: frozenset[str]) -> str:
    """The JSON of a value that was written as plain text, for one of the types that its schema allows (none: any).

    A text that fits no other type of the schema is a string: nothing is lost. Lists and objects may be in Python's
    spelling.
    """
    text = raw.strip()
    if "string" not in types or (text == "None" and "null" in types):
        text = spelled(text)
    kind = kind_of(text)
    if kind and (not types or (kind in types and kind != "string") or (kind == "number" and "integer" in types)):
        return text
    if text[:1] in ("[", "{") and (types & {"array", "object"} or not types):
        with suppress(ValueError):
            return read_whole(text, LITERAL)
    return quoted(raw)


def of_json(raw: str) -> str:
    """The JSON of a value that claims to be JSON; a string where it is not."""
    text = spelled(raw.strip())
    if kind_of(text):
        return text
    if text[:1] in ("[", "{", '"'):
        with suppress(ValueError):
            return read_whole(text, LITERAL)
    return quoted(raw)


def of_tags(raw: str, mark: str, schema: ToolSchema, root: ToolSchema) -> str:
    """The JSON of a value in which every tag begins with `mark`; a string where the tags do not match."""
    pieces = re.split(rf"{re.escape(mark)}<(/?)([^<>]+)>", raw)
    open_: list[tuple[str, list[tuple[str, _ValueNode]]]] = [("", [])]
    text = pieces[0]
    for slash, name, following in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        if not slash:
            open_.append((name, []))
        elif len(open_) > 1 and open_[-1][0] == name:
            _, children = open_.pop()
            open_[-1][1].append((name, children or text))
        else:
            return quoted(raw)
        text = following
    if len(open_) > 1:
        return quoted(raw)
    try:
        return _node_json(open_[0][1] or raw, schema, root, 0)
    except ValueError:
        return quoted(raw)


def _node_json(node: _ValueNode, given: object, root: ToolSchema, depth: int) -> str:
    schema = resolved(given, root) if isinstance(given, Mapping) else {}
    types = types_in(schema, root)
    if isinstance(node, str):
        empty = "[]" if "array" in types else "{}" if "object" in types else ""
        return empty if empty and not node.strip() else of_text(node, types)
    if depth > _MAX_TAGS:
        raise ValueError("nested too deeply")
    if "array" in types or all(name == "item" for name, _ in node):
        return f"[{', '.join(_node_json(child, schema.get('items'), root, depth + 1) for _, child in node)}]"
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    members = (f"{quoted(name)}: {_node_json(child, known.get(name), root, depth + 1)}" for name, child in node)
    return "{" + ", ".join(members) + "}"
