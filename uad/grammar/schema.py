"""JSON schemas before they are compiled: how large they may be, and which part of one is to blame. Knows no grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from uad.errors import InvalidRequestError
from uad.grammar.schema_words import drop_idle_words

MAX_CHARS = 1 << 18
MAX_PARTS = 10_000  # objects and lists: llguidance calls itself for each level, through references too
MAX_MEMBERS = 2000  # of one object: what they take to compile grows with their square
_MOST_TRIES = 200
_BY_NAME = ("properties", "patternProperties")
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_SINGLE = ("items", "additionalProperties")
_DEFINITIONS = ("$defs", "definitions")


def parsed(text: str) -> dict[str, object]:
    """The schema as an object without idle words; `true` allows everything. Raises InvalidRequestError for one that is
    too large.
    """
    if len(text) > MAX_CHARS:
        raise InvalidRequestError(f"the schema has more than {MAX_CHARS} characters; send a smaller one")
    try:
        schema = json.loads(text)
    except RecursionError:
        raise InvalidRequestError("the schema is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequestError(f"the schema is not valid JSON: {error}") from None
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise InvalidRequestError("the schema must be a JSON object, such as {}, which allows any JSON")
    _check_size(schema)
    return drop_idle_words(schema)


def _check_size(schema: dict[str, object]) -> None:
    waiting: list[object] = [schema]
    n = 0
    while waiting:
        value = waiting.pop()
        if not isinstance(value, dict | list):
            continue
        n += 1
        if n > MAX_PARTS:
            raise InvalidRequestError(f"the schema has more than {MAX_PARTS} objects and lists; send a smaller one")
        if isinstance(value, dict) and len(value) > MAX_MEMBERS:
            raise InvalidRequestError(
                f"an object of the schema has more than {MAX_MEMBERS} members; send a smaller one"
            )
        waiting += value.values() if isinstance(value, dict) else value


def culprit(schema: dict[str, object], fails: Callable[[dict[str, object]], bool]) -> str:
    """JSON pointer of the smallest part that fails alone, as `#/properties/name`; `#` where none does."""
    definitions = {name: schema[name] for name in _DEFINITIONS if name in schema}
    pointer, node, n_tries = "#", schema, 0
    seen = {pointer}
    while True:
        for where, child in _parts(schema, pointer, node):
            n_tries += 1
            if n_tries > _MOST_TRIES:
                return pointer
            if where not in seen and fails(definitions | child):
                pointer, node = where, child
                seen.add(where)
                break
        else:
            return pointer


def _parts(schema: dict[str, object], pointer: str, node: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """The schemas that a schema is made of, with their pointers. What it refers to stands in its place."""
    target = node.get("$ref")
    if isinstance(target, str) and (referred := _at(schema, target)) is not None:
        yield target, referred
    for key in _BY_NAME:
        named = node.get(key)
        for name, child in named.items() if isinstance(named, dict) else ():
            if isinstance(child, dict):
                yield f"{pointer}/{key}/{name}", child
    for key in _LISTS:
        listed = node.get(key)
        for i, child in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(child, dict):
                yield f"{pointer}/{key}/{i}", child
    for key in _SINGLE:
        single = node.get(key)
        if isinstance(single, dict):
            yield f"{pointer}/{key}", single


def _at(schema: dict[str, object], pointer: str) -> dict[str, object] | None:
    """What a local pointer names; None where that is no schema."""
    value: object = schema
    for name in pointer.removeprefix("#").split("/")[1:]:
        value = value.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value if isinstance(value, dict) and pointer.startswith("#/") else None
