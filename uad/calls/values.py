"""Arguments that are not written as JSON, made into JSON: texts in tags, tags in tags, Gemma's notation, Python's. Pure
functions of whole texts.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from uad.calls.tools import Schema, resolved, types_in

_WORDS = {"True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_GEMMA = re.compile(
    r"""\s*(?: <\|"\|>(?P<text>.*?)<\|"\|>
    | (?P<mark>[,:{}\[\]])
    | (?!<\|"\|>)(?: "?(?P<name>[^\s,:{}\[\]"]+)"?(?=\s*:)
    | (?P<json>"(?:[^"\\]|\\.)*")
    | (?P<bare>[^\s,:{}\[\]"][^\s,:{}\[\]]*) ))\s*""",
    re.DOTALL | re.VERBOSE,
)
"""A token of Gemma's notation."""
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = "\\'\"abfnrtv01234567xuUN\n"
_MAX_DEPTH = 64
_MAX_PYTHON = 1 << 16
_Node = str | list[tuple[str, "_Node"]]


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
    pieces, at, depth = [], 0, 0
    while at < len(text):
        found = _GEMMA.match(text, at)
        if found is None:
            raise ValueError("a string does not end")
        pieces.append(_gemma_piece(found))
        at = found.end()
        depth += (found["mark"] in ("{", "[")) - (found["mark"] in ("}", "]"))
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
    made = "".join(pieces)
    json.loads(made)
    return made


def _gemma_piece(found: re.Match[str]) -> str:
    """The JSON of one token."""
    if found["mark"]:
        return found["mark"] + (" " if found["mark"] in (",", ":") else "")
    if found["name"]:
        return quoted(found["name"])
    if found["json"]:
        return quoted(json.loads(found["json"]))
    if found["bare"]:
        word = _WORDS.get(found["bare"], found["bare"])
        return word if any(True for _ in _kinds(word)) else quoted(word)
    return quoted(found["text"])


def of_tags(raw: str, mark: str, schema: Schema, root: Schema) -> str:
    """The JSON of a value in which every tag begins with `mark`; a string where the tags do not match."""
    pieces = re.split(rf"{re.escape(mark)}<(/?)([^<>]+)>", raw)
    open_: list[tuple[str, list[tuple[str, _Node]]]] = [("", [])]
    text = pieces[0]
    for slash, name, behind in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        if not slash:
            open_.append((name, []))
        elif len(open_) > 1 and open_[-1][0] == name:
            _, children = open_.pop()
            open_[-1][1].append((name, children or text))
        else:
            return quoted(raw)
        text = behind
    if len(open_) > 1:
        return quoted(raw)
    try:
        return _node_json(open_[0][1] or raw, schema, root, 0)
    except ValueError:
        return quoted(raw)


def _node_json(node: _Node, given: object, root: Schema, depth: int) -> str:
    schema = resolved(given, root) if isinstance(given, Mapping) else {}
    types = types_in(schema, root)
    if isinstance(node, str):
        empty = "[]" if "array" in types else "{}" if "object" in types else ""
        return empty if empty and not node.strip() else of_text(node, types)
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if "array" in types or all(name == "item" for name, _ in node):
        return f"[{', '.join(_node_json(child, schema.get('items'), root, depth + 1) for _, child in node)}]"
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    members = (f"{quoted(name)}: {_node_json(child, known.get(name), root, depth + 1)}" for name, child in node)
    return "{" + ", ".join(members) + "}"


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
