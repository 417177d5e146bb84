"""Constraints under which no answer could ever end, in every notation."""

from __future__ import annotations

import pytest
from kit.grammar_kit import GRAMMARS, fits, grammar, schema

from uad.base.errors import InvalidRequestError
from uad.base.types import Constraint

LARK = "%llguidance {}\n"
NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}


@pytest.mark.parametrize(
    "constraint",
    [
        grammar('root ::= "a" root'),
        grammar('root ::= x\nx ::= "a" (x | y)+\ny ::= "b" x{2}'),
        grammar('root ::= "a"{0} x\nx ::= x "b" | "c" x'),
        grammar(f'{LARK}start: "a" start'),
        grammar(f'{LARK}start: x{{2}} | "b" y\nx: "a" x // so on\n  | "c" (x | y)\ny: x+'),
        grammar(f'{LARK}start: "a" j\nj: %json {{"$ref": "#"}}'),
        schema({"$ref": "#"}),
        schema(NODE),
        schema({"type": "array", "minItems": 1, "items": {"$ref": "#"}}),
        schema({"anyOf": [NODE, {"type": "object", "required": ["a"], "additionalProperties": False}]}),
        schema(
            {"allOf": [{"type": "object"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}
        ),
    ],
)
def test_what_can_never_end_is_refused(constraint: Constraint) -> None:
    with pytest.raises(InvalidRequestError, match="no answer could ever end"):
        GRAMMARS.check(constraint)


@pytest.mark.parametrize(
    ("constraint", "answer"),
    [
        (grammar('root ::= "a" root | "b"'), "aab"),
        (grammar('root ::= x?\nx ::= "a" x'), ""),
        (grammar('root ::= "a" | "b" x\nx ::= "c" x'), "a"),
        (grammar(f'{LARK}start: "a" start?'), "aa"),
        (grammar(f'{LARK}start: "a" start{{0,2}} | /x: y/'), "x: y"),
        (grammar(f'{LARK}start: x\nx[capture]: "a" [x]'), "aa"),
        (
            grammar(f'{LARK}start: "b" j\nj: %json {{"anyOf": [{{"$ref": "#"}}, {{"const": 1}}]}}'),
            "b1",
        ),
        (schema({**NODE, "required": []}), "{}"),
        (schema({**NODE, "type": ["object", "null"]}), "null"),
        (schema({"type": "array", "items": {"$ref": "#"}}), "[[],[]]"),
        (schema({"anyOf": [NODE, {"type": "null"}]}), "null"),
    ],
)
def test_what_may_end_is_taken(constraint: Constraint, answer: str) -> None:
    assert fits(constraint, answer)


def test_required_members_without_a_name_are_an_error_of_the_schema() -> None:
    with pytest.raises(InvalidRequestError, match="Expected string for 'required'"):
        GRAMMARS.check(schema({"type": "object", "required": [{"a": 1}]}))
