"""llama.cpp's grammar notation (GBNF), read into nodes. Knows no vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from uad.base.errors import InvalidRequestError

MAX_CHARS = 1 << 18
MAX_DEPTH = 64  # of brackets in brackets
MAX_REPEAT = 1 << 16
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_REPEAT = re.compile(r"\{[ \t]*(\d{1,9})?[ \t]*(,)?[ \t]*(\d{1,9})?[ \t]*\}")
_ESCAPE = re.compile(r'\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([nrt"\\\[\]\-^]))')
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class GbnfText:
    """These characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these ranges, or one of all others."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to the rule of this name. at: where it is named."""

    name: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Seq:
    """Parts in a row; none: nothing."""

    parts: tuple[GbnfNode, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    parts: tuple[GbnfNode, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part, low to high times in a row; high None: any number of times."""

    part: GbnfNode
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A node that is one lexeme, in plans only. Equal ones have the same number, wherever they stand."""

    node: GbnfNode
    number: int


GbnfNode: TypeAlias = GbnfText | Chars | Ref | Seq | Either | Repeat | Lexeme


class GbnfReader:
    """Reads rules from a text. Raises InvalidRequestError, which names line and column."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARS:
            raise InvalidRequestError(f"failed to parse grammar: more than {MAX_CHARS} characters")
        self._text = text
        self._at = 0

    def rules(self) -> dict[str, GbnfNode]:
        """All rules by name. `root` is among them, and every rule that is referred to."""
        rules: dict[str, GbnfNode] = {}
        refs: list[Ref] = []
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            name = self._name()
            self._skip(_SPACE)
            self._expect("::=")
            self._skip(_SPACE_AND_LINES)
            rules[name] = self._either(0)
            refs += refs_in(rules[name])
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                raise self._error("expected the end of the rule")
            self._skip(_SPACE_AND_LINES)
        if "root" not in rules:
            raise InvalidRequestError("failed to parse grammar: it has no rule named root, with which answers begin")
        for ref in refs:
            if ref.name not in rules:
                self._at = ref.at
                raise self._error(f"no rule is named {ref.name[:64]!r}")
        return rules

    def _error(self, what: str) -> InvalidRequestError:
        before = self._text[: self._at]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        near = self._text[self._at : self._at + 20].split("\n")[0]
        place = f", found {near!r}" if near else ""
        return InvalidRequestError(f"failed to parse grammar: {what} at line {line}, column {column}{place}")

    def _skip(self, blank: re.Pattern[str]) -> None:
        match = blank.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _expect(self, text: str) -> None:
        if not self._text.startswith(text, self._at):
            raise self._error(f"expected {text!r}")
        self._at += len(text)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _name(self) -> str:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._error("expected the name of a rule")
        self._at = match.end()
        return match[0]

    def _either(self, depth: int) -> GbnfNode:
        """Sequences separated by `|`. Inside of brackets lines may end anywhere."""
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} brackets in each other")
        parts = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            self._skip(_SPACE_AND_LINES)
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _sequence(self, depth: int) -> GbnfNode:
        blank = _SPACE_AND_LINES if depth else _SPACE
        parts: list[GbnfNode] = []
        while (part := self._part(depth)) is not None:
            self._skip(blank)
            parts.append(self._repeated(part, blank))
            self._skip(blank)
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def _part(self, depth: int) -> GbnfNode | None:
        """The next part of a sequence; None where it ends."""
        start = self._peek()
        if start == '"':
            return GbnfText("".join(self._until('"')))
        if start == "[":
            return self._class()
        if start == "(":
            self._at += 1
            self._skip(_SPACE_AND_LINES)
            inner = self._either(depth + 1)
            self._expect(")")
            return inner
        if start == ".":
            self._at += 1
            return Chars((), negated=True)
        if start == "<" or self._text.startswith("!<", self._at):
            raise self._error("single tokens are not supported in grammars; write their text")
        at = self._at
        return Ref(self._name(), at) if _NAME.match(self._text, at) else None

    def _until(self, end: str) -> Iterator[str]:
        """The characters up to `end`, each as it is meant."""
        self._at += 1
        while self._peek() != end:
            yield self._character()
        self._at += 1

    def _character(self) -> str:
        char = self._peek()
        if char in ("", "\n", "\r"):
            raise self._error("a text or a class of characters does not end")
        if char != "\\":
            self._at += 1
            return char
        match = _ESCAPE.match(self._text, self._at)
        if match is None:
            raise self._error("unknown escape")
        code = int(match[1] or match[2] or match[3] or "0", 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self._error("no character has this number")
        self._at = match.end()
        return _PLAIN.get(match[4], match[4]) if match[4] else chr(code)

    def _class(self) -> GbnfNode:
        """`[a-z_]`, `[^"]`: characters and ranges of them."""
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[str, str]] = []
        while self._peek() != "]":
            low = high = self._character()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._character()
            if low > high:
                raise self._error("a range of characters that ends before it begins")
            ranges.append((low, high))
        self._at += 1
        if not ranges:
            raise self._error("an empty class of characters")
        return Chars(tuple(ranges), negated)

    def _repeated(self, part: GbnfNode, blank: re.Pattern[str]) -> GbnfNode:
        """The part with the repetitions that follow it."""
        while sign := self._peek():
            if sign in "*+?":
                self._at += 1
                part = Repeat(part, int(sign == "+"), 1 if sign == "?" else None)
            elif sign == "{":
                part = self._counted(part)
            else:
                break
            self._skip(blank)
        return part

    def _counted(self, part: GbnfNode) -> GbnfNode:
        match = _REPEAT.match(self._text, self._at)
        if match is None or not (match[1] or match[2]):
            raise self._error("expected a repetition such as {2}, {2,} or {2,5}")
        low = int(match[1] or 0)
        high = low if not match[2] else int(match[3]) if match[3] else None
        if max(low, high or 0) > MAX_REPEAT:
            raise self._error(f"more than {MAX_REPEAT} repetitions")
        if high is not None and high < low:
            raise self._error("a repetition that ends before it begins")
        self._at = match.end()
        return Repeat(part, low, high)


def children(node: GbnfNode) -> tuple[GbnfNode, ...]:
    """The nodes that a node is made of."""
    match node:
        case Seq(parts) | Either(parts):
            return parts
        case Repeat(part):
            return (part,)
    return ()


def users_of(rules: Mapping[str, GbnfNode]) -> dict[str, list[str]]:
    """The rules that refer to each rule."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, node in rules.items():
        for used in {ref.name for ref in refs_in(node)}:
            users[used].append(name)
    return users


def refs_in(node: GbnfNode) -> Iterator[Ref]:
    """The references in a node, at any depth."""
    if isinstance(node, Ref):
        yield node
    for child in children(node):
        yield from refs_in(child)
