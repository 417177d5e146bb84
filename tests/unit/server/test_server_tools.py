"""Chats with tools and thoughts over HTTP: what answers look like, whole and streamed, and what requests may say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from kit.calls_kit import FORMATS
from kit.fake_runtime import CONFIG, FakeRuntime
from kit.server_kit import CHAT, HELLO, post, stream

from uad.base.config import ServerConfig
from uad.base.types import Constraint, Request, ThoughtBounds
from uad.http.requests.prompt_ids import MAX_TOOL_CHARS
from uad.text.calls.format import AnswerFormat, ThoughtFormat

HERMES = AnswerFormat((FORMATS["hermes"],))
TOOL = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}},
}
OTHER = {"type": "function", "function": {"name": "say", "description": "Says it."}}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "tea"}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "say", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nHm, hm.\n</think>\n\n"


def saying(text: str, format_: AnswerFormat = HERMES, **more: Any) -> FakeRuntime:
    return FakeRuntime(script=lambda request: text.encode(), answers=format_, **more)


def choice(text: str, format_: AnswerFormat = HERMES, **body: Any) -> dict[str, Any]:
    status, answer = post(CHAT, {"messages": HELLO, "tools": [TOOL, OTHER], **body}, saying(text, format_))
    assert status == 200, answer
    found: dict[str, Any] = answer["choices"][0]
    return found


def put_together(chunks: Iterable[Any]) -> dict[str, Any]:
    """A message from the chunks of its stream, as OpenAI's clients do it."""
    message: dict[str, Any] = {}
    for chunk in chunks:
        for one in chunk["choices"] if chunk != "[DONE]" else []:
            message["finish_reason"] = one["finish_reason"]
            for name, value in one["delta"].items():
                if name == "tool_calls":
                    for piece in value:
                        calls = message.setdefault("tool_calls", {})
                        if piece["index"] not in calls:
                            assert set(piece) == {"index", "id", "type", "function"}
                            calls[piece["index"]] = {**piece["function"], "id": piece["id"]}
                        else:
                            assert set(piece) == {"index", "function"}
                            calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
                elif value is not None and name != "role":
                    message[name] = message.get(name, "") + value
    return message


def test_a_call_is_no_content():
    found = choice(CALL)
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] is None
    (call,) = found["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call == {
        "id": call["id"],
        "type": "function",
        "function": {"name": "look_up", "arguments": '{"word": "tea"}'},
    }


def test_thoughts_content_and_two_calls():
    message = choice(f"{THOUGHT}I look.\n{CALL}\n{SECOND}")["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm, hm.", "I look.")
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["look_up", "say"]
    assert len({call["id"] for call in message["tool_calls"]}) == 2


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_stream_says_the_same_as_the_whole_answer(step: int):
    text = f"{THOUGHT}I look.\n{CALL}\n{SECOND}"
    chunks = stream(CHAT, {"messages": HELLO, "tools": [TOOL, OTHER]}, saying(text, step=step))
    message = put_together(chunks)
    assert (message["reasoning_content"], message["content"], message["finish_reason"]) == (
        "Hm, hm.",
        "I look.",
        "tool_calls",
    )
    calls = [(call["name"], json.loads(call["arguments"])) for call in message["tool_calls"].values()]
    assert calls == [("look_up", {"word": "tea"}), ("say", {})]
    assert chunks[-1] == "[DONE]"


def test_the_name_comes_before_the_arguments_are_whole():
    chunks = stream(CHAT, {"messages": HELLO, "tools": [TOOL]}, saying(CALL, step=1, pause=0.01))
    pieces = [
        piece for chunk in chunks[:-1] for one in chunk["choices"] for piece in one["delta"].get("tool_calls", [])
    ]
    assert pieces[0]["function"] == {"name": "look_up", "arguments": ""}
    assert len(pieces) > 5


@pytest.mark.parametrize("body", [{"tools": []}, {"tools": [TOOL], "tool_choice": "none"}])
def test_without_a_tool_to_call_the_text_is_content(body: dict[str, Any]):
    found = choice(CALL, **body)
    assert (found["finish_reason"], found["message"]) == ("stop", {"role": "assistant", "content": CALL})


def allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_only_the_tools_that_are_allowed_are_offered_and_called():
    fake = saying(CALL)
    status, answer = post(CHAT, {"messages": HELLO, "tools": [OTHER, TOOL], "tool_choice": allowed("look_up")}, fake)
    assert status == 200
    ((_, kwargs, _),) = fake.chats
    assert [one["function"]["name"] for one in kwargs["tools"]] == ["look_up"]
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "look_up"
    assert "tool_calls" not in choice(CALL, tools=[OTHER, TOOL], tool_choice=allowed("say"))["message"]


def test_one_of_the_tools_that_are_allowed_is_required():
    assert bound_by(tools=[OTHER, TOOL], tool_choice=allowed("look_up", mode="required")) == bound_by(
        tools=[TOOL], tool_choice="required"
    )
    assert bound_by(tools=[OTHER, TOOL], tool_choice=allowed("look_up")) == bound_by(tools=[TOOL])


@pytest.mark.parametrize("tools", [[], [TOOL]])
@pytest.mark.parametrize("named", [{"type": "function", "function": {"name": "no"}}, allowed("no", mode="required")])
def test_a_name_that_no_tool_has_is_refused(tools: list[Any], named: dict[str, Any]):
    status, answer = post(CHAT, {"messages": HELLO, "tools": tools, "tool_choice": named}, saying("Hi"))
    assert (status, answer["error"]["param"]) == (400, "tool_choice")
    assert "tools has no function 'no'" in answer["error"]["message"]


@pytest.mark.parametrize(
    "wrong", [None, {}, {"tools": []}, {"tools": [{"name": "look_up"}]}, {"mode": "none", **allowed("f")}, []]
)
def test_allowed_tools_of_another_form_are_named(wrong: Any):
    choice_ = {"type": "allowed_tools", "allowed_tools": wrong}
    status, answer = post(CHAT, {"messages": HELLO, "tools": [TOOL], "tool_choice": choice_}, saying("Hi"))
    assert (status, answer["error"]["param"]) == (400, "tool_choice")


@pytest.mark.parametrize(("is_streamed", "other"), [(False, "deepseek"), (True, "none")])
def test_the_old_form_of_thoughts_is_apart_in_whole_answers_only(is_streamed: bool, other: str):
    text = "<think>\nHm.\n</think>\n\nYes."

    def told(form: str) -> str:
        body = {"messages": HELLO, "reasoning_format": form}
        if not is_streamed:
            return json.dumps(post(CHAT, body, saying(text))[1]["choices"][0]["message"])
        deltas = [one["delta"] for chunk in stream(CHAT, body, saying(text))[:-1] for one in chunk["choices"]]
        return "".join(delta.get("reasoning_content", "") + (delta.get("content") or "") for delta in deltas)

    assert told("deepseek-legacy") == told(other)
    assert told("none") != told("deepseek")


def test_an_answer_that_is_cut_says_so():
    status, answer = post(CHAT, {"messages": HELLO, "tools": [TOOL], "max_tokens": 48}, saying(CALL))
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look_up"


def test_parallel_calls_can_be_switched_off():
    assert [
        call["function"]["name"] for call in choice(CALL + SECOND, parallel_tool_calls=False)["message"]["tool_calls"]
    ] == ["look_up"]


def test_each_choice_is_read_by_itself():
    status, answer = post(CHAT, {"messages": HELLO, "tools": [TOOL], "n": 2}, saying(CALL))
    assert status == 200
    ids = [one["message"]["tool_calls"][0]["id"] for one in answer["choices"]]
    assert len(set(ids)) == 2


def test_an_id_of_the_model_is_kept_where_it_is_one():
    kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.say:0<|tool_call_argument_begin|>"
    kimi += "{}<|tool_call_end|><|tool_calls_section_end|>"
    assert choice(kimi, AnswerFormat((FORMATS["kimi-k2"],)))["message"]["tool_calls"][0]["id"] == "functions.say:0"
    cohere = '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "say", "parameters": {}}]<|END_ACTION|>'
    assert choice(cohere, AnswerFormat((FORMATS["command-r7b"],)))["message"]["tool_calls"][0]["id"].startswith("call_")


def test_log_probabilities_are_of_all_tokens():
    chunks = stream(CHAT, {"messages": HELLO, "tools": [TOOL], "logprobs": True}, saying(THOUGHT + CALL))
    tokens = [
        entry["token"]
        for chunk in chunks[:-1]
        for one in chunk["choices"]
        for entry in one.get("logprobs", {}).get("content", [])
    ]
    assert "".join(tokens) == (THOUGHT + CALL)[:-1]


def test_stop_strings_end_the_text_before_it_is_read():
    found = choice(f"{THOUGHT}one two {CALL}", stop=["two"])
    assert (found["finish_reason"], found["message"]["content"]) == ("stop", "one ")


@pytest.mark.parametrize(
    ("server", "field", "is_split"),
    [
        ("auto", None, True),
        ("auto", "none", False),
        ("none", None, False),
        ("none", "deepseek", True),
        ("deepseek", None, True),
    ],
)
def test_where_thoughts_go(server: str, field: str | None, is_split: bool):
    body = {"messages": HELLO, **({"reasoning_format": field} if field else {})}
    _, answer = post(CHAT, body, saying(f"{THOUGHT}Yes."), ServerConfig(port=0, alias="toy", reasoning_format=server))
    wanted = {"content": "Yes.", "reasoning_content": "Hm, hm."} if is_split else {"content": f"{THOUGHT}Yes."}
    assert answer["choices"][0]["message"] == {"role": "assistant", **wanted}


def test_a_prompt_that_ends_in_a_thought_begins_an_answer_with_thoughts():
    asked = [{"role": "user", "content": "hello\n<think>"}]  # the scripted template ends with what the request says
    fake = saying("Hm.\n</think>\n\nYes.")
    fake.chat_text = lambda *args, **kwargs: "user:hello\nassistant:<think>\n"  # type: ignore[method-assign]
    _, answer = post(CHAT, {"messages": asked}, fake)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}


@pytest.mark.parametrize(
    ("begun", "text", "content", "thought"),
    [
        ("So", " <think>x</think>", " <think>x</think>", None),
        ("<think>a", "b</think>c", "c", "b"),
        ("<think>a</think>b", "<think>", "<think>", None),
    ],
)
def test_an_answer_begun_goes_on_as_what_it_was(begun: str, text: str, content: str, thought: str | None):
    _, answer = post(CHAT, {"messages": [*HELLO, {"role": "assistant", "content": begun}]}, saying(text))
    message = answer["choices"][0]["message"]
    assert (message["content"], message.get("reasoning_content")) == (content, thought)


def test_control_tokens_of_the_format_are_asked_for_only_where_they_matter():
    format_ = AnswerFormat((FORMATS["kimi-k2"],), ThoughtFormat(), ("<|tool_call_begin|>", "<think>"))
    asked = []
    for body in ({"tools": [TOOL]}, {}, {"reasoning_format": "none"}):
        fake = saying("Hi", format_)
        assert post(CHAT, {"messages": HELLO, **body}, fake)[0] == 200
        asked.append(fake.requests[0].shown)
    assert asked == [("<|tool_call_begin|>", "<think>"), ("<think>",), ()]


def test_the_template_gets_tools_calls_results_and_thoughts():
    fake = saying("Hi")
    call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "tea"}'}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a drink"},
    ]
    fields = {"tools": [OTHER], "reasoning_budget_tokens": 0, "reasoning_effort": "low"}
    assert post(CHAT, {"messages": messages, **fields}, fake)[0] == 200
    ((got, kwargs, _),) = fake.chats
    assert got[1] == {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call]}
    assert got[2] == {"role": "tool", "content": "a drink", "tool_call_id": "call_1"}
    function = {"name": "say", "description": "Says it.", "parameters": {"type": "object", "properties": {}}}
    told = {"reasoning_effort": "low", "thinking_budget": 0, "enable_thinking": False}
    assert kwargs == {"tools": [{"type": "function", "function": function}], **told}


def test_what_is_null_of_a_tool_is_as_absent():
    fake = saying("Hi")
    tool = {"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": True}}
    assert post(CHAT, {"messages": HELLO, "tools": [tool]}, fake)[0] == 200
    function = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert fake.chats[0][1]["tools"] == [{"type": "function", "function": function}]


def test_apply_template_takes_tools_too():
    fake = saying("Hi")
    assert post("/apply-template", {"messages": HELLO, "tools": [TOOL], "enable_thinking": True}, fake)[0] == 200
    assert fake.chats[0][1]["enable_thinking"] is True
    assert fake.chats[0][1]["tools"]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"tool_choice": "always"}, "tool_choice", "names a function"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "names a function"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "no"}}},
            "tool_choice",
            "tools has no function 'no'",
        ),
        ({"tools": "x"}, "tools", "list"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "only functions"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools.0.function.name", "at least 1"),
        ({"tools": [{"type": "function"}]}, "tools.0.function", "required"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls", "boolean"),
        ({"reasoning_format": "other"}, "reasoning_format", '"deepseek" or "deepseek-legacy"'),
        ({"functions": [{"name": "f"}]}, "functions", "send tools"),
        (
            {"tools": [{**OTHER, "function": {"name": "f", "description": "x" * MAX_TOOL_CHARS}}]},
            "tools",
            "at most 4194304 characters",
        ),
        (
            {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "messages.1.tool_calls.0.function",
            "required",
        ),
        (
            {
                "messages": [
                    *HELLO,
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]},
                    *HELLO,
                ]
            },
            "messages.1.tool_calls.0.function.arguments",
            "JSON text",
        ),
        (
            {"messages": [*HELLO, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
            "messages",
            "results must follow",
        ),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str, words: str):
    status, answer = post(CHAT, {"messages": HELLO, "tools": [TOOL], **body}, saying("Hi"))
    assert (status, answer["error"]["param"]) == (400, param)
    assert words in answer["error"]["message"]


def bound_by(**body: Any) -> Constraint | None:
    """The constraint of a chat with these fields."""
    runtime = saying("")
    status, answer = post(CHAT, {"messages": HELLO, "tools": [TOOL, OTHER], **body}, runtime)
    assert status == 200, answer
    return runtime.requests[0].constraint


STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}
FORMAT = {"type": "json_schema", "json_schema": {"schema": {"const": 42}}}


def test_a_required_call_is_constrained():
    for choice_ in ("required", {"type": "function", "function": {"name": "say"}}):
        found = bound_by(tool_choice=choice_)
        assert found is not None
        assert "%json" in found.text
        assert not found.triggers
    assert bound_by() is None
    assert bound_by(tool_choice="none", tools=[STRICT]) is None


def test_a_strict_tool_constrains_calls_that_are_made():
    found = bound_by(tools=[STRICT, OTHER])
    assert found is not None
    assert found.triggers == ("<tool_call>",)


def test_a_call_may_stand_in_place_of_an_answer_in_json():
    found = bound_by(response_format=FORMAT)
    assert found is not None
    assert '{"const": 42}'[1:] in found.text
    assert "look_up" in found.text
    plain = bound_by(response_format=FORMAT, tool_choice="none")
    assert plain is not None
    assert plain.text == '{"const": 42}'
    regex = bound_by(guided_regex="[ab]")
    assert regex is not None
    assert regex.text == "[ab]"


THINKS = AnswerFormat((FORMATS["hermes"],), ThoughtFormat(), thinks=True)


def asked(format_: AnswerFormat = THINKS, **body: Any) -> Request:
    """The request that a chat becomes."""
    runtime = saying("", format_, config=body.pop("config", CONFIG))
    status, answer = post(CHAT, {"messages": HELLO, **body}, runtime)
    assert status == 200, answer
    return runtime.requests[0]


class TestBudgets:
    """How long thoughts may be."""

    closing = tuple(b"</think>")

    @pytest.mark.parametrize(
        "body",
        [
            *({name: 7} for name in ("thinking_budget_tokens", "reasoning_budget_tokens", "reasoning_budget")),
            {"thinking_budget": 7},
            {"chat_template_kwargs": {"thinking_budget": 7}},
        ],
    )
    def test_spellings(self, body: dict[str, Any]):
        assert asked(**body).thoughts == ThoughtBounds("<think>", "</think>", budget=7, closing=self.closing)

    def test_without_one_thoughts_are_counted_only(self):
        for body in ({}, {"thinking_budget": -1}):
            assert asked(**body).thoughts == ThoughtBounds("<think>", "</think>")
        assert asked(HERMES, thinking_budget=7).thoughts is None

    def test_the_servers_own_holds_for_requests_without(self):
        server = replace(CONFIG.server, reasoning_budget=5, reasoning_budget_message=" So:\n")
        config = replace(CONFIG, server=server)
        assert asked(config=config).thoughts == ThoughtBounds(
            "<think>", "</think>", budget=5, closing=tuple(b" So:\n</think>")
        )
        own = asked(config=config, thinking_budget=9, reasoning_budget_message="").thoughts
        assert own == ThoughtBounds("<think>", "</think>", budget=9, closing=self.closing)

    def test_harmony_thinks_in_messages(self):
        found = asked(AnswerFormat((FORMATS["harmony"],)), thinking_budget=3).thoughts
        assert found is not None
        assert (found.start, found.end, found.anywhere) == ("<|channel|>analysis<|message|>", "<|end|>", True)

    def test_an_answer_begun_has_no_thoughts(self):
        assert asked(messages=[*HELLO, {"role": "assistant", "content": "Well"}]).thoughts is None

    def test_what_is_no_number_is_named(self):
        body = {"messages": HELLO, "chat_template_kwargs": {"thinking_budget": "much"}}
        status, answer = post(CHAT, body, saying("", THINKS))
        assert (status, answer["error"]["param"]) == (400, "chat_template_kwargs.thinking_budget")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_verbose_answer_tells_its_prompt(is_streamed: bool):
    body = {"messages": HELLO, "verbose": True}
    if is_streamed:
        *_, last, _ = stream(CHAT, {**body, "stream": True}, saying("Hm."))
    else:
        _, last = post(CHAT, body, saying("Hm."))
    assert last["__verbose"]["prompt"] == "<s>user:hello\nassistant:"
    assert last["__verbose"]["generation_settings"]["seed"] == 4242
    assert "__verbose" not in post(CHAT, {"messages": HELLO}, saying("Hm."))[1]


def test_the_tokens_of_a_chat_are_counted():
    status, answer = post("/v1/chat/completions/input_tokens", {"messages": HELLO, "tools": [TOOL]}, saying(""))
    assert (status, answer) == (
        200,
        {"object": "response.input_tokens", "input_tokens": len("user:hello\nassistant:") + 1},
    )


def test_the_parts_of_an_answer_begun_are_paragraphs():
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}]
    prompt = asked(messages=[*HELLO, {"role": "assistant", "content": parts}]).prompt
    assert bytes(prompt[1:]).endswith(b"assistant:Wh\n\nill")


def test_usage_tells_how_many_tokens_were_thoughts():
    _, answer = post(CHAT, {"messages": HELLO}, saying("Hm."))
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_a_constraint_waits_for_the_end_of_thoughts():
    """Where the model may think; without thoughts it holds from the first token on."""
    found = asked(response_format=FORMAT).constraint
    assert found is not None
    assert "thought" in found.lead
    regex = asked(guided_regex="[ab]").constraint
    assert regex is not None
    assert regex.lead
    plain = asked(HERMES, response_format=FORMAT).constraint
    assert plain is not None
    assert not plain.lead


def test_a_schema_that_cannot_be_compiled_is_named():
    wrong = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "foo"}}}}}
    body = {"messages": HELLO, "tools": [TOOL, wrong], "tool_choice": "required"}
    status, answer = post(CHAT, body, saying(""))
    assert (status, answer["error"]["param"]) == (400, "tools.1.function.parameters")
    assert "(at #/properties/a)" in answer["error"]["message"]
    assert post(CHAT, {**body, "tool_choice": "auto"}, saying(""))[0] == 200


def test_a_required_call_and_another_constraint():
    status, answer = post(
        CHAT, {"messages": HELLO, "tools": [TOOL], "tool_choice": "required", "response_format": FORMAT}, saying("")
    )
    assert (status, answer["error"]["param"]) == (400, "tool_choice")


def test_a_required_call_in_no_known_format():
    status, answer = post(
        CHAT, {"messages": HELLO, "tools": [TOOL], "tool_choice": "required"}, saying("", AnswerFormat())
    )
    assert (status, answer["error"]["param"]) == (400, "tool_choice")
