"""Every spelling of a constraint, what it becomes, and what is refused. No model."""

from __future__ import annotations

import json

import pytest
from kit.calls_kit import FORMATS
from kit.fake_runtime import CONFIG, FakeRuntime
from kit.server_kit import CHAT, HELLO, post

from uad.base.config import Config
from uad.base.types import Constraint, ConstraintKind
from uad.text.calls.format import AnswerFormat

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
JSON = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA))
ANY_OBJECT = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps({"type": "object"}))
ANY = Constraint(ConstraintKind.JSON_SCHEMA, "{}")
GBNF = Constraint(ConstraintKind.GRAMMAR, 'root ::= "x"')
REGEX = Constraint(ConstraintKind.REGEX, "a+")
CHOICE = Constraint(ConstraintKind.CHOICE, '["a", "b"]')


def asked(path: str = CHAT, fake: FakeRuntime | None = None, **members: object) -> Constraint | None:
    fake = fake or FakeRuntime()
    body = {"messages": HELLO, **members} if path == CHAT else {"prompt": "ab", **members}
    status, answer = post(path, body, fake)
    assert status == 200, answer
    assert all(thread.startswith("uad-http") for thread in fake.threads), "compiled on the event loop"
    return fake.requests[-1].constraint


def refused(**members: object) -> tuple[str, str]:
    status, answer = post(CHAT, {"messages": HELLO, **members})
    assert status == 400, answer
    return answer["error"]["param"], answer["error"]["message"]


SPELLINGS = [
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
        JSON,
    ),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": None}}}, ANY),
    ({"response_format": {"type": "json_object"}}, ANY_OBJECT),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, JSON),
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {}}, None),
    ({"json_schema": SCHEMA}, JSON),
    ({"json_schema": {}}, ANY),
    ({"json_schema": json.dumps(SCHEMA)}, JSON),
    ({"grammar": 'root ::= "x"'}, GBNF),
    ({"grammar": ""}, None),
    ({"guided_json": SCHEMA}, JSON),
    ({"guided_json": json.dumps(SCHEMA)}, JSON),
    ({"guided_regex": "a+"}, REGEX),
    ({"guided_choice": ["a", "b"]}, CHOICE),
    ({"guided_grammar": 'root ::= "x"'}, GBNF),
    ({"structured_outputs": {"json": SCHEMA}}, JSON),
    ({"structured_outputs": {"regex": "a+", "json": None}}, REGEX),
    ({"structured_outputs": {"choice": ["a", "b"], "json_object": False}}, CHOICE),
    ({"structured_outputs": {"grammar": 'root ::= "x"'}}, GBNF),
    ({"structured_outputs": {"json_object": True}}, ANY_OBJECT),
    ({"guided_json": None, "structured_outputs": None}, None),
    ({"response_format": {"type": "text"}, "grammar": "", "guided_regex": "a+"}, REGEX),
]


@pytest.mark.parametrize(("members", "expected"), SPELLINGS)
def test_spellings(members: dict, expected: Constraint | None) -> None:
    for path in (CHAT, "/v1/completions", "/completion"):
        assert asked(path, **members) == expected


@pytest.mark.parametrize(
    ("members", "param", "words"),
    [
        ({"response_format": "json"}, "response_format", "must be an object"),
        (
            {"response_format": {"type": "sound"}},
            "response_format.type",
            "text, json_object or json_schema, not 'sound'",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "must be an object"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
            "response_format.json_schema.schema",
            "JSON schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"strict": "yes"}}},
            "response_format.json_schema.strict",
            "true or",
        ),
        (
            {"response_format": {"type": "json_object", "schema": 123}},
            "response_format.schema",
            "must be a JSON schema",
        ),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}},
            "response_format",
            "Invalid type: hiccup (at #)",
        ),
        ({"json_schema": [1]}, "json_schema", "must be a JSON schema"),
        ({"json_schema": {"properties": {"a": {"not": {}}}}}, "json_schema", "(at #/properties/a)"),
        ({"grammar": 7}, "grammar", "must be a string"),
        ({"grammar": "root ::= x"}, "grammar", "failed to parse grammar: no rule is named 'x' at line 1, column 10"),
        ({"guided_json": "{"}, "guided_json", "not valid JSON"),
        ({"guided_regex": "("}, "guided_regex", "unclosed group"),
        ({"guided_choice": "a"}, "guided_choice", "must be a list of strings"),
        ({"guided_choice": [1]}, "guided_choice", "must be a list of strings"),
        ({"guided_choice": [""]}, "guided_choice", "none of them empty"),
        (
            {"structured_outputs": {}},
            "structured_outputs",
            "must have one of json, regex, choice, grammar, json_object",
        ),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs", "must have one of"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs", "must have one of"),
        (
            {"grammar": 'root ::= "x"', "json_schema": {}},
            "grammar",
            "json_schema and grammar: an answer can have one constraint",
        ),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "can have one constraint"),
    ],
)
def test_refusals(members: dict, param: str, words: str) -> None:
    where, message = refused(**members)
    assert where == param
    assert words in message


@pytest.mark.parametrize("depth", [100, 400, 900])
def test_deep_schemas(depth: int) -> None:
    text = '{"items":' * depth + "{}" + "}" * depth
    status, answer = post(CHAT, f'{{"messages": [{{"role": "user", "content": "x"}}], "json_schema": {text}}}'.encode())
    assert status == (200 if depth == 100 else 400), answer


class TestDefaults:
    """--grammar and --json-schema hold for requests that say nothing."""

    FAKE_CONFIG = Config(target=CONFIG.target, constraint=GBNF)

    def test_they_hold(self) -> None:
        assert asked(fake=FakeRuntime(config=self.FAKE_CONFIG)) == GBNF
        assert asked(fake=FakeRuntime(config=self.FAKE_CONFIG), response_format={"type": "text"}) == GBNF

    def test_a_request_has_its_own(self) -> None:
        assert asked(fake=FakeRuntime(config=self.FAKE_CONFIG), guided_regex="a+") == REGEX
        assert asked(fake=FakeRuntime(config=self.FAKE_CONFIG), grammar="") is None


# --- lists whose items must differ, which no mask can see to

SET = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}
HELD = {"type": "object", "properties": {"a": SET}}
LOOSE = {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}}}


def formed(**members: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": members}}


@pytest.mark.parametrize(
    "members",
    [
        formed(schema=HELD),
        formed(schema=HELD, strict=False),
        formed(schema=HELD, strict=None),
        formed(schema=json.dumps(HELD)),
        {"response_format": {"type": "json_object", "schema": HELD}},
        {"json_schema": HELD},
        {"json_schema": json.dumps(HELD)},
        {"guided_json": HELD},
        {"structured_outputs": {"json": HELD}},
    ],
)
def test_items_may_repeat_where_a_schema_is_not_strict(members: dict) -> None:
    constraint = asked(**members)
    assert constraint is not None
    assert json.loads(constraint.text) == LOOSE


@pytest.mark.parametrize("schema", [HELD, json.dumps(HELD)])
def test_a_strict_schema_whose_items_must_differ_is_refused(schema: object) -> None:
    param, words = refused(**formed(schema=schema, strict=True))
    assert param == "response_format"
    assert 'Unimplemented keys: ["uniqueItems"] (at #/properties/a)' in words


def tool(name: str, parameters: object, **members: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **members}}


@pytest.mark.parametrize("more", [{"tool_choice": "required"}, {"json_schema": SCHEMA}, {}])
def test_arguments_follow_the_same_rule(more: dict) -> None:
    tools = [tool("a", HELD), tool("b", HELD, strict=False)]
    answers = AnswerFormat((FORMATS["hermes"],))
    assert (asked(fake=FakeRuntime(answers=answers), tools=tools, **more) is None) == (not more)
    status, answer = post(
        CHAT,
        {"messages": HELLO, "tools": [*tools, tool("c", HELD, strict=True)], **more},
        FakeRuntime(answers=answers),
    )
    assert status == 400, answer
    assert answer["error"]["param"] == "tools.2.function.parameters"


def test_of_several_tools_the_one_that_cannot_be_compiled_is_named() -> None:
    fake = FakeRuntime(answers=AnswerFormat((FORMATS["hermes"],)))
    tools = [tool("a", HELD), tool("b", {"type": "object", "properties": {"a": {"not": {}}}})]
    status, answer = post(CHAT, {"messages": HELLO, "tools": tools, "tool_choice": "required"}, fake)
    assert status == 400
    assert answer["error"]["param"] == "tools.1.function.parameters"
