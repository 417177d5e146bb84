"""What a grammar must allow for a call: the example of every format, and schemas where arguments stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from calls_kit import FORMATS, TOOLS, said

from uad.calls.constraint import CallShape, Constraint, Json, Literal, Maybe, Part, Pattern, Text, constraint_of
from uad.calls.format import AnswerFormat
from uad.calls.tools import Calls, Tool, types_in

EXAMPLE = {"look_up": {"word": "tea", "n": 3}}
OPEN = Tool("open", {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "array"}}})


def constraint(name: str, calls: Calls) -> Constraint:
    found = constraint_of(FORMATS[name], calls)
    assert found is not None
    return found


def filled(shape: CallShape, arguments: dict[str, Any]) -> str:
    """A call as a model under the constraint would write it, with these arguments in their order."""
    values = iter(arguments.values())

    def text(part: Part) -> str:
        match part:
            case Literal():
                return part.text
            case Pattern():
                return "0" if part.regex.startswith("[0-9]") else "a1b2c3d4e"
            case Json():
                return json.dumps(arguments if part.schema.get("type") == "object" else next(values))
            case Text():
                return str(next(values))
            case Maybe():
                return "".join(map(text, part.parts))

    return "".join(map(text, shape.parts))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_call_of_the_examples_tool_is_the_example(name: str):
    found = constraint(name, Calls(TOOLS[:1], "required"))
    text = found.begin + filled(found.calls[0], EXAMPLE["look_up"]) + found.finish
    assert "".join(text.split()) == "".join(FORMATS[name].example.split())
    assert (found.required, found.many) == (True, True)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_a_constraint_allows_is_read_as_calls(name: str):
    calls = Calls((*TOOLS[:1], OPEN))
    found = constraint(name, calls)
    arguments = [{"word": "tea", "n": 3}, {"path": "a b", "lines": [1, "x"]}]
    texts = [filled(shape, one) for shape, one in zip(found.calls, arguments, strict=True)]
    heard = said(found.begin + found.between.join(texts) + found.finish, AnswerFormat((FORMATS[name],)), calls)
    assert [(called, json.loads(text)) for called, text, _ in heard.calls] == list(zip(("look_up", "open"), arguments, strict=True))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_constraint_begins_with_its_trigger(name: str):
    found = constraint(name, Calls(TOOLS[:1]))
    assert (found.begin + filled(found.calls[0], EXAMPLE["look_up"])).startswith(found.trigger)


def test_only_a_named_tool_is_allowed_and_none_without_tools():
    assert [one.name for one in constraint("hermes", Calls((*TOOLS, OPEN), "open", named=True)).calls] == ["open"]
    assert constraint_of(FORMATS["hermes"], Calls()) is None
    assert constraint_of(FORMATS["hermes"], Calls(TOOLS, "none")) is None


def test_a_trigger_begins_a_lazy_grammar():
    assert constraint("deepseek-v3", Calls(TOOLS)).trigger == "<｜tool▁calls▁begin｜>"
    assert constraint("llama-3", Calls(TOOLS)).trigger == '{"name": "'
    assert constraint("harmony", Calls(TOOLS)).trigger == "<|channel|>commentary to=functions."
    assert not constraint("hermes", Calls(TOOLS)).required


def test_lark_names_special_tokens_and_schemas():
    grammar = constraint("hermes", Calls(TOOLS[:1], "required", parallel=False)).lark(
        lambda name: "<[7]>" if name == "<tool_call>" else None
    )
    assert grammar.splitlines()[:2] == ['start: "" call ""', "call: call_0"]
    assert 'call_0: <[7]> "\\n{\\"name\\": \\"" "look_up" "\\", \\"arguments\\": " call_0_3 "}\\n" "</tool_call>"' in grammar
    assert f"call_0_3: %json {json.dumps(TOOLS[0].parameters)}" in grammar


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_grammar_takes_the_example_and_nothing_else(name: str):
    llguidance = pytest.importorskip("llguidance")
    tokenizer = llguidance.LLTokenizer("byte")
    grammar = llguidance.LLMatcher.grammar_from_lark(constraint(name, Calls((*TOOLS, OPEN), "required")).lark())
    example = FORMATS[name].example.strip()
    for text, fits in ((example, True), (example.replace("look_up", "unknown"), False), ("hello", False)):
        ids = tokenizer.tokenize_str(text)
        assert (llguidance.LLMatcher(tokenizer, grammar).validate_tokens(ids) == len(ids)) == fits


def test_types_of_a_schema():
    root = {"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"enum": ["x", 1]}, "c": {"$ref": "#/$defs/c"}}}
    assert types_in({"$ref": "#/$defs/a"}, root) == {"null", "string", "number"}
    assert types_in({"$ref": "#/$defs/c"}, root) == types_in({"$ref": "#/nowhere"}, root) == frozenset()
    assert types_in({"type": ["string", "null"], "const": True}, root) == {"string", "null", "boolean"}
    endless: dict[str, Any] = {"$defs": {"d": {"anyOf": [*({"$ref": "#/$defs/d"} for _ in range(50)), {"type": "array"}]}}}
    assert types_in({"$ref": "#/$defs/d"}, endless) == {"array"}
