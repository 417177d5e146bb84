"""Requests as applications send them that are not run here. Standard library only."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
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


for name, what, function in (
    ("Open WebUI", "the default chat, with tools", open_webui),
    ("opencode", "a chat with tools", opencode),
    ("codex", "/v1/responses: refused by name", codex),
):
    error = ""
    try:
        function()
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"[:300]
    print(json.dumps({"client": name, "version": "recorded", "what": what, "error": error}), flush=True)
