"""A constraint as llguidance takes it: a small JSON document of one grammar or two. Its text is checked first: its
size, and whether an answer can ever end; where it cannot, every answer would take `max_tokens`. Knows no vocabulary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llguidance import LLMatcher

from uad.base.errors import InvalidRequestError
from uad.base.types import Constraint, ConstraintKind
from uad.text.grammar.gbnf import to_lark
from uad.text.grammar.gbnf_reader import MAX_CHARS
from uad.text.grammar.schema_words import Schema, drop_idle_words, listed, schemas_in, target_of

LARK = "%llguidance"
MAX_REGEX = 1 << 16
MAX_CHOICES = 10_000
# Any: llguidance has the type of its options for type checkers only
JSON_STYLE: Any = {
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "coerce_one_of": True,
}
"""White space in JSON: one blank or none after a comma or a colon. So all else is forced, and drafted. `oneOf` is read
as `anyOf` where its parts may overlap.
"""
MAX_PARTS = 10_000  # objects and lists: llguidance calls itself for each level, through references too
MAX_MEMBERS = 2000  # of one object: what they take to compile grows with their square
_MOST_TRIES = 200
_BY_NAME = ("properties", "patternProperties")
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_SINGLE = ("items", "additionalProperties")
_DEFINITIONS = ("$defs", "definitions")
_TOKEN = re.compile(
    r"""(?P<blank>\s+ | //[^\n]* | \#[^\n]* | ->\s*\w+)
    | (?P<text>"(?:[^"\\\n]|\\.)*"i? | /(?:[^/\\\n]|\\.)+/[a-z]* | <[^<>\s]+>)
    | (?P<json>%json\s*(?=\{)) | (?P<name>[!?@]?[a-zA-Z_]\w*) | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_MAY_BE_NONE = re.compile(r"[?*]|\{\s*(?:0\s*)?,|\{\s*0\s*\}")


def source(constraint: Constraint) -> str:
    """The grammar's source. Raises InvalidRequestError."""
    grammar = _inner(constraint)
    if not (constraint.prefix or constraint.suffix or constraint.lead):
        return json.dumps({"grammars": [grammar]})
    lead = ("lead ", f"\n{constraint.lead}") if constraint.lead else ("", "")
    outer = f"start: {lead[0]}{_quoted(constraint.prefix)} @inner {_quoted(constraint.suffix)}{lead[1]}"
    return json.dumps({"grammars": [{"lark_grammar": outer}, grammar | {"name": "inner"}]})


def schema_source(schema: dict[str, object]) -> str:
    """The source of a schema alone."""
    return str(LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=JSON_STYLE))


def _inner(constraint: Constraint) -> dict[str, object]:
    """The constraint's own grammar, as a member of llguidance's `grammars`."""
    text = constraint.text
    match constraint.kind:
        case ConstraintKind.JSON_SCHEMA:
            return _schema(text)
        case ConstraintKind.GRAMMAR:
            return {"lark_grammar": _lark(text) if text.lstrip().startswith(LARK) else to_lark(text)}
        case ConstraintKind.REGEX:
            return _only_of(LLMatcher.grammar_from_regex(_unanchored(_bounded(text, MAX_REGEX))))
        case ConstraintKind.CHOICE:
            return {"lark_grammar": _choice(text)}


def _only_of(document: str) -> dict[str, object]:
    inner: dict[str, object] = json.loads(document)["grammars"][0]
    return inner


def _lark(text: str) -> str:
    try:
        can_end = lark_can_end(_bounded(text, MAX_CHARS))
    except RecursionError:
        can_end = True  # llguidance says what is wrong with it
    if not can_end:
        raise InvalidRequestError(
            "failed to parse grammar: no answer could ever end; give start a way out of recursion"
        )
    return text


def _schema(text: str) -> dict[str, object]:
    try:
        schema = parsed(text)
        inner = _only_of(schema_source(schema))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the schema cannot be read: {error}") from None
    if not schema_can_end(schema):
        raise InvalidRequestError("the schema: no answer could ever end; what it requires contains itself")
    return inner


def _bounded(text: str, n_most: int) -> str:
    if len(text) > n_most:
        raise InvalidRequestError(f"more than {n_most} characters; send something shorter")
    return text


def _unanchored(regex: str) -> str:
    """The whole answer is matched anyway."""
    regex = regex.removeprefix("^")
    n_slashes = len(regex[:-1]) - len(regex[:-1].rstrip("\\"))
    return regex[:-1] if regex.endswith("$") and n_slashes % 2 == 0 else regex


def _choice(text: str) -> str:
    words = json.loads(text)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise InvalidRequestError("must be a list of texts, at least one, none of them empty")
    if len(words) > MAX_CHOICES or sum(map(len, words)) > MAX_CHARS:
        raise InvalidRequestError(f"at most {MAX_CHOICES} texts with {MAX_CHARS} characters in all")
    return f"start: CHOICE\nCHOICE: {' | '.join(map(_quoted, words))}\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# --- schemas


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
    # From the root down, into the first part that fails by itself: of {"properties": {"a": {…}, "b": {"x": 1}}} where
    # "x" is refused, `#` fails, then `#/properties/b`, and no part of that, so that is the place.
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
    """The schemas that a schema is made of, with their pointers. A schema that is referred to stands in the place of
    the reference.
    """
    target = node.get("$ref")
    if isinstance(target, str) and (referred := _at(schema, target)) is not None:
        yield target, referred
    for key in _BY_NAME:
        named = node.get(key)
        for name, child in named.items() if isinstance(named, dict) else ():
            if isinstance(child, dict):
                yield f"{pointer}/{key}/{name}", child
    for key in _LISTS:
        numbered = node.get(key)
        for i, child in enumerate(numbered if isinstance(numbered, list) else ()):
            if isinstance(child, dict):
                yield f"{pointer}/{key}/{i}", child
    for key in _SINGLE:
        single = node.get(key)
        if isinstance(single, dict):
            yield f"{pointer}/{key}", single


def _at(schema: dict[str, object], pointer: str) -> dict[str, object] | None:
    """The schema that a local pointer names; None where it names no schema."""
    value: object = schema
    for name in pointer.removeprefix("#").split("/")[1:]:
        value = value.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value if isinstance(value, dict) and pointer.startswith("#/") else None


# --- whether an answer can end


def schema_can_end(root: Schema) -> bool:
    """Whether some JSON of finite length fits, as far as references and members that are required decide it."""
    # A fixed point from below. In {"$ref": "#/$defs/list"} with list = {"type": "object", "required": ["next"],
    # "properties": {"next": {"$ref": "#/$defs/list"}}} no schema can end before another one can, so none is ever found.
    # With {"anyOf": [{"type": "null"}, list]} for `next` the null is found first, then the anyOf, `next`, the list.
    schemas = list(schemas_in(root))[::-1]
    ends: set[int] = set()

    def can_end(value: object) -> bool:
        return id(value) in ends if isinstance(value, dict) else value is not False

    while grown := {
        id(schema) for schema in schemas if id(schema) not in ends and _fits_something(schema, root, can_end)
    }:
        ends |= grown
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
    return any(_has_value(schema, kind, can_end) for kind in listed(schema.get("type")))


def _has_value(schema: Schema, kind: object, can_end: Any) -> bool:
    if kind == "object":
        known, others = schema.get("properties"), schema.get("additionalProperties", True)
        required = schema.get("required")
        members = known if isinstance(known, dict) else {}
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        return all(can_end(members.get(name, others)) for name in names)
    if kind == "array":
        least, first, items = schema.get("minItems", 0), schema.get("prefixItems"), schema.get("items", True)
        begun = items if isinstance(items, list) else first if isinstance(first, list) else []
        needed = least if isinstance(least, int) else 0
        rest = True if isinstance(items, list) or needed <= len(begun) else can_end(items)
        return rest and all(map(can_end, begun[:needed]))
    return True


def lark_can_end(text: str) -> bool:
    """The same for a grammar in llguidance's notation. A grammar that is not understood counts as if it could end."""
    # `start: "a" start` cannot; `start: "a" start | "b"` can, by its second row, and `start: "a" start?` by its `?`.
    # When a rule is found to end, only the rules that use it are looked at again.
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
    while at < len(text) and (match := _TOKEN.match(text, at)):
        at = match.end()
        if match["json"]:
            try:
                schema, at = json.JSONDecoder().raw_decode(text, at)
                yield '""' if not isinstance(schema, dict) or schema_can_end(schema) else "endless"
            except (ValueError, RecursionError):
                return
        elif not match["blank"]:
            yield '""' if match["text"] else match[0].lstrip("!?") if match["name"] else match[0]


def _rules(tokens: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Each rule's name with the tokens of its body. A name may have options in brackets, or a priority."""
    # A rule has no mark for its end: it is where the name before the next colon begins. In `a [max_tokens=3]: b "c" d:
    # e` the colons are at `]` and d, so the rules begin at a (back over the brackets) and at d.
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
        does_end = row = False
        row = True
        while self._at < len(self._tokens) and self._tokens[self._at] not in (")", "]"):
            token = self._tokens[self._at]
            self._at += 1
            if token == "|":
                does_end, row = does_end or row, True
                continue
            part = self._part(token)
            rest = "".join(self._tokens[self._at : self._at + 3])
            row = row and (part or _MAY_BE_NONE.match(rest) is not None)
            self._skip_repeats()
        return does_end or row

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
