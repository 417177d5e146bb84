"""JSON as it comes, strictly: it is known with the first letter that cannot stand where it does. Knows no call.

Objects may have doubled braces, `{{"a": 1}}`, which JSON never has: each that begins so must end so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from string import hexdigits

from uad.text.calls.judge import fits, may_be, of_member
from uad.text.calls.source import FormatSource, MalformedError, Wait, words
from uad.text.calls.tools import ToolSchema, resolved
from uad.text.calls.values import escaped

MAX_WHOLE_CHARS = 1 << 18
"""Characters that are read."""
MAX_DEPTH = 64
"""Lists and objects in one another."""
_MAX_NUMBER = 64
_IN_STRINGS = words('"', "\\")
_CONTROL = re.compile(r"[\x00-\x1f]")
_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
_KINDS |= dict.fromkeys("-0123456789", "number")
_CONSTANTS = ("true", "false", "null")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BEGUN_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.(?:\d+(?:[eE](?:[+-]?\d*))?)?|[eE](?:[+-]?\d*))?)?")


class Lexer:
    """Letters and words of JSON, and `pieces` of what was read as JSON has it. Raises MalformedError at the first
    letter that cannot stand where it does.
    """

    def __init__(self, source: FormatSource) -> None:
        self.source = source
        self.pieces: list[str] = []
        self._n = 0

    def next(self) -> Wait[str]:
        """The next letter after white space, which is not passed over; empty at the end."""
        self._add((yield from self.source.blanks()))
        return (yield from self.source.peek())

    def expect(self, text: str) -> Wait[None]:
        """Pass over this letter, and white space before it."""
        if (yield from self.next()) != text:
            raise MalformedError(f"{text} is missing")
        self.read(text)

    def word(self, may: Callable[[str], bool]) -> Wait[str]:
        """A number or a constant, up to the first letter that is not part of it."""
        text = ""
        while (char := (yield from self.source.peek())) and not (char.isspace() or char in ",]}"):
            text += char
            if not may(text) or len(text) > _MAX_NUMBER:
                raise MalformedError("no value")
            self.read(char)
        return text

    def string(self) -> Wait[None]:
        """A string after its first mark, and its last one."""
        while True:
            word = yield from self.source.until(_IN_STRINGS, self._letters)
            self._add(word)
            if word == '"':
                return
            yield from self._escape()

    def _escape(self) -> Wait[None]:
        """Read the rest of an escape, after its backslash."""
        char = yield from self.source.peek()
        if not char or char not in '"\\/bfnrtu':
            raise MalformedError("no escape")
        self.read(char)
        for _ in range(4 if char == "u" else 0):
            digit = yield from self.source.peek()
            if not digit or digit not in hexdigits:
                raise MalformedError("no escape")
            self.read(digit)

    def _letters(self, text: str) -> None:
        """Part of a string. Line ends and their kind stand there as JSON has them, even where the model forgot that."""
        self._add(_CONTROL.sub(lambda match: escaped(match[0]), text))

    def read(self, char: str) -> None:
        """Pass over this letter."""
        self.source.at += 1
        self._add(char)

    def _add(self, text: str) -> None:
        self.pieces.append(text)
        self._n += len(text)
        if self._n > MAX_WHOLE_CHARS:
            raise MalformedError("too long")


class StrictReader:
    """Reads JSON as it comes, without mending any. Raises MalformedError at the first letter that JSON cannot have
    there, and after a value that its schema does not allow. doubled: objects may have doubled braces; has_doubled:
    whether one had.
    """

    def __init__(self, source: FormatSource, doubled: bool = False) -> None:
        self.lexer = Lexer(source)
        self.has_doubled = False
        self._doubled = doubled

    def opens(self) -> Wait[str]:
        """Pass over what begins an object, and return what ends it."""
        yield from self.lexer.expect("{")
        if not (self._doubled and (yield from self.lexer.source.peek()) == "{"):
            return "}"
        self.lexer.source.at += 1
        self.has_doubled = True
        return "}}"

    def goes_on(self, close: str) -> Wait[bool]:
        """Whether a list or an object has another item after this one; a comma or its end is passed over."""
        if (yield from self.lexer.next()) == ",":
            self.lexer.read(",")
            return True
        yield from self._close(close)
        return False

    def _close(self, close: str) -> Wait[None]:
        """Pass over what ends a list or an object. Of doubled braces JSON gets one."""
        yield from self.lexer.expect(close[0])
        if len(close) > 1:
            if (yield from self.lexer.source.peek()) != close[1]:
                raise MalformedError(f"{close} is missing")
            self.lexer.source.at += 1

    def one_of(self, names: Iterable[str]) -> Wait[str]:
        """A string that is one of these, which is known with its first wrong letter."""
        whole = {escaped(name) + '"': name for name in names}
        yield from self.lexer.expect('"')
        text = ""
        while text not in whole:
            char = yield from self.lexer.source.peek()
            text += char
            if not char or not any(word.startswith(text) for word in whole):
                raise MalformedError("none of these")
            self.lexer.read(char)
        return whole[text]

    def text(self, schema: object, root: ToolSchema) -> Wait[str]:
        """A value that a schema allows, as it is written."""
        yield from self.lexer.next()
        n = len(self.lexer.pieces)
        yield from self._value(schema, root, 0)
        return "".join(self.lexer.pieces[n:])

    def _value(self, schema: object, root: ToolSchema, depth: int) -> Wait[None]:
        char = yield from self.lexer.next()
        schema = resolved(schema, root) if isinstance(schema, Mapping) else schema
        kind = _KINDS.get(char, "")
        if not kind or not may_be(kind, schema) or schema is False or depth > MAX_DEPTH:
            raise MalformedError("no such value")
        n = len(self.lexer.pieces)
        if kind == "object":
            yield from self._members(schema, root, depth)
        elif kind == "array":
            yield from self._items(schema, root, depth)
        else:
            yield from self._scalar(kind)
            if not fits(json.loads("".join(self.lexer.pieces[n:])), schema, root):
                raise MalformedError("not what the schema allows")

    def _members(self, schema: object, root: ToolSchema, depth: int) -> Wait[None]:
        close = yield from self.opens()
        if (yield from self.lexer.next()) == "}":
            yield from self._close(close)
            return
        while True:
            key = json.loads((yield from self.text({"type": "string"}, root)))
            allowed = list(of_member(schema, key)) if isinstance(schema, Mapping) else []
            if any(value is False for value in allowed):
                raise MalformedError("no such member")
            yield from self.lexer.expect(":")
            yield from self._value(allowed[0] if allowed else {}, root, depth + 1)
            if not (yield from self.goes_on(close)):
                return

    def _items(self, schema: object, root: ToolSchema, depth: int) -> Wait[None]:
        items = schema.get("items") if isinstance(schema, Mapping) and "prefixItems" not in schema else None
        yield from self.lexer.expect("[")
        if (yield from self.lexer.next()) == "]":
            self.lexer.read("]")
            return
        while True:
            yield from self._value(items if isinstance(items, Mapping) else {}, root, depth + 1)
            if not (yield from self.goes_on("]")):
                return

    def _scalar(self, kind: str) -> Wait[None]:
        if kind == "string":
            self.lexer.read('"')
            yield from self.lexer.string()
        elif kind == "number":
            text = yield from self.lexer.word(lambda text: bool(_BEGUN_NUMBER.fullmatch(text)))
            if not _NUMBER.fullmatch(text):
                raise MalformedError("no number")
        else:
            text = yield from self.lexer.word(lambda text: any(constant.startswith(text) for constant in _CONSTANTS))
            if text not in _CONSTANTS:
                raise MalformedError("no value")
