"""Lists and objects that are written as tags in tags, made into JSON with the types of a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping

from uad.calls.tools import Schema, resolved, types_in
from uad.calls.values import of_text, quoted

_MAX_DEPTH = 64
_Node = str | list[tuple[str, "_Node"]]


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
        return _json(open_[0][1] or raw, schema, root, 0)
    except ValueError:
        return quoted(raw)


def _json(node: _Node, schema: Schema, root: Schema, depth: int) -> str:
    schema = resolved(schema, root)
    types = types_in(schema, root)
    if isinstance(node, str):
        empty = "[]" if "array" in types else "{}" if "object" in types else ""
        return empty if empty and not node.strip() else of_text(node, types)
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if "array" in types or all(name == "item" for name, _ in node):
        return "[" + ", ".join(_json(child, _of(schema.get("items")), root, depth + 1) for _, child in node) + "]"
    known = _of(schema.get("properties"))
    members = (f"{quoted(name)}: {_json(child, _of(known.get(name)), root, depth + 1)}" for name, child in node)
    return "{" + ", ".join(members) + "}"


def _of(schema: object) -> Schema:
    return schema if isinstance(schema, Mapping) else {}
