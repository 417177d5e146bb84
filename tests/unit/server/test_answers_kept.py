"""Every byte of answers, whole and streamed, of all APIs that generate: what clients may rely on, as it was recorded.

To record them again after a change that is wanted: `PYTHONPATH=tests python tests/unit/server/test_answers_kept.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiohttp import ClientSession
from kit.api_kit import ANSWERS, CALL, SECOND, THOUGHT
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, CONFIG, HELLO, with_server

from uad.base.errors import DecodeError
from uad.base.types import Origin, Request

RECORDED = Path(__file__).with_name("answers_kept.jsonl")
"""A line for each answer: its case, its way, and all its bytes."""
TEXT, NATIVE, RESPONSES, MESSAGES = "/v1/completions", "/completion", "/v1/responses", "/v1/messages"
WAYS = ("whole", "stream")
NAME = {"X-Request-Id": "req-1"}
MERGE = "uad.http.apis.answer.merge"
"""Joins pieces that a slow reader finds together: as many as the machine's haste has it."""

LOOK_UP = {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
SAY = {"name": "say", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": one} for one in (LOOK_UP, SAY)]
FLAT = [{"type": "function", **one} for one in (LOOK_UP, SAY)]
CUSTOM = [{"name": one["name"], "input_schema": one["parameters"]} for one in (LOOK_UP, SAY)]
ALL_FIELDS = {"return_progress": True, "timings_per_token": True, "return_origins": True}
EVERYTHING = f"{THOUGHT}Kä\u2028se\n{CALL}\n{SECOND}"
CUT = f"So:\n{CALL[:60]}"

Case = tuple[str, dict[str, Any], str, dict[str, Any]]
"""Path, body, what the model says, and members of the runtime."""


def cases() -> dict[str, Case]:
    hello, prompt = {"messages": HELLO}, {"prompt": "ab"}
    chat_tools, flat, custom = {**hello, "tools": TOOLS}, {"input": "hi", "tools": FLAT}, {**hello, "tools": CUSTOM}
    fails = {"fail": DecodeError("no luck"), "fail_after": 24}
    thinking = {"type": "enabled", "display": "omitted"}
    logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    found: dict[str, Case] = {
        "chat": (CHAT, hello, "Good day.\n", {}),
        "chat, nothing said": (CHAT, hello, "", {}),
        "chat, several": (CHAT, {**hello, "n": 2}, "Good day.", {}),
        "chat, usage": (CHAT, {**hello, "stream_options": {"include_usage": True}}, "Good day.", {}),
        "chat, cut": (CHAT, {**hello, "max_tokens": 7}, "Good day, all of you.", {}),
        "chat, a stop": (CHAT, {**hello, "stop": ["day"]}, "Good day.", {}),
        "chat, fails": (CHAT, hello, "Good day, all of you here.", fails),
        "chat, fails at once": (CHAT, hello, "Good day.", {"fail": DecodeError("no luck")}),
        "chat, probabilities": (CHAT, {**hello, "logprobs": True, "top_logprobs": 1}, "Käse.", {"step": 4}),
        "chat, drawn with": (CHAT, {**hello, "n_probs": 1, "post_sampling_probs": True}, "Tea.", {"step": 4}),
        "chat, told more": (CHAT, {**hello, **ALL_FIELDS}, "Good day.", {}),
        "chat, ids": (CHAT, {**hello, "n": 2, "return_token_ids": True, "return_progress": True}, "Good day.", {}),
        "chat, verbose": (CHAT, {**hello, "verbose": True}, "Good day.", {}),
        "chat, everything": (CHAT, chat_tools, EVERYTHING, {}),
        "chat, two of everything": (CHAT, {**chat_tools, "n": 2, "return_token_ids": True}, EVERYTHING, {}),
        "chat, everything told more": (CHAT, {**chat_tools, **ALL_FIELDS}, EVERYTHING, {}),
        "chat, everything's probabilities": (CHAT, {**chat_tools, "logprobs": True}, THOUGHT + "Tea.\n" + CALL, {}),
        "chat, a call cut": (CHAT, {**chat_tools, "max_tokens": len(CUT)}, CUT + "...", {}),
        "chat, a call alone": (CHAT, chat_tools, CALL, {}),
        "chat, thoughts alone": (CHAT, chat_tools, THOUGHT, {}),
        "chat, no calls taken": (CHAT, {**chat_tools, "tool_choice": "none"}, EVERYTHING, {}),
        "chat, thoughts as text": (CHAT, {**hello, "reasoning_format": "none"}, THOUGHT + "Tea.", {}),
        "chat, tools fail": (CHAT, chat_tools, EVERYTHING, fails),
        "text": (TEXT, prompt, "Good day.\n", {}),
        "text, nothing said": (TEXT, prompt, "", {}),
        "text, several": (TEXT, {"prompt": ["ab", "c"], "n": 2}, "Good day.", {}),
        "text, usage": (TEXT, {**prompt, "stream_options": {"include_usage": True}}, "Good day.", {}),
        "text, cut": (TEXT, {**prompt, "max_tokens": 7}, "Good day, all of you.", {}),
        "text, a stop": (TEXT, {**prompt, "stop": "day", "include_stop_str_in_output": True}, "Good day.", {}),
        "text, fails": (TEXT, prompt, "Good day, all of you here.", fails),
        "text, probabilities": (TEXT, {**prompt, "logprobs": 2}, "Käse.", {"step": 4}),
        "text, probabilities without alternatives": (TEXT, {**prompt, "logprobs": 0, "n": 2}, "", {}),
        "text, echo": (TEXT, {**prompt, "echo": True, "n": 2}, "Good day.", {}),
        "text, echo of probabilities": (TEXT, {**prompt, "echo": True, "logprobs": 1}, "Käse.", {"step": 4}),
        "text, nothing but echo": (TEXT, {**prompt, "echo": True}, "", {}),
        "text, ids": (TEXT, {**prompt, "n": 2, "return_token_ids": True, "echo": True}, "Good day.", {}),
        "text, told more": (TEXT, {**prompt, **ALL_FIELDS}, "Good day.", {}),
        "native": (NATIVE, prompt, "Good day.\n", {}),
        "native, nothing said": (NATIVE, prompt, "", {}),
        "native, several": (NATIVE, {**prompt, "n": 2, "return_tokens": True}, "Good day.", {}),
        "native, cut": (NATIVE, {**prompt, "n_predict": 7}, "Good day, all of you.", {}),
        "native, a stop": (NATIVE, {**prompt, "stop": ["day"]}, "Good day.", {}),
        "native, fails": (NATIVE, prompt, "Good day, all of you here.", fails),
        "native, probabilities": (NATIVE, {**prompt, "n_probs": 1}, "Käse.", {}),
        "native, told more": (NATIVE, {**prompt, **ALL_FIELDS}, "Tea.", {}),
        "native, some members": (
            *(NATIVE, {**prompt, "response_fields": ["content", "timings/prompt_n", "tokens"], "n_probs": 1}),
            *("Good day.", {}),
        ),
        "native, other members": (
            *(NATIVE, {**prompt, "response_fields": ["completion_probabilities", "stop"], "n_probs": 1}),
            *("Tea.", {}),
        ),
        "response": (RESPONSES, {"input": "hi"}, "Good day.\n", {}),
        "response, nothing said": (RESPONSES, {"input": "hi"}, "", {}),
        "response, cut": (RESPONSES, {"input": "hi", "max_output_tokens": 7}, "Good day, all of you.", {}),
        "response, fails": (RESPONSES, flat, EVERYTHING, fails),
        "response, everything": (RESPONSES, flat, EVERYTHING, {"step": 16}),
        "response, sealed": (
            *(RESPONSES, {**flat, "include": ["reasoning.encrypted_content"], "metadata": {"a": "b"}}),
            *(THOUGHT + "Tea.", {"step": 16}),
        ),
        "response, probabilities": (RESPONSES, {"input": "hi", **logprobs}, "Käse.", {"step": 4}),
        "response, everything's probabilities": (
            *(RESPONSES, {**flat, **logprobs, "top_logprobs": 0}),
            *(f"<think>hm</think>Tea.\n{SECOND}\nBye.", {"step": 16}),
        ),
        "response, a call cut": (RESPONSES, {**flat, "max_output_tokens": len(CUT)}, CUT + "...", {"step": 16}),
        "response, told more": (RESPONSES, {"input": "hi", **ALL_FIELDS}, "Tea.", {}),
        "message": (MESSAGES, hello, "Good day.\n", {}),
        "message, nothing said": (MESSAGES, hello, "", {}),
        "message, cut": (MESSAGES, {**hello, "max_tokens": 7}, "Good day, all of you.", {}),
        "message, a stop": (MESSAGES, {**hello, "stop_sequences": ["day"]}, "Good day.", {}),
        "message, fails": (MESSAGES, custom, EVERYTHING, fails),
        "message, everything": (MESSAGES, custom, EVERYTHING, {}),
        "message, hidden": (MESSAGES, {**custom, "thinking": thinking}, EVERYTHING, {}),
        "message, a call cut": (MESSAGES, {**custom, "max_tokens": len(CUT)}, CUT + "...", {}),
        "message, told more": (MESSAGES, {**hello, **ALL_FIELDS}, "Tea.", {}),
        "best": (TEXT, {**prompt, "n": 1, "best_of": 2}, "Good day.", {}),
    }
    return found


def runtime(text: str, n: int, **members: Any) -> FakeRuntime:
    """One that begins when all n sequences are there, and says this."""
    asked: list[Request] = []

    def script(request: Request) -> bytes:
        asked.append(request)
        if len(asked) == n:
            fake.go.set()
        return text.encode()

    members = {"step": 5, "answers": ANSWERS, **members}
    fake = FakeRuntime(script=script, by=lambda place: (Origin.MODEL, Origin.TARGET)[place // 3 % 2], **members)
    fake.go.clear()
    return fake


def answered(case: Case, way: str) -> str:
    """The answer's bytes, all of which are ASCII. Names and times are always the same."""
    path, body, text, members = case
    prompts = body.get("prompt")
    n = max(body.get("n", 1), body.get("best_of", 1)) * (len(prompts) if isinstance(prompts, list) else 1)

    async def test(session: ClientSession) -> str:
        async with session.post(path, json={**body, "stream": way == "stream"}, headers=NAME) as answer:
            return f"{answer.status}\n{(await answer.read()).decode('ascii')}"

    same: Callable[[Any], Any] = lambda arrivals: arrivals  # noqa: E731
    with (
        mock.patch("uad.http.apis.dialect._ALPHABET", 62 * "x"),
        mock.patch("time.time", return_value=1.75e9),
        mock.patch(MERGE, same),
    ):
        return with_server(test, runtime(text, n, **members), CONFIG)


@cache
def recorded() -> dict[tuple[str, str], str]:
    rows = map(json.loads, RECORDED.read_text(encoding="ascii").splitlines())
    return {(name, way): text for name, way, text in rows}


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_has_the_same_bytes_as_ever(name: str, way: str) -> None:
    assert answered(cases()[name], way) == recorded()[name, way]


def test_nothing_is_recorded_that_is_not_asked() -> None:
    assert [*recorded()] == [(name, way) for name in cases() for way in WAYS]


if __name__ == "__main__":
    rows = [[name, way, answered(case, way)] for name, case in cases().items() for way in WAYS]
    RECORDED.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="ascii")
