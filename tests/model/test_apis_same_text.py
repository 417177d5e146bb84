"""The text of an answer does not depend on the API that asked for it, nor on drafts: the bundled models behind all."""

from __future__ import annotations

import asyncio
from typing import Any

from kit.models import config
from kit.opened import answering
from kit.server_kit import CHAT

from uad.runtime.runtime import Runtime

SAID = "Write a Python class named Cart with the fields a, b, c."
FIELDS = {"temperature": 0.8, "seed": 7, "top_k": 0}
MESSAGES = [{"role": "user", "content": SAID}]


async def texts(runtime: Runtime, is_drafted: bool) -> list[tuple[str, int, int]]:
    """(text, ids of the prompt, ids of the answer) by each API."""
    fields: dict[str, Any] = {**FIELDS, "speculative": {"enabled": is_drafted, "policy": "fixed"}}
    async with answering(runtime) as session:

        async def post(path: str, **members: Any) -> Any:
            async with session.post(path, json={**fields, **members}) as answer:
                assert answer.status == 200, await answer.text()
                return await answer.json()

        chat = await post(CHAT, messages=MESSAGES, max_tokens=16)
        response = await post("/v1/responses", input=SAID, max_output_tokens=16)
        message = await post("/v1/messages", messages=MESSAGES, max_tokens=16)
        more = {"stream": False, "options": {**FIELDS, "num_predict": 16}}
        talk = await post("/api/chat", messages=MESSAGES, **more)
        answer = await post("/api/generate", prompt=SAID, **more)
    usage = message["usage"]
    n_prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
    return [
        (
            chat["choices"][0]["message"]["content"],
            chat["usage"]["prompt_tokens"],
            chat["usage"]["completion_tokens"],
        ),
        (
            response["output"][0]["content"][0]["text"],
            response["usage"]["input_tokens"],
            response["usage"]["output_tokens"],
        ),
        (message["content"][0]["text"], n_prompt, usage["output_tokens"]),
        (talk["message"]["content"], talk["prompt_eval_count"], talk["eval_count"]),
        (answer["response"], answer["prompt_eval_count"], answer["eval_count"]),
    ]


def test_all_apis_give_the_same_text_drafted_or_not() -> None:
    with Runtime.open(config()) as runtime:
        plain = asyncio.run(texts(runtime, is_drafted=False))
        drafted = asyncio.run(texts(runtime, is_drafted=True))
    assert len({*plain, *drafted}) == 1, (plain, drafted)
    assert plain[0][2] == 16


async def texts_after(runtime: Runtime, prompt: str) -> tuple[str, str]:
    """What goes on from a prompt, by OpenAI's API and, with `raw`, by Ollama's."""
    async with answering(runtime) as session:
        fields: dict[str, Any] = {"prompt": prompt, "speculative": {"policy": "fixed"}}
        async with session.post("/v1/completions", json={**fields, **FIELDS, "max_tokens": 16}) as answer:
            text = (await answer.json())["choices"][0]["text"]
        more = {"raw": True, "stream": False, "options": {**FIELDS, "num_predict": 16}}
        async with session.post("/api/generate", json={**fields, **more}) as answer:
            return text, (await answer.json())["response"]


def test_raw_prompts_of_ollama_give_the_text_of_completions() -> None:
    with Runtime.open(config()) as runtime:
        text, raw = asyncio.run(texts_after(runtime, "def add(a, b):"))
    assert text == raw != ""
