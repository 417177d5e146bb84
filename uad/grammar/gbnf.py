"""llama.cpp's grammar notation (GBNF) to the notation of llguidance (Lark). Knows no vocabulary.

GBNF knows characters only. llguidance cuts text into lexemes first, the longest that match. So whatever has no
recursion becomes one lexeme, which is a regular expression with all its freedom. Only around recursion is text cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from uad.errors import InvalidRequestError

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
    """One character of a class, as a regular expression."""

    regex: str


@dataclass(frozen=True, slots=True)
class Ref:
    """What a rule of this name may be."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Seq:
    """Parts in a row; none: nothing."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part so many times in a row; high None: any number of times."""

    part: Node
    low: int
    high: int | None


Node: TypeAlias = GbnfText | Chars | Ref | Seq | Either | Repeat


def to_lark(text: str) -> str:
    """The same grammar in llguidance's notation. Raises InvalidRequestError, which names line and column."""
    rules = _GbnfReader(text).rules()
    return _LarkWriter(rules).lark()


class _GbnfReader:
    """Reads rules from a text."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARS:
            raise InvalidRequestError(f"failed to parse grammar: more than {MAX_CHARS} characters")
        self._text = text
        self._at = 0

    def rules(self) -> dict[str, Node]:
        """All rules by name. `root` is among them, and every rule that is referred to."""
        rules: dict[str, Node] = {}
        refs: list[Ref] = []
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            name = self._name()
            self._skip(_SPACE)
            self._expect("::=")
            self._skip(_SPACE_AND_LINES)
            rules[name] = self._either(0)
            refs += _refs(rules[name])
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
        found = f", found {near!r}" if near else ""
        return InvalidRequestError(f"failed to parse grammar: {what} at line {line}, column {column}{found}")

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

    def _either(self, depth: int) -> Node:
        """Sequences separated by `|`. Inside of brackets lines may end anywhere."""
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} brackets in each other")
        parts = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            self._skip(_SPACE_AND_LINES)
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _sequence(self, depth: int) -> Node:
        blank = _SPACE_AND_LINES if depth else _SPACE
        parts: list[Node] = []
        while (part := self._part(depth)) is not None:
            self._skip(blank)
            parts.append(self._repeated(part, blank))
            self._skip(blank)
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def _part(self, depth: int) -> Node | None:
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
            return Chars(r"(.|\n)")
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

    def _class(self) -> Node:
        """`[a-z_]`, `[^"]`: characters and ranges of them."""
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[str] = []
        while self._peek() != "]":
            low = high = self._character()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._character()
            if low > high:
                raise self._error("a range of characters that ends before it begins")
            ranges.append(_code(low) if low == high else f"{_code(low)}-{_code(high)}")
        self._at += 1
        if not ranges:
            raise self._error("an empty class of characters")
        return Chars(f"[{'^' * negated}{''.join(ranges)}]")

    def _repeated(self, part: Node, blank: re.Pattern[str]) -> Node:
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

    def _counted(self, part: Node) -> Node:
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


def _code(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"


def _children(node: Node) -> tuple[Node, ...]:
    match node:
        case Seq(parts) | Either(parts):
            return parts
        case Repeat(part):
            return (part,)
    return ()


def _refs(node: Node) -> Iterator[Ref]:
    if isinstance(node, Ref):
        yield node
    for child in _children(node):
        yield from _refs(child)


class _LarkWriter:
    """Writes rules: T1, T2, … are lexemes, r1, r2, … are made of lexemes."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._recursive = _recursive(rules)
        self._rules = rules
        self._names = {name: f"r{i}" if name in self._recursive else f"T{i}" for i, name in enumerate(rules)}
        self._lexemes: list[str] = []

    def lark(self) -> str:
        lines = [f"start: {self._names['root']}"]
        for name, node in self._rules.items():
            body = self._rule(node) if name in self._recursive else self._lexeme(node)
            lines.append(f"{self._names[name]}: {body}")
        return "\n".join(["%llguidance {}", *lines, *self._lexemes]) + "\n"

    def _is_regular(self, node: Node) -> bool:
        return all(ref.name not in self._recursive for ref in _refs(node))

    def _lexeme(self, node: Node) -> str:
        """A node without recursion."""
        match node:
            case GbnfText(text):
                return json.dumps(text, ensure_ascii=False)
            case Chars(regex):
                return f"/{regex}/"
            case Ref(name):
                return self._names[name]
            case Seq(parts):
                return f"({' '.join(map(self._lexeme, parts))})" if parts else '""'
            case Either(parts):
                return f"({' | '.join(map(self._lexeme, parts))})"
            case Repeat(part, low, high):
                return f"({self._lexeme(part)}){_times(low, high)}"

    def _rule(self, node: Node) -> str:
        """A node with recursion in it: what is regular in it becomes lexemes, as long as they go."""
        if self._is_regular(node):
            return self._own_lexeme(node)
        match node:
            case Ref(name):
                return self._names[name]
            case Seq(parts):
                return f"({' '.join(map(self._rule, self._runs(parts)))})"
            case Either(parts):
                return f"({' | '.join(map(self._rule, parts))})"
            case Repeat(part, low, high):
                return f"({self._rule(part)}){_times(low, high)}"
        raise AssertionError(node)

    def _own_lexeme(self, node: Node) -> str:
        if isinstance(node, Ref):
            return self._names[node.name]
        self._lexemes.append(f"L{len(self._lexemes)}: {self._lexeme(node)}")
        return f"L{len(self._lexemes) - 1}"

    def _runs(self, parts: Sequence[Node]) -> Iterator[Node]:
        """The parts, with neighbours that are regular joined."""
        run: list[Node] = []
        for part in parts:
            if self._is_regular(part):
                run.append(part)
                continue
            if run:
                yield Seq(tuple(run))
            run = []
            yield part
        if run:
            yield Seq(tuple(run))


def _times(low: int, high: int | None) -> str:
    return f"{{{low},{'' if high is None else high}}}"


def _recursive(rules: Mapping[str, Node]) -> frozenset[str]:
    """Rules that contain themselves, and those that contain such a rule."""
    uses = {name: {ref.name for ref in _refs(node)} for name, node in rules.items()}
    waiting = {name: len(used) for name, used in uses.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in uses.items():
        for one in used:
            users[one].append(name)
    ready = [name for name, n in waiting.items() if not n]
    regular: set[str] = set()
    while ready:
        name = ready.pop()
        regular.add(name)
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return frozenset(rules) - regular
