"""Requests as applications send them that are not run here."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checks import BASE_URL, ROOT_URL, TIMEOUT_S, WEATHER, posted, tell

HELLO = {"role": "user", "content": "Say hello."}
ASKED = {"role": "user", "content": WEATHER}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "Tells the weather of a city", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}


def deltas(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The deltas of a streamed chat."""
    with posted(f"{BASE_URL}/chat/completions", body) as lines:
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
    """A request as its AI SDK sends it."""
    options = {"stream_options": {"include_usage": True}, "tool_choice": "auto", "max_tokens": 256, "temperature": 0}
    system = {"role": "system", "content": "You are a helpful assistant."}
    calls_paris({"model": "local", "messages": [system, ASKED], "tools": [TOOL], "stream": True, **options})


def lines(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of a stream of Ollama's API."""
    return [json.loads(line) for line in posted(ROOT_URL + path, body)]


def open_webui_as_ollama() -> None:
    """A chat of its default settings with a connection to Ollama."""
    body = {
        "model": "local:latest",
        "messages": [ASKED],
        "stream": True,
        "options": {"temperature": 0},
        "tools": [TOOL],
    }
    found = lines("/api/chat", {**body, "keep_alive": "5m"})
    calls = [call["function"] for line in found for call in line["message"].get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in calls] == [("get_weather", {"city": "Paris"})], calls
    assert found[-1]["done"], "the stream does not end"


def continue_() -> None:
    """Requests about the model, a chat, a chat with tools, and a suggestion at the cursor."""
    with urllib.request.urlopen(f"{ROOT_URL}/api/tags", timeout=TIMEOUT_S) as listed:
        (model,) = json.load(listed)["models"]
    (shown,) = lines("/api/show", {"name": model["name"]})
    assert ".Suffix" in shown["template"], "the model is not known to fill in the middle"
    assert shown["parameters"].split()[0] == "num_ctx", f"other parameters: {shown['parameters']}"
    options = {"temperature": 0, "num_predict": 256, "num_ctx": 8192}
    same = {"model": "local", "options": options, "keep_alive": 1800}
    assert "".join(
        line["message"]["content"] for line in lines("/api/chat", {**same, "messages": [HELLO], "stream": True})
    )
    (whole,) = lines("/api/chat", {**same, "messages": [ASKED], "tools": [TOOL], "stream": False})
    assert whole["message"]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}, whole["message"]
    file = {"prompt": "def add(a, b):\n    return ", "suffix": "\n\nprint(add(1, 2))", "raw": True, "stream": True}
    inserted = "".join(line["response"] for line in lines("/api/generate", {**same, **file}))
    assert "a + b" in inserted, f"another text: {inserted!r}"


def events(path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a stream that names them."""
    with posted(BASE_URL + path, body) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


def codex() -> None:
    """A turn of `codex exec`: developer messages, functions among tools of other kinds, sealed thoughts."""

    def message(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "id": "msg_1", "role": role, "content": [{"type": "input_text", "text": text}]}

    said = [message("developer", "You are a coding agent."), message("user", "<environment_context/>")]
    tools = [
        {"type": "function", **FUNCTION, "strict": False},
        {"type": "namespace", "name": "multi_agent_v1", "description": "More agents", "tools": []},
        {"type": "web_search", "external_web_access": False},
    ]
    body = {
        "model": "local",
        "stream": True,
        "input": [*said, message("user", WEATHER)],
        "tools": tools,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "1",
        "client_metadata": {"session_id": "1"},
        "temperature": 0,
    }
    last = list(events("/responses", body))[-1]
    assert last["type"] == "response.completed", f"the last event is {last['type']}"
    calls = [item for item in last["response"]["output"] if item["type"] == "function_call"]
    assert [(one["name"], json.loads(one["arguments"])) for one in calls] == [("get_weather", {"city": "Paris"})], calls


def claude_code() -> None:
    """A turn of `claude -p`: a stamp in front of the system, a system message after the user's, a deferred tool."""
    cached = {"cache_control": {"type": "ephemeral"}}
    tool = {"name": "get_weather", "description": FUNCTION["description"], "input_schema": PARAMETERS}
    stamp = "x-anthropic-billing-header: cc_version=2.1.332.c5a; cc_entrypoint=sdk-cli; cch=a5145;"
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 512,
        "stream": True,
        "system": [{"type": "text", "text": stamp}, {"type": "text", "text": "You are an agent.", **cached}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder/>"}]},
            {"role": "system", "content": [{"type": "text", "text": "# Environment", **cached}]},
            {"role": "user", "content": [{"type": "text", "text": WEATHER}]},
        ],
        "tools": [
            tool,
            {"name": "Later", "description": "", "input_schema": {"type": "object"}, "defer_loading": True},
        ],
        "metadata": {"user_id": "1"},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "temperature": 0,
    }
    found = list(events("/messages?beta=true", body))
    assert found[-1]["type"] == "message_stop", f"the last event is {found[-1]['type']}"
    names = [one["content_block"].get("name") for one in found if one["type"] == "content_block_start"]
    pieces = [one["delta"].get("partial_json", "") for one in found if one["type"] == "content_block_delta"]
    assert [name for name in names if name] == ["get_weather"], f"other calls: {names}"
    assert json.loads("".join(pieces)) == {"city": "Paris"}, f"other arguments: {pieces}"


def home_assistant() -> None:
    """A conversation of its Ollama integration, which calls a tool, and a data task of its OpenAI integration, whose
    schema has a choice of several.
    """
    system = {"role": "system", "content": "You are a voice assistant for Home Assistant."}
    same = {"model": "local", "stream": True, "options": {"num_ctx": 8192.0}, "keep_alive": "-1s", "think": False}
    found = lines("/api/chat", {**same, "messages": [system, ASKED], "tools": [TOOL]})
    calls = [call["function"] for line in found for call in line["message"].get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in calls] == [("get_weather", {"city": "Paris"})], calls
    kinds = {"type": ["array", "null"], "items": {"type": "string", "enum": ["man", "dog"]}, "uniqueItems": True}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kinds": kinds},
        "required": ["name", "kinds"],
    }
    form = {"type": "json_schema", "name": "a_person", "schema": {**schema, "strict": True}}
    said = [{"type": "message", "role": "user", "content": "Bob is a man. Give his name and kinds as JSON."}]
    body = {"model": "gpt-4o-mini", "input": said, "text": {"format": form}, "max_output_tokens": 256, "store": False}
    last = list(events("/responses", {**body, "stream": True, "user": "1", "temperature": 0}))[-1]
    assert last["type"] == "response.completed", f"the last event is {last['type']}"
    (text,) = (part["text"] for item in last["response"]["output"] for part in item.get("content") or ())
    assert json.loads(text)["name"] == "Bob", f"another answer: {text!r}"


def lm_eval() -> None:
    """Three continuations of the loglikelihood task of lm-eval's `local-completions`, as it reads them."""

    def ids(text: str) -> list[int]:
        return list(json.load(posted(f"{ROOT_URL}/tokenize", {"content": text}))["tokens"])

    sums = []
    for continuation in (" Paris.", " Berlin.", " xylophone."):
        context = ids("The capital of France is")
        prompt = context + ids(continuation)
        body = {"model": "local", "prompt": [prompt], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234}
        (choice,) = json.load(posted(f"{BASE_URL}/completions", {**body, "echo": True}))["choices"]
        told = choice["logprobs"]
        chosen, top = told["token_logprobs"][len(context) : -1], told["top_logprobs"][len(context) : -1]
        assert len(chosen) == len(prompt) - len(context), f"{len(chosen)} probabilities of {len(prompt)} tokens"
        assert all(max(alternatives.values()) >= one - 1e-4 for one, alternatives in zip(chosen, top, strict=True))
        sums.append(sum(chosen))
    assert sums[0] == max(sums), f"another capital is likelier: {sums}"
    assert sums[2] == min(sums), f"a xylophone is likelier: {sums}"


SILLY_TAVERN = json.loads(Path(__file__).with_name("silly_tavern.json").read_text(encoding="utf-8"))
"""SillyTavern's body for a server of llama.cpp's type: the samplers of all servers it knows, most of them on."""


def silly_tavern() -> None:
    """A stream whose events hold one token and its alternatives each, which is how its panel shows them."""
    texts: list[str] = []
    for changes in ({}, {"mirostat": 2}, {"samplers": ["adaptive_p", "top_k"], "adaptive_target": 0.4}):
        events = [
            json.loads(line[6:])
            for line in posted(f"{ROOT_URL}/completion", {**SILLY_TAVERN, **changes})
            if line.startswith(b"data: {")
        ]
        tokens = [event for event in events if event["tokens"]]
        assert all(len(event["tokens"]) == 1 for event in tokens), "several tokens in an event"
        assert all(len(event["completion_probabilities"][0]["top_logprobs"]) == 5 for event in tokens)
        texts.append("".join(event["content"] for event in events))
        assert texts[-1].strip(), "no text"
    assert len(set(texts)) == len(texts), "mirostat or adaptive-p changes nothing"


for name, what, function in (
    ("Open WebUI", "the default chat, with tools", open_webui),
    ("Open WebUI", "a chat with tools, over Ollama's API", open_webui_as_ollama),
    ("Continue", "the model, chats and a suggestion at the cursor, over Ollama's API", continue_),
    ("opencode", "a chat with tools", opencode),
    ("codex", "a turn with tools, over responses", codex),
    ("Claude Code", "a turn with tools, over messages", claude_code),
    ("Home Assistant", "a conversation with a tool over Ollama's API, a data task over responses", home_assistant),
    ("lm-eval", "loglikelihood of three continuations: echo with logprobs", lm_eval),
    ("SillyTavern", "/completion with its samplers, mirostat, adaptive-p; a token in each event", silly_tavern),
):
    tell(name, "recorded", what, function)
