"""Values in other spellings: they mean what they say or are refused by name, never silently the contrary."""

from __future__ import annotations

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, HELLO, get, post, post_each
from pydantic import BaseModel

from uad.base.config import ServerConfig
from uad.base.config.load import from_environ
from uad.base.errors import ConfigError
from uad.http.requests.fields import ChatBody, CompletionBody, NativeBody, TokenizeBody

KEYED = ServerConfig(port=0, alias="toy", api_keys=("sk-one", "sk two"))
FIELDS = {
    CHAT: (ChatBody, {"messages": HELLO}),
    "/v1/completions": (CompletionBody, {"prompt": "a"}),
    "/completion": (NativeBody, {"prompt": "a"}),
    "/tokenize": (TokenizeBody, {"content": "a"}),
}


def switches(model: type[BaseModel], start: str = "") -> list[str]:
    """Names of yes-or-no members, those of inner objects with a dot."""
    found = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += switches(kind, f"{start}{name}.")
        elif "bool" in str(kind) and "int" not in str(kind):
            found.append(start + name)
    return found


SWITCHES = [(path, name) for path, (model, _) in FIELDS.items() for name in switches(model)] + [
    (CHAT, "post_sampling_probs"),
    ("/v1/completions", "echo"),
]


def test_all_switches_are_found():
    assert {name for _, name in SWITCHES} >= {
        "stream",
        "cache_prompt",
        "stream_options.include_usage",
        "speculative.enabled",
        "add_special",
    }


def refused(path: str, name: str, values: list) -> list:
    """Of a body with each of these values in the member of this name: status, and the member that is named."""
    first, _, rest = name.partition(".")
    bodies = [{**FIELDS[path][1], first: {rest: value} if rest else value} for value in values]
    return [(status, answer["error"]["param"]) for status, answer in post_each(path, bodies)]


@pytest.mark.parametrize(("path", "name"), SWITCHES)
def test_a_switch_is_true_or_false(path, name):
    values = ["false", "true", "no", "off", "", 0, 1, 0.0, [], {}]
    assert refused(path, name, values) == [(400, name)] * len(values)


@pytest.mark.parametrize(("path", "name"), SWITCHES)
def test_a_switch_that_is_null_is_not_set(path, name):
    first, _, rest = name.partition(".")
    assert post(path, {**FIELDS[path][1], first: {rest: None} if rest else None})[0] == 200


@pytest.mark.parametrize(
    "name", ["max_tokens", "n", "temperature", "top_k", "seed", "min_tokens", "id_slot", "n_probs", "sse_ping_interval"]
)
def test_a_number_is_a_number(name):
    assert refused(CHAT, name, ["1", "", True, False, [1]]) == [(400, name)] * 5


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer sk-one"},
        {"authorization": "bearer sk-one"},
        {"AUTHORIZATION": "BEARER sk-one"},
        {"Authorization": "  bEaReR \t  sk-one  "},
        {"Authorization": "sk-one"},
        {"Authorization": "Bearer sk two"},
        {"x-api-key": "sk-one"},
        {"X-API-KEY": "  Bearer sk-one"},
        {"api-key": "sk-one"},
        {"Authorization": "Basic dXNlcjpuYW1l", "X-Api-Key": "sk-one"},
    ],
)
def test_a_key_is_found_in_any_spelling(headers):
    assert get("/v1/models", None, KEYED, headers=headers)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "bearer  "},
        {"Authorization": "Bearersk-one"},
        {"Authorization": "Basic sk-one"},
        {"Authorization": "Bearer SK-ONE"},
        {"Authorization": "Bearer sk-one sk-one"},
        {"X-Api-Key": ""},
        {"X-Key": "sk-one"},
    ],
)
def test_what_is_no_key_stays_outside(headers):
    status, answer = get("/v1/models", None, KEYED, headers=headers)
    assert (status, answer["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("", 200), ("0", 200), ("false", 200), ("no", 200), ("1", 503), ("true", 503), ("ON", 503), ("maybe", 400)],
)
def test_a_switch_in_the_url(value, expected):
    assert get(f"/slots?fail_on_no_slot={value}", FakeRuntime(n_slots=0))[0] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", [False]), ("yes", [False]), ("TRUE", [False]), ("0", []), ("no", []), (" false", []), ("", [])],
)
def test_a_variable_that_says_no(value, expected):
    assert [given.value for given in from_environ({"LLAMA_ARG_NO_MMAP": value}).given] == expected


def test_a_variable_that_says_neither_yes_nor_no_is_refused():
    with pytest.raises(ConfigError, match="LLAMA_ARG_NO_MMAP"):
        from_environ({"LLAMA_ARG_NO_MMAP": "perhaps"})


# --- null inside of objects

GEMINI = "/v1beta/models/toy:generateContent"
SAID = {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}
LOOK_UP = {"name": "look_up", "parameters": {"type": "object", "properties": {}}}
CALLED = {"id": "1", "function": {"name": "look_up", "arguments": "{}"}}
TURNS = [
    {"role": "user", "parts": [{"text": "a"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "f"}}]},
]


def called(**members):
    return {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{**CALLED, **members}]}, RESULT]}


RESULT = {"role": "tool", "tool_call_id": "1", "content": "x"}
NULLS = [  # a request, and the same without its nulls
    (CHAT, {"messages": HELLO, "tools": [{"type": None, "function": LOOK_UP}]}, {"tools": [{"function": LOOK_UP}]}),
    (CHAT, called(type=None), called()),
    (CHAT, called(function={"name": "look_up", "arguments": None}), called(function={"name": "look_up"})),
    (CHAT, {"messages": HELLO, "response_format": {"type": None}}, {"response_format": {}}),
    (
        CHAT,
        {"messages": HELLO, "response_format": {"type": "json_object", "schema": None}},
        {"response_format": {"type": "json_object"}},
    ),
    (
        CHAT,
        {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {"schema": None}}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
    ),
    (CHAT, {"messages": HELLO, "json_schema": ""}, {"json_schema": None}),
    (CHAT, {"messages": HELLO, "guided_json": "", "guided_regex": "a+"}, {"guided_json": None}),
    (
        GEMINI,
        {**SAID, "generationConfig": {"responseMimeType": None, "thinkingConfig": None}},
        {"generationConfig": {}},
    ),
    (GEMINI, {**SAID, "generation_config": {"thinking_config": {"include_thoughts": None}}}, {"generation_config": {}}),
    (GEMINI, {**SAID, "tools": [{"functionDeclarations": None}]}, {"tools": [{}]}),
    (GEMINI, {**SAID, "toolConfig": {"functionCallingConfig": None}}, {"toolConfig": None}),
    (GEMINI, {**SAID, "toolConfig": {"functionCallingConfig": {"mode": None}}}, {"toolConfig": None}),
    (GEMINI, {"contents": [{"role": None, "parts": [{"text": "a", "thought": None}]}]}, SAID),
    (
        GEMINI,
        {"contents": [TURNS[0], {"role": "model", "parts": [{"functionCall": {"name": "f", "args": None}}]}, TURNS[2]]},
        {"contents": TURNS},
    ),
    (GEMINI, {"contents": {"parts": {"text": "a"}}}, SAID),  # so write Google's own examples
    (
        GEMINI,
        {**SAID, "system_instruction": {"parts": {"text": "b"}}},
        {"system_instruction": {"parts": [{"text": "b"}]}},
    ),
]


@pytest.mark.parametrize(("path", "body", "changes"), NULLS)
def test_null_inside_of_an_object_is_its_default(path, body, changes):
    with_nulls, without = FakeRuntime(), FakeRuntime()
    status, answer = post(path, body, with_nulls)
    assert status == 200, answer
    assert post(path, {**body, **changes}, without)[0] == 200
    one, other = with_nulls.requests[-1], without.requests[-1]
    assert (one.prompt, one.constraint) == (other.prompt, other.constraint)
    assert with_nulls.chats == without.chats
