"""Requests as applications send them that are not run here. Standard library only."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

URL = os.environ.get("UAD_CLIENTS_URL", "http://127.0.0.1:8080") + "/v1"
ASKED = {"role": "user", "content": "What is the weather in Paris? Write a <tool_call>, and then tell me its answer."}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "Tells the weather of a city", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}


def opened(path: str, body: dict[str, Any]) -> Any:
    """The answer to a POST. Raises HTTPError."""
    data = json.dumps(body).encode()
    return urllib.request.urlopen(
        urllib.request.Request(URL + path, data, {"Content-Type": "application/json"}), timeout=240
    )


def deltas(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The deltas of a streamed chat."""
    with opened("/chat/completions", body) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                yield from (choice["delta"] for choice in json.loads(line[6:])["choices"])


def calls_paris(body: dict[str, Any]) -> None:
    """Raises AssertionError unless the stream calls get_weather for Paris."""
    functions = [call["function"] for delta in deltas(body) for call in delta.get("tool_calls", ())]
    assert "".join(one.get("name", "") for one in functions) == "get_weather", f"other calls: {functions}"
    assert json.loads("".join(one.get("arguments", "") for one in functions)) == {"city": "Paris"}, (
        f"other arguments: {functions}"
    )


def open_webui() -> None:
    """A chat in its default settings, which has the application's own tools."""
    calls_paris({"stream": True, "model": "local", "messages": [ASKED], "tools": [TOOL], "temperature": 0})


def opencode() -> None:
    """What its AI SDK sends."""
    options = {"stream_options": {"include_usage": True}, "tool_choice": "auto", "max_tokens": 256, "temperature": 0}
    system = {"role": "system", "content": "You are a helpful assistant."}
    calls_paris({"model": "local", "messages": [system, ASKED], "tools": [TOOL], "stream": True, **options})


def codex() -> None:
    """The Responses API is not here: the error has to say so, and that it is useless to try again."""
    body = {"model": "local", "input": [ASKED], "tools": [{"type": "function", **FUNCTION}], "stream": True}
    refusal = None
    try:
        opened("/responses", body)
    except urllib.error.HTTPError as error:
        refusal = error
    assert refusal is not None, "it is answered: check the answer here"
    assert refusal.code == 501, f"status {refusal.code}"
    assert "/v1/responses" in json.load(refusal)["error"]["message"], "the route is not named"
    assert refusal.headers["x-should-retry"] == "false", "clients will try again"


def lm_eval() -> None:
    """Three continuations of the loglikelihood task of lm-eval's `local-completions`, as it reads them."""
    root = URL.removesuffix("/v1")

    def ids(text: str) -> list[int]:
        return list(posted(root + "/tokenize", {"content": text})["tokens"])

    sums = []
    for continuation in (" Paris.", " Berlin.", " xylophone."):
        context = ids("The capital of France is")
        prompt = context + ids(continuation)
        body = {"model": "local", "prompt": [prompt], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234}
        (choice,) = posted(URL + "/completions", {**body, "echo": True})["choices"]
        told = choice["logprobs"]
        chosen, top = told["token_logprobs"][len(context) : -1], told["top_logprobs"][len(context) : -1]
        assert len(chosen) == len(prompt) - len(context), f"{len(chosen)} probabilities of {len(prompt)} tokens"
        assert all(max(alternatives.values()) >= one - 1e-4 for one, alternatives in zip(chosen, top, strict=True))
        sums.append(sum(chosen))
    assert sums[0] == max(sums), f"another capital is likelier: {sums}"
    assert sums[2] == min(sums), f"a xylophone is likelier: {sums}"


def posted(url: str, body: dict[str, Any]) -> Any:
    """The JSON of an answer. Raises HTTPError."""
    data = json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=240
    ) as answer:
        return json.load(answer)


SILLY_TAVERN = json.loads(Path(__file__).with_name("silly_tavern.json").read_text(encoding="utf-8"))
"""What SillyTavern sends to a server of llama.cpp's type: the samplers of all servers it knows, most of them on."""


def silly_tavern() -> None:
    """A stream whose events hold one token and its alternatives each, which is how its panel shows them."""
    root, texts = URL.removesuffix("/v1"), []
    for changes in ({}, {"mirostat": 2}, {"samplers": ["adaptive_p", "top_k"], "adaptive_target": 0.4}):
        events = [
            json.loads(line[6:])
            for line in streamed(root + "/completion", {**SILLY_TAVERN, **changes})
            if line.startswith(b"data: {")
        ]
        tokens = [event for event in events if event["tokens"]]
        assert all(len(event["tokens"]) == 1 for event in tokens), "several tokens in an event"
        assert all(len(event["completion_probabilities"][0]["top_logprobs"]) == 5 for event in tokens)
        texts.append("".join(event["content"] for event in events))
        assert texts[-1].strip(), "no text"
    assert len(set(texts)) == len(texts), "mirostat or adaptive-p changes nothing"


def streamed(url: str, body: dict[str, Any]) -> Iterator[bytes]:
    """The lines of a stream. Raises HTTPError."""
    data = json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=240
    ) as lines:
        yield from lines


for name, what, function in (
    ("Open WebUI", "the default chat, with tools", open_webui),
    ("opencode", "a chat with tools", opencode),
    ("codex", "/v1/responses: refused by name", codex),
    ("lm-eval", "loglikelihood of three continuations: echo with logprobs", lm_eval),
    ("SillyTavern", "/completion with its samplers, mirostat, adaptive-p; a token in each event", silly_tavern),
):
    error = ""
    try:
        function()
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"[:300]
    print(json.dumps({"client": name, "version": "recorded", "what": what, "error": error}), flush=True)
