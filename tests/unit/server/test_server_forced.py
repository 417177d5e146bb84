"""Constraints after thoughts, and how many calls an answer that must call may have: over HTTP, on all APIs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kit.calls_kit import FORMATS
from kit.fake_runtime import CONFIG, FakeRuntime
from kit.grammar_kit import fits
from kit.server_kit import CHAT, HELLO, post

from uad.base.types import Constraint, ConstraintKind
from uad.text.calls.constraint import ASSISTANT
from uad.text.calls.format import THINK_TAGS, AnswerFormat
from uad.text.mapping.families import bundled_mappings, load_families

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
OBJECT, YES = '{"a":1}', "yes"
GBNF, LARK = 'root ::= "yes" | "no"', '%llguidance {}\nstart: "yes" | "no"'
CONSTRAINTS: Mapping[str, tuple[dict[str, Any], str]] = {
    "response_format": ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, OBJECT),
    "json_object": ({"response_format": {"type": "json_object"}}, OBJECT),
    "json_schema": ({"json_schema": SCHEMA}, OBJECT),
    "GBNF": ({"grammar": GBNF}, YES),
    "Lark": ({"grammar": LARK}, YES),
    "guided_json": ({"guided_json": SCHEMA}, OBJECT),
    "guided_regex": ({"guided_regex": "yes|no"}, YES),
    "guided_choice": ({"guided_choice": ["yes", "no"]}, YES),
    "guided_grammar": ({"guided_grammar": GBNF}, YES),
    "outputs json": ({"structured_outputs": {"json": SCHEMA}}, OBJECT),
    "outputs regex": ({"structured_outputs": {"regex": "yes|no"}}, YES),
    "outputs choice": ({"structured_outputs": {"choice": ["yes", "no"]}}, YES),
    "outputs grammar": ({"structured_outputs": {"grammar": LARK}}, YES),
    "outputs object": ({"structured_outputs": {"json_object": True}}, OBJECT),
}
BODIES: Mapping[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    RESPONSES: {"input": "hello"},
    MESSAGES: {"messages": HELLO, "max_tokens": 100},
}
SERVERS = {
    "--grammar": (Constraint(ConstraintKind.GRAMMAR, GBNF), YES),
    "--grammar in Lark": (Constraint(ConstraintKind.GRAMMAR, LARK), YES),
    "--json-schema": (Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)), OBJECT),
}
FAMILIES = load_families([bundled_mappings()]).values()
THOUGHTS = list(dict.fromkeys([THINK_TAGS, *(one.thought for one in FAMILIES if one.thought is not None)]))
ANSWERS = {
    **{one.start.strip(): AnswerFormat((FORMATS["hermes"],), one, thinks=True) for one in THOUGHTS},
    "harmony": AnswerFormat((FORMATS["harmony"],), thinks=True),
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("look_up", "say")
]
CALL = '<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>'


@dataclass
class Thinking(FakeRuntime):
    """A model whose prompts end so."""

    ending: str = ""

    def chat_text(self, *args: Any, **options: Any) -> str:
        return super().chat_text(*args, **options) + self.ending


def bound(
    path: str, answers: AnswerFormat, ending: str, more: dict[str, Any], own: Constraint | None = None
) -> Constraint:
    """What the model's answer is bound by."""
    fake = Thinking(answers=answers, ending=ending, config=replace(CONFIG, constraint=own))
    status, answer = post(path, {**BODIES[path], **more}, fake)
    assert status == 200, answer
    found = fake.requests[-1].constraint
    assert found is not None
    return found


def check(path: str, answers: AnswerFormat, more: dict[str, Any], expected: str, own: Constraint | None = None) -> None:
    """Thoughts are free, and the answer after them is bound; so it is without thoughts."""
    start, end = answers.marks.start.strip(), answers.marks.end.strip()
    header = "<|start|>assistant<|channel|>final<|message|>" if answers.channels else ""
    first = header.removeprefix(ASSISTANT)
    may = bound(path, answers, ASSISTANT if answers.channels else "", more, own)
    assert fits(may, first + expected)
    assert fits(may, f"{start}well, no{end}{header}{expected}")
    assert not fits(may, f"{start}well, no{end}{header}well")
    assert not fits(may, "well")
    begun = bound(path, answers, answers.marks.start, more, own)
    if answers.opens_thought(answers.marks.start):
        assert fits(begun, f"well, no{end}{header}{expected}")
        assert not fits(begun, f"well, no{end}{header}well")


@pytest.mark.parametrize(
    ("model", "name"),
    [(model, name) for i, model in enumerate(ANSWERS) for j, name in enumerate(CONSTRAINTS) if (i + j) % 4 == 0],
)
def test_an_answer_is_bound_after_free_thoughts(model: str, name: str) -> None:
    check(CHAT, ANSWERS[model], *CONSTRAINTS[name])


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
@pytest.mark.parametrize("name", [name for name, (more, _) in CONSTRAINTS.items() if "response_format" not in more])
def test_other_apis_take_the_same_fields(path: str, name: str) -> None:
    for model in ("<think>", "harmony"):
        check(path, ANSWERS[model], *CONSTRAINTS[name])


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
    ],
)
def test_each_api_has_a_form_of_its_own(path: str, more: dict[str, Any]) -> None:
    for model in ("<think>", "harmony"):
        check(path, ANSWERS[model], more, OBJECT)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", SERVERS)
def test_what_the_server_was_started_with_holds_after_thoughts(name: str, path: str) -> None:
    own, expected = SERVERS[name]
    for model in ("<think>", "harmony"):
        check(path, ANSWERS[model], {}, expected, own)


def asked(path: str, choice: str, parallel: bool | None) -> dict[str, Any]:
    """A request with tools in an API's words."""
    functions = [tool["function"] for tool in TOOLS]
    if path == MESSAGES:
        kind = {"type": "any" if choice == "required" else choice}
        tools: Sequence[Any] = [{"name": one["name"], "input_schema": one["parameters"]} for one in functions]
        more = {} if parallel is None else {"disable_parallel_tool_use": not parallel}
        return {"tools": tools, "tool_choice": {**kind, **more}}
    tools = [{"type": "function", "strict": False, **one} for one in functions] if path == RESPONSES else TOOLS
    return {"tools": tools, "tool_choice": choice, **({} if parallel is None else {"parallel_tool_calls": parallel})}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(("parallel", "takes_two"), [(None, False), (False, False), (True, True)])
def test_a_required_call_comes_alone_unless_several_are_asked_for(
    path: str, parallel: bool | None, takes_two: bool
) -> None:
    found = bound(path, AnswerFormat((FORMATS["hermes"],)), "", asked(path, "required", parallel))
    assert fits(found, CALL)
    assert fits(found, f"{CALL}\n{CALL}") is takes_two


@pytest.mark.parametrize("name", SERVERS)
def test_a_required_call_goes_before_what_the_server_was_started_with(name: str) -> None:
    own, expected = SERVERS[name]
    required, free = (
        bound(CHAT, AnswerFormat((FORMATS["hermes"],)), "", asked(CHAT, choice, None), own)
        for choice in ("required", "auto")
    )
    assert fits(required, CALL)
    assert not fits(required, expected)
    assert fits(free, expected)


@pytest.mark.parametrize(("parallel", "takes_two"), [(None, True), (False, False), (True, True)])
def test_strict_tools_may_be_called_several_times_unless_that_is_switched_off(
    parallel: bool | None, takes_two: bool
) -> None:
    tools = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
    found = bound(CHAT, AnswerFormat((FORMATS["hermes"],)), "", {**asked(CHAT, "auto", parallel), "tools": tools})
    assert fits(found, f"Well. {CALL}")
    assert fits(found, f"Well. {CALL}\n{CALL}") is takes_two


@pytest.mark.parametrize(("parallel", "n_calls"), [(None, 2), (False, 1), (True, 2)])
def test_calls_of_a_free_answer_are_all_read_unless_that_is_switched_off(parallel: bool | None, n_calls: int) -> None:
    fake = FakeRuntime(script=lambda request: f"{CALL}\n{CALL}".encode(), answers=AnswerFormat((FORMATS["hermes"],)))
    status, answer = post(CHAT, {**BODIES[CHAT], **asked(CHAT, "auto", parallel)}, fake)
    assert status == 200
    assert len(answer["choices"][0]["message"]["tool_calls"]) == n_calls


@pytest.mark.parametrize(("choice", "parallel"), [("auto", True), ("required", False)])
def test_a_response_says_whether_several_calls_are_possible(choice: str, parallel: bool) -> None:
    fake = FakeRuntime(script=lambda request: CALL.encode(), answers=AnswerFormat((FORMATS["hermes"],)))
    status, answer = post(RESPONSES, {**BODIES[RESPONSES], **asked(RESPONSES, choice, None)}, fake)
    assert (status, answer["parallel_tool_calls"]) == (200, parallel)


def test_a_schema_of_arguments_that_is_not_understood_is_400_with_its_place() -> None:
    def refused(parameters: dict[str, Any], choice: str = "required") -> tuple[int, str]:
        tool = {"type": "function", "function": {"name": "speak", "parameters": parameters}}
        fake = FakeRuntime(answers=AnswerFormat((FORMATS["qwen3-coder"],)))
        status, answer = post(CHAT, {**BODIES[CHAT], "tools": [*TOOLS, tool], "tool_choice": choice}, fake)
        return status, answer.get("error", {}).get("param", "")

    where = "tools.2.function.parameters"
    assert refused({"not": {"required": ["a"]}}) == (400, where)
    assert refused({"type": "string"}) == (400, where)
    assert refused({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}) == (400, where)
    assert refused({"not": {"required": ["a"]}}, "auto") == (200, "")
