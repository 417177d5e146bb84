"""Answers that are a JSON call without markers, over all APIs of chats, whole and streamed; and who may switch that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.api_kit import saying
from kit.calls_kit import FORMATS
from kit.fake_runtime import CONFIG, FakeRuntime
from kit.heard import APIS, SCHEMA, Heard
from kit.server_kit import CHAT, HELLO, post

from uad.base.config import ServerConfig
from uad.text.calls.format import AnswerFormat, ThoughtFormat

CALL = '{"name": "look_up", "arguments": {"word": "tea"}}'
FENCE = f"```json\n{CALL}\n```"
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}

THINKS = AnswerFormat((FORMATS["hermes"],), ThoughtFormat(), thinks=True)
OTHER = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}


def allowed(name: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}}]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


def switched(when: str) -> dict[str, Any]:
    return {"config": replace(CONFIG, server=ServerConfig(port=0, json_calls=when))}


def message(text: str, fake: FakeRuntime | None = None, **body: Any) -> dict[str, Any]:
    status, answer = post(CHAT, {"messages": HELLO, "tools": [TOOL], **body}, fake or saying(text))
    assert status == 200, answer
    found: dict[str, Any] = answer["choices"][0]["message"]
    return found


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("text", [CALL, FENCE, f"\n```\n{CALL}```\n", f"[{CALL}]"])
@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_is_a_call_without_markers_is_a_call_on_every_api(api: str, text: str, is_stream: bool) -> None:
    ask, reason = APIS[api]
    assert ask(text, is_stream) == Heard("", ({"word": "tea"},), reason)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("text", [f"So: {CALL}", f"{FENCE}\nThat is it.", CALL.replace('"tea"', "3"), "```\ncode\n```"])
@pytest.mark.parametrize("api", APIS)
def test_any_other_answer_is_text_on_every_api(api: str, text: str, is_stream: bool) -> None:
    heard = APIS[api][0](text, is_stream)
    assert (heard.text, heard.calls) == (text, ())


@pytest.mark.parametrize("api", APIS)
def test_the_switch_leaves_such_an_answer_a_text(api: str) -> None:
    heard = APIS[api][0](FENCE, False, **switched("off"))
    assert (heard.text, heard.calls) == (FENCE, ())


@pytest.mark.parametrize(
    ("name", "auto", "on"), [("hermes", 1, 1), ("llama-3", 1, 1), ("qwen3-coder", 0, 1), ("harmony", 0, 0)]
)
def test_by_itself_the_switch_is_on_for_formats_that_write_json(name: str, auto: int, on: int) -> None:
    for when, n in (("auto", auto), ("on", on), ("off", 0)):
        fake = FakeRuntime(
            script=lambda request: FENCE.encode(), answers=AnswerFormat((FORMATS[name],)), **switched(when)
        )
        assert len(message("", fake).get("tool_calls", [])) == n, when


@pytest.mark.parametrize(
    "body",
    [
        {"tool_choice": "none"},
        {"tools": []},
        {"response_format": {"type": "json_object"}},
        {"json_schema": {"type": "object"}},
        {"guided_regex": ".*"},
        {"messages": [*HELLO, {"role": "assistant", "content": "So: "}]},
        {"max_tokens": len(CALL)},
        {"tools": [OTHER]},
        {"tools": [TOOL, OTHER], "tool_choice": allowed("look")},
    ],
)
def test_what_a_request_says_of_its_answer_comes_first(body: dict[str, Any]) -> None:
    text = CALL + " " * (8 if "max_tokens" in body else 0)
    assert message(text, **body) == {"role": "assistant", "content": CALL}


@pytest.mark.parametrize("body", [{}, {"tool_choice": allowed("look_up")}, {"reasoning_format": "deepseek-legacy"}])
def test_an_answer_whose_thoughts_were_begun_may_be_a_call(body: dict[str, Any]) -> None:
    fake = FakeRuntime(script=lambda request: f" it is.\n</think>\n\n{FENCE}".encode(), answers=THINKS)
    begun = [*HELLO, {"role": "assistant", "reasoning_content": "Tea"}]
    got = message("", fake, messages=begun, tools=[TOOL, OTHER], **body)
    assert (got["reasoning_content"], got["content"]) == ("it is.", None)
    (call,) = got["tool_calls"]
    assert call["function"]["arguments"] == '{"word": "tea"}'


def test_a_stop_string_that_is_the_fence_leaves_a_call() -> None:
    assert message(FENCE, stop=["\n```"])["tool_calls"][0]["function"]["name"] == "look_up"


def test_one_call_at_most_is_the_first_of_a_list() -> None:
    text = f"[{CALL}, {CALL.replace('tea', 'milk')}]"
    (call,) = message(text, parallel_tool_calls=False)["tool_calls"]
    assert call["function"]["arguments"] == '{"word": "tea"}'
    assert len(message(text)["tool_calls"]) == 2


def test_probabilities_of_a_text_that_was_kept_back_are_those_of_its_tokens() -> None:
    text = '```json\n{"name": "other"}\n```'
    body = {"messages": HELLO, "tools": [TOOL], "logprobs": True}
    kept, plain = (post(CHAT, body, saying(text, **switched(when)))[1]["choices"][0] for when in ("auto", "off"))
    assert kept == plain
    assert len(kept["logprobs"]["content"]) >= len(text) - 1


# --- doubled braces, in loops

DOUBLED = '{{"name": "look_up", "arguments": {{"word": "tea"}}}}'
ASKED = {"role": "user", "content": "Look up tea."}


def called(id_: str | None, word: str = "tea") -> dict[str, Any]:
    function = {"name": "look_up", "arguments": f'{{ "word": "{word}"}}'}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def result(id_: str | None) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "a drink"}


@pytest.mark.parametrize(
    ("history", "is_call"),
    [
        ([ASKED], True),
        ([ASKED, called("1"), result("1")], False),
        ([ASKED, called(None), result(None)], False),
        ([ASKED, called("1"), result("1"), ASKED], False),
        ([ASKED, called("2", "milk"), called("1"), result("2"), result("1")], False),
        ([ASKED, called("1"), result("1"), {"role": "assistant", "content": "A drink."}, ASKED], True),
        ([ASKED, called("1"), result("1"), called("2", "milk"), result("2")], True),
        ([ASKED, called("2", "milk"), called("1"), result("2")], True),
        ([ASKED, called("1"), ASKED], True),
        ([ASKED, called("1"), result("1"), {"role": "assistant", "content": "A drink."}, ASKED, ASKED], True),
    ],
)
@pytest.mark.parametrize("around", ["{}", "<tool_call>\n{}\n</tool_call>"])
def test_a_call_in_doubled_braces_is_never_one_that_was_just_answered(
    history: list[dict[str, Any]], is_call: bool, around: str
) -> None:
    text = around.replace("{}", DOUBLED, 1)
    fake = FakeRuntime(script=lambda request: text.encode(), answers=replace(THINKS, doubled=True), **switched("auto"))
    found = message("", fake, messages=history)
    calls = [call["function"] for call in found.get("tool_calls", [])]
    if is_call:
        assert [(call["name"], call["arguments"]) for call in calls] == [("look_up", '{"word": "tea"}')]
    else:
        assert (calls, found["content"]) == ([], text)
