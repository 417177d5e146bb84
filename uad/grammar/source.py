"""A constraint as llguidance takes it: a small JSON document of one grammar or two. Knows no vocabulary."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher

from uad.errors import InvalidRequestError
from uad.grammar.ending import lark_can_end, schema_can_end
from uad.grammar.gbnf import to_lark
from uad.grammar.gbnf_reader import MAX_CHARS
from uad.grammar.schema import parsed
from uad.types import Constraint, ConstraintKind

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
