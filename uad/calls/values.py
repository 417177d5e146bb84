"""Arguments that are not written as JSON, made into JSON: texts in tags, Gemma's notation, Python's. Pure functions of
whole texts.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import suppress

from uad.calls.format import QUOTE

_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BARE = re.compile(r"[^\s,:{}\[\]]+")
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = "\\'\"abfnrtv01234567xuUN\n"
_MAX_DEPTH = 64
_MAX_PYTHON = 1 << 16


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """A piece of a text as it stands inside a JSON string."""
    return quoted(text)[1:-1]


def of_text(raw: str, types: frozenset[str]) -> str:
    """The JSON of a value that was written as plain text, for one of the types that its schema allows (none: any).

    A text that fits no other type of the schema is a string: nothing is lost. Lists and objects may be in Python's
    spelling.
    """
    text = raw.strip()
    if "string" not in types or (text == "None" and "null" in types):
        text = _WORDS.get(text, text)
    for kind in _kinds(text):
        if kind in types or not types or (kind == "number" and "integer" in types):
            return text
    if text[:1] in ("[", "{") and types & {"array", "object"}:
        with suppress(ValueError):
            return json.dumps(_literal(_parsed(text)), ensure_ascii=False, allow_nan=False)
    return quoted(raw)


def of_json(raw: str) -> str:
    """The JSON of a value that says it is JSON; a string where it is none."""
    text = _WORDS.get(raw.strip(), raw.strip())
    return text if any(True for _ in _kinds(text)) else quoted(raw)


def _kinds(text: str) -> Iterator[str]:
    """The JSON type of a text that is JSON; nothing for one that is none."""
    if text in ("true", "false"):
        yield "boolean"
    elif text == "null":
        yield "null"
    elif _NUMBER.fullmatch(text):
        yield "number"
    elif text[:1] in ("{", "[", '"') and _is_json(text):
        yield {"{": "object", "[": "array", '"': "string"}[text[0]]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def of_gemma(text: str) -> str:
    """The JSON of `{name:value,…}`, in which strings stand between quotation marks that are tokens. Raises
    ValueError.
    """
    value, at = _Gemma(text).value(0, 0)
    if text[at:].strip():
        raise ValueError("something follows the arguments")
    return value


class _Gemma:
    """Reads one value at a place: (its JSON, where it ends)."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> tuple[str, int]:
        at = self._blank(at)
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        if self._text.startswith(QUOTE, at):
            return self._string(at)
        if self._text.startswith("{", at):
            return self._members(at, "}", depth)
        if self._text.startswith("[", at):
            return self._members(at, "]", depth)
        if self._text.startswith('"', at):
            value, end = json.JSONDecoder().raw_decode(self._text, at)
            return quoted(value), end
        found = _BARE.match(self._text, at)
        if found is None:
            raise ValueError("a value is missing")
        word = _WORDS.get(found[0], found[0])
        return word if any(True for _ in _kinds(word)) else quoted(found[0]), found.end()

    def _string(self, at: int) -> tuple[str, int]:
        start = at + len(QUOTE)
        end = self._text.find(QUOTE, start)
        if end < 0:
            raise ValueError("a string does not end")
        return quoted(self._text[start:end]), end + len(QUOTE)

    def _members(self, at: int, close: str, depth: int) -> tuple[str, int]:
        out: list[str] = []
        at = self._blank(at + 1)
        while not self._text.startswith(close, at):
            if out:
                at = self._expect(",", at)
            name = ""
            if close == "}":
                name, at = self._name(at)
                at = self._expect(":", at)
            value, at = self.value(at, depth + 1)
            out.append(f"{name}: {value}" if name else value)
            at = self._blank(at)
        return ("{" if close == "}" else "[") + ", ".join(out) + close, at + 1

    def _name(self, at: int) -> tuple[str, int]:
        at = self._blank(at)
        if self._text.startswith(QUOTE, at):
            return self._string(at)
        found = re.compile(r'"?([^\s,:{}\[\]"]+)"?').match(self._text, at)
        if found is None:
            raise ValueError("a name is missing")
        return quoted(found[1]), found.end()

    def _expect(self, text: str, at: int) -> int:
        at = self._blank(at)
        if not self._text.startswith(text, at):
            raise ValueError(f"{text} is missing")
        return at + len(text)

    def _blank(self, at: int) -> int:
        while at < len(self._text) and self._text[at].isspace():
            at += 1
        return at


def of_python(text: str) -> list[tuple[str, str]]:
    """Names and JSON arguments of the calls in `[f(a=1), g(b="x")]`, in which strings may go over lines. Raises
    ValueError.
    """
    tree = _parsed(text)
    return [_call(node) for node in (tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree])]


def _parsed(text: str) -> ast.expr:
    if len(text) > _MAX_PYTHON:
        raise ValueError("too long")
    try:
        return ast.parse(_STRING.sub(_one_line, text.strip()), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _one_line(string: re.Match[str]) -> str:
    """A string without line ends and without escapes that Python does not know."""
    known = _ESCAPE.sub(lambda escape: escape[0] if escape[1] in _ESCAPES else f"\\{escape[0]}", string[0])
    return known.replace("\r", "\\r").replace("\n", "\\n")


def _call(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args or any(word.arg is None for word in node.keywords):
        raise ValueError("not a call with named arguments")
    arguments = {str(word.arg): _literal(word.value) for word in node.keywords}
    return ast.unparse(node.func), json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _literal(node: ast.expr) -> object:
    """The value of a literal in Python's spelling, or with JSON's three words."""
    words = {"true": True, "false": False, "null": None}
    if isinstance(node, ast.Name) and node.id in words:
        return words[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {
            str(_literal(key)): _literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    try:
        value: object = ast.literal_eval(node)
    except (TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None
    return value
