"""Whether an answer that a constraint describes can ever end. Where it cannot, every answer would take `max_tokens`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from uad.grammar.schema_words import Schema, schemas_in, target_of

_TOKEN = re.compile(
    r"""(?P<blank>\s+ | //[^\n]* | \#[^\n]* | ->\s*\w+)
    | (?P<text>"(?:[^"\\\n]|\\.)*"i? | /(?:[^/\\\n]|\\.)+/[a-z]* | <[^<>\s]+>)
    | (?P<json>%json\s*(?=\{)) | (?P<name>[!?@]?[a-zA-Z_]\w*) | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_MAY_BE_NONE = re.compile(r"[?*]|\{\s*(?:0\s*)?,|\{\s*0\s*\}")


def schema_can_end(root: Schema) -> bool:
    """Whether some JSON of finite length fits, as far as references and members that are required decide it."""
    schemas = list(schemas_in(root))[::-1]
    ends: set[int] = set()

    def can_end(value: object) -> bool:
        return id(value) in ends if isinstance(value, dict) else value is not False

    while found := {id(one) for one in schemas if id(one) not in ends and _fits_something(one, root, can_end)}:
        ends |= found
    return id(root) in ends


def _fits_something(schema: Schema, root: Schema, can_end: Any) -> bool:
    """Whether a schema allows something finite, by what is known of its parts."""
    target = target_of(root, schema)
    if target is not None and not can_end(target):
        return False
    for name, enough in (("allOf", all), ("anyOf", any), ("oneOf", any)):
        parts = schema.get(name)
        if isinstance(parts, list) and parts and not enough(map(can_end, parts)):
            return False
    if "enum" in schema or "const" in schema:
        return True
    types = schema.get("type")
    named = types if isinstance(types, list) else [types]
    return any(_has_value(schema, kind, can_end) for kind in named)


def _has_value(schema: Schema, kind: object, can_end: Any) -> bool:
    if kind == "object":
        known, others = schema.get("properties"), schema.get("additionalProperties", True)
        required = schema.get("required")
        members = known if isinstance(known, dict) else {}
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        return all(can_end(members.get(name, others)) for name in names)
    if kind == "array":
        least, first, items = schema.get("minItems", 0), schema.get("prefixItems"), schema.get("items", True)
        listed = items if isinstance(items, list) else first if isinstance(first, list) else []
        needed = least if isinstance(least, int) else 0
        rest = True if isinstance(items, list) or needed <= len(listed) else can_end(items)
        return rest and all(map(can_end, listed[:needed]))
    return True


def lark_can_end(text: str) -> bool:
    """The same for a grammar in llguidance's notation. What is not understood counts as if it could end."""
    rules = dict(_rules(list(_tokens(text))))
    ends: set[str] = set()
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        for used in {token for token in body if token in rules}:
            users[used].append(name)
    waiting = [*rules]
    while waiting:
        name = waiting.pop()
        if name not in ends and _RuleBody(rules[name], rules, ends).can_end():
            ends.add(name)
            waiting += users[name]
    return "start" not in rules or "start" in ends


def _tokens(text: str) -> Iterator[str]:
    """Names and marks; a text counts as `""`, a schema as that or as `endless`."""
    at = 0
    while at < len(text) and (found := _TOKEN.match(text, at)):
        at = found.end()
        if found["json"]:
            try:
                schema, at = json.JSONDecoder().raw_decode(text, at)
                yield '""' if not isinstance(schema, dict) or schema_can_end(schema) else "endless"
            except (ValueError, RecursionError):
                return
        elif not found["blank"]:
            yield '""' if found["text"] else found[0].lstrip("!?") if found["name"] else found[0]


def _rules(tokens: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each rule's name with the tokens of its body. A name may have options in brackets, or a priority."""
    starts: list[tuple[int, int]] = []
    for at, token in enumerate(tokens):
        if token == ":":
            begin = at - 1
            if begin > 0 and tokens[begin] == "]":
                while begin > 0 and tokens[begin] != "[":
                    begin -= 1
                begin -= 1
            starts.append((begin, at + 1))
    for (begin, first), (end, _) in zip(starts, [*starts[1:], (len(tokens), 0)], strict=True):
        yield tokens[begin], tokens[first:end]


class _RuleBody:
    """One rule's body, read from left to right: alternatives of rows of parts."""

    def __init__(self, tokens: Sequence[str], rules: dict[str, list[str]], ends: set[str]) -> None:
        self._tokens = tokens
        self._rules = rules
        self._ends = ends
        self._at = 0

    def can_end(self) -> bool:
        """Whether one of the alternatives can."""
        found = row = False
        row = True
        while self._at < len(self._tokens) and self._tokens[self._at] not in (")", "]"):
            token = self._tokens[self._at]
            self._at += 1
            if token == "|":
                found, row = found or row, True
                continue
            part = self._part(token)
            rest = "".join(self._tokens[self._at : self._at + 3])
            row = row and (part or _MAY_BE_NONE.match(rest) is not None)
            self._skip_repeats()
        return found or row

    def _part(self, token: str) -> bool:
        if token in ("(", "["):
            inner = self.can_end()
            self._at += 1
            return inner or token == "["
        if token == "endless":
            return False
        return token not in self._rules or token in self._ends

    def _skip_repeats(self) -> None:
        while self._at < len(self._tokens) and self._tokens[self._at] in ("?", "*", "+", "{"):
            if self._tokens[self._at] == "{":
                while self._at < len(self._tokens) and self._tokens[self._at] != "}":
                    self._at += 1
            self._at += 1
