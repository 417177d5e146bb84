"""Arguments that are written as texts, or as tags in tags, made into JSON. Pure functions of whole texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from uad.calls.notation import LITERAL, read_whole
from uad.calls.scalars import kinds, quoted, spelled
from uad.calls.tools import Schema, resolved, types_in

_MAX_TAGS = 64
_Node = str | list[tuple[str, "_Node"]]


def of_text(raw: str, types: frozenset[str]) -> str:
    """The JSON of a value that was written as plain text, for one of the types that its schema allows (none: any).

    A text that fits no other type of the schema is a string: nothing is lost. Lists and objects may be in Python's
    spelling.
    """
    text = raw.strip()
    if "string" not in types or (text == "None" and "null" in types):
        text = spelled(text)
    for kind in kinds(text):
        if kind == "string" and types:
            break
        if kind in types or not types or (kind == "number" and "integer" in types):
            return text
    if text[:1] in ("[", "{") and (types & {"array", "object"} or not types):
        with suppress(ValueError):
            return read_whole(text, LITERAL)
    return quoted(raw)


def of_json(raw: str) -> str:
    """The JSON of a value that says it is JSON; a string where it is none."""
    text = spelled(raw.strip())
    if any(True for _ in kinds(text)):
        return text
    if text[:1] in ("[", "{", '"'):
        with suppress(ValueError):
            return read_whole(text, LITERAL)
    return quoted(raw)


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
    if depth > _MAX_TAGS:
        raise ValueError("nested too deeply")
    if "array" in types or all(name == "item" for name, _ in node):
        return f"[{', '.join(_node_json(child, schema.get('items'), root, depth + 1) for _, child in node)}]"
    known = schema.get("properties")
    known = known if isinstance(known, Mapping) else {}
    members = (f"{quoted(name)}: {_node_json(child, known.get(name), root, depth + 1)}" for name, child in node)
    return "{" + ", ".join(members) + "}"
