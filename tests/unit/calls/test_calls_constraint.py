"""What a grammar must allow for a call: the example of every format, and schemas where arguments stand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.calls_kit import FORMATS, TOOLS, said

from uad.text.calls.constraint import grammar_of
from uad.text.calls.format import AnswerFormat
from uad.text.calls.lark import (
    AnyRow,
    ArgumentList,
    CallGrammar,
    CallShape,
    FreeText,
    GrammarOpening,
    GrammarPart,
    JsonValue,
    Literal,
    Pattern,
)
from uad.text.calls.tools import Calls, Tool, types_in

EXAMPLE = {"look_up": {"word": "tea", "n": 3}}
OPEN = Tool("open", {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "array"}}})


def grammar(name: str, calls: Calls) -> CallGrammar:
    found = grammar_of(FORMATS[name], calls)
    assert found is not None
    return found


def filled(shape: CallShape, arguments: dict[str, Any]) -> str:
    """A call as a model under the constraint would write it, with these arguments in their order."""
    values = iter(arguments.values())

    def text(part: GrammarPart) -> str:
        match part:
            case Literal():
                return part.text
            case Pattern():
                return "0" if part.regex.startswith("[0-9]") else "a1b2c3d4e"
            case JsonValue():
                return json.dumps(arguments if part.schema.get("type") == "object" else next(values))
            case FreeText():
                return str(next(values))
            case ArgumentList():
                return part.between.join("".join(map(text, one.parts)) for one in part.listed)
            case AnyRow():
                return "".join(map(text, part.rows[0]))

    return "".join(map(text, shape.parts))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_call_of_the_examples_tool_is_the_example(name: str):
    found = grammar(name, Calls(TOOLS[:1], "required"))
    text = found.begin + filled(found.calls[0], EXAMPLE["look_up"]) + found.finish
    assert "".join(text.split()) == "".join(FORMATS[name].example.split())
    assert found.many


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_a_constraint_allows_is_read_as_calls(name: str):
    calls = Calls((*TOOLS[:1], OPEN))
    found = grammar(name, calls)
    arguments = [{"word": "tea", "n": 3}, {"path": "a b", "lines": [1, "x"]}]
    texts = [filled(shape, one) for shape, one in zip(found.calls, arguments, strict=True)]
    heard = said(found.begin + found.between.join(texts) + found.finish, AnswerFormat((FORMATS[name],)), calls)
    assert [(called, json.loads(text)) for called, text, _ in heard.calls] == list(
        zip(("look_up", "open"), arguments, strict=True)
    )


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_grammar_begins_with_its_trigger(name: str):
    found = grammar(name, Calls(TOOLS[:1]))
    assert (found.begin + filled(found.calls[0], EXAMPLE["look_up"])).startswith(found.trigger)


def test_only_a_named_tool_is_allowed_once_and_none_without_tools():
    assert [one.name for one in grammar("hermes", Calls((*TOOLS, OPEN), "open", named=True)).calls] == ["open"]
    assert not grammar("hermes", Calls((*TOOLS, OPEN), "open", named=True)).many
    assert grammar_of(FORMATS["hermes"], Calls()) is None
    assert grammar_of(FORMATS["hermes"], Calls(TOOLS, "none")) is None


def test_triggers_begin_a_lazy_grammar():
    assert grammar("deepseek-v3", Calls(TOOLS)).trigger == "<｜tool▁calls▁begin｜>"
    assert grammar("hermes", Calls(TOOLS)).trigger == "<tool_call>"
    assert {name for name in FORMATS if not grammar(name, Calls(TOOLS)).trigger} == {
        "command-r",
        "firefunction",
        "functionary-3.2",
        "llama-3",
    }


def test_lark_names_special_tokens_and_schemas():
    found = grammar("hermes", Calls(TOOLS[:1], "required", parallel=False))
    lines = found.lark({"<tool_call>": "<[7]>", "<other>": "<[8]>"}, {"item_separator": ", "}).splitlines()
    assert lines[:2] == ["start: calls", 'calls: <[7]> "\\n{\\"name\\": \\"" body ""']
    assert 'call_0: "look_up" "\\", \\"arguments\\": " call_0_2 "}\\n</tool_call>"' in lines
    assert f"call_0_2: %json {json.dumps({'x-guidance': {'item_separator': ', '}, **TOOLS[0].parameters})}" in lines


def takes(text: str, lark: str) -> bool:
    """Whether the grammar allows this text and may end with it."""
    llguidance = pytest.importorskip("llguidance")
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(lark))
    ids = tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_grammar_takes_the_example_and_nothing_else(name: str):
    found, example = grammar(name, Calls((*TOOLS, OPEN), "required")), FORMATS[name].example.strip()
    assert takes(example, found.lark())
    assert not takes(example.replace("look_up", "unknown"), found.lark())
    assert not takes("hello", found.lark())


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_grammar_may_begin_behind_a_trigger_or_a_thought(name: str):
    found, example = grammar(name, Calls((*TOOLS, OPEN), "required")), FORMATS[name].example.strip()
    if found.trigger:
        behind = example.partition(found.trigger)[2]
        assert takes(behind, found.lark(opening=GrammarOpening(after=found.trigger)))
        assert not takes(example, found.lark(opening=GrammarOpening(after=found.trigger)))
    thought = f"{found.thought.start}hm, hm{found.thought.end}"
    gap = found.after_thought or "\n\n"
    thinking = found.lark(opening=GrammarOpening(may_think=True))
    assert takes(thought + gap + example, thinking)
    assert takes(example, thinking)
    assert not takes(thought + thought + example, thinking)
    assert takes(gap + example, found.lark(opening=GrammarOpening(is_thought_over=True)))


def test_an_answer_may_stand_in_place_of_calls():
    found = grammar("hermes", Calls((*TOOLS, OPEN)))
    lark = found.lark(opening=GrammarOpening(answer={"const": 42}))
    assert takes("42", lark)
    assert takes(FORMATS["hermes"].example, lark)
    assert not takes("43", lark)


def test_what_no_call_begins_with_is_refused():
    with pytest.raises(ValueError, match="no call begins with"):
        grammar("hermes", Calls(TOOLS)).lark(opening=GrammarOpening(after="<other>"))


def test_types_of_a_schema():
    root = {
        "$defs": {
            "a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]},
            "b": {"enum": ["x", 1]},
            "c": {"$ref": "#/$defs/c"},
        }
    }
    assert types_in({"$ref": "#/$defs/a"}, root) == {"null", "string", "number"}
    assert types_in({"$ref": "#/$defs/c"}, root) == types_in({"$ref": "#/nowhere"}, root) == frozenset()
    assert types_in({"type": ["string", "null"], "const": True}, root) == {"string", "null", "boolean"}
    endless: dict[str, Any] = {
        "$defs": {"d": {"anyOf": [*({"$ref": "#/$defs/d"} for _ in range(50)), {"type": "array"}]}}
    }
    assert types_in({"$ref": "#/$defs/d"}, endless) == {"array"}
