"""The tools of a request, and which of them may be called. Knows no format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ToolSchema = Mapping[str, Any]
MAX_REFS = 16


@dataclass(frozen=True)
class Tool:
    """One function. `parameters` is the JSON schema of its arguments, an object's; strict: each call of it must keep to
    that.
    """

    name: str
    parameters: ToolSchema = field(default_factory=dict)
    strict: bool = False

    def schema_of(self, argument: str) -> ToolSchema:
        """The schema of one argument; empty where the tool does not know it."""
        schemas = list(_named(argument, self.parameters))
        return {"anyOf": schemas} if len(schemas) > 1 else resolved(schemas[0], self.parameters) if schemas else {}

    def types_of(self, argument: str) -> frozenset[str]:
        """The JSON types that an argument may have; empty where its schema names none."""
        return types_in(self.schema_of(argument), self.parameters)


@dataclass(frozen=True)
class Calls:
    """The part of a request that is about calls. `choice`: none, auto, required, or the name of the one tool that must
    be called. answered: the calls whose results the model has just been given, each a name and arguments.
    """

    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    named: bool = False
    parallel: bool = True
    answered: tuple[tuple[str, object], ...] = ()

    @property
    def are_possible(self) -> bool:
        """Whether an answer may hold calls."""
        return bool(self.tools) and (self.named or self.choice != "none")

    @property
    def are_required(self) -> bool:
        """Whether an answer must hold one."""
        return bool(self.tools) and (self.named or self.choice == "required")

    def allowed(self) -> tuple[Tool, ...]:
        """The tools that may be called."""
        if not self.are_possible:
            return ()
        return tuple(tool for tool in self.tools if tool.name == self.choice) if self.named else self.tools


def _named(argument: str, root: ToolSchema) -> Iterator[ToolSchema]:
    """All that a schema of arguments says of one of them, wherever it does: in references, parts and alternatives too,
    and of names that it does not list.
    """
    # {"$ref": "#/$defs/A", "anyOf": [{"properties": {"n": X}}, {"additionalProperties": Y}]} says X and Y of "n", and
    # what A says.
    for schema in _parts(root, root):
        listed, patterns = schema.get("properties"), schema.get("patternProperties")
        others = schema.get("additionalProperties")
        if isinstance(listed, Mapping) and argument in listed:
            schemas = [listed[argument]]
        else:
            fitting = patterns.items() if isinstance(patterns, Mapping) else ()
            schemas = [schema for pattern, schema in fitting if _matches(pattern, argument)] or [others]
        yield from (schema for schema in schemas if isinstance(schema, Mapping))


def _parts(schema: ToolSchema, root: ToolSchema) -> Iterator[ToolSchema]:
    """The schemas that a schema refers to, its parts and its alternatives. Those that refer to themselves are looked at
    once.
    """
    waiting, seen = [schema], set[int]()
    while waiting:
        current = resolved(waiting.pop(), root)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        for name in ("allOf", "anyOf", "oneOf"):
            parts = current.get(name)
            waiting += [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def resolved(schema: ToolSchema, root: ToolSchema) -> ToolSchema:
    """The schema that `$ref` leads to, within the same document; empty where it leads nowhere."""
    for _ in range(MAX_REFS):
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return schema
        value: Any = root
        for step in ref.removeprefix("#").split("/")[1:]:
            value = value.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(value, Mapping) else None
        if not isinstance(value, Mapping):
            return {}
        schema = value
    return {}


def types_in(schema: ToolSchema, root: ToolSchema) -> frozenset[str]:
    """The JSON types that a schema names: its own, those of its parts and alternatives, and those of its constants."""
    types: set[str] = set()
    for part in _parts(schema, root):
        constants = part.get("enum")
        types |= {kind for kind in listed(part.get("type")) if isinstance(kind, str)}
        types |= {type_of(value) for value in constants} if isinstance(constants, list) else set()
        types |= {type_of(part["const"])} if "const" in part else set()
    return frozenset(types)


def listed(word: object) -> list[object]:
    """The values of a schema's word such as `type`, as a list; it may name one thing or several."""
    return word if isinstance(word, list) else [word]


def type_of(value: object) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, Mapping) else "array"
