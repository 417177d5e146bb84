"""Ollama's API over HTTP: lines and whole answers, options, conversations, what is told of the model, and refusals."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiohttp import ClientSession
from kit.api_kit import CALL, SECOND, THOUGHT, saying
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, CONFIG, HELLO, get, post, serving, with_server

from uad.base.errors import DecodeError
from uad.base.types import FimTokens
from uad.http.apis import ollama
from uad.http.apis.dialect import Translated
from uad.http.requests.fields import ChatBody
from uad.http.requests.pictures import chat_sources

TALK, GENERATE = "/api/chat", "/api/generate"
ROOT = Path(__file__).parents[3]
FUNCTIONS = [
    {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}},
    {"name": "say", "parameters": {"type": "object"}},
]
TOOLS = [{"type": "function", "function": one} for one in FUNCTIONS]
EVERYTHING = f"{THOUGHT}I look.\n{CALL}\n{SECOND}"


def told(path: str = TALK, text: str = "hello", **body: Any) -> dict[str, Any]:
    """A whole answer."""
    question = {"messages": HELLO} if path == TALK else {"prompt": "hi"}
    status, answer = post(path, {"model": "m", **question, "stream": False, **body}, saying(text))
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


def lines(path: str, body: Any, fake: FakeRuntime) -> list[dict[str, Any]]:
    """A streamed answer, which nobody has to ask for."""

    async def test(session: ClientSession) -> list[dict[str, Any]]:
        async with session.post(path, json=body) as answer:
            data = await answer.read()
            assert (answer.status, answer.content_type) == (200, "application/x-ndjson"), data
            assert data.endswith(b"\n")
            return [json.loads(line) for line in data.splitlines()]

    return with_server(test, fake)


def refused(path: str = TALK, **body: Any) -> str:
    """Why a request is refused, with 400 and nothing but that."""
    question = {"messages": HELLO} if path == TALK else {"prompt": "hi"}
    status, answer = post(path, {**question, **body}, saying("no"))
    assert (status, list(answer)) == (400, ["error"]), answer
    found: str = answer["error"]
    return found


def asked(path: str, **body: Any) -> FakeRuntime:
    """The runtime, after a request that it answered."""
    fake = saying("ok")
    status, answer = post(path, {"stream": False, **body}, fake)
    assert status == 200, answer
    return fake


# --- answers


def test_every_byte_of_a_stream() -> None:
    async def test(session: ClientSession) -> bytes:
        async with session.post(TALK, json={"model": "m:7b", "messages": HELLO}) as answer:
            return await answer.read()

    same: Any = lambda arrivals: arrivals  # noqa: E731
    with mock.patch("time.time", return_value=1.75e9), mock.patch("uad.http.apis.answer.merge", same):
        data = with_server(test, saying("Käse", step=3))
    head = '{"model":"m:7b","created_at":"2025-06-15T15:06:40.000000Z","message":{"role":"assistant","content":'
    *pieces, last = data.decode("ascii").splitlines()
    assert pieces == [f'{head}"{text}"}},"done":false}}' for text in ("K\\u00e4", "s", "e")]
    n_prompt = post("/v1/chat/completions/input_tokens", {"messages": HELLO})[1]["input_tokens"]
    numbers = (
        '"total_duration":3000000,"load_duration":0,'
        f'"prompt_eval_count":{n_prompt},"prompt_eval_duration":1000000,"eval_count":4,"eval_duration":2000000,'
    )
    assert last.startswith(head + '""},"done":true,"done_reason":"stop",' + numbers + '"timings":{')


def test_a_whole_answer_has_the_message_and_the_numbers() -> None:
    answer = told(text=EVERYTHING, tools=TOOLS)
    first, second = answer["message"].pop("tool_calls")
    assert answer["message"] == {"role": "assistant", "content": "I look.", "thinking": "Hm, hm."}
    assert first["function"] == {"index": 0, "name": "look_up", "arguments": {"word": "tea"}}
    assert second["function"] == {"index": 1, "name": "say", "arguments": {}}
    assert first["id"] != second["id"]
    assert (answer["model"], answer["done"], answer["done_reason"]) == ("m", True, "stop")
    assert answer["total_duration"] >= answer["prompt_eval_duration"] + answer["eval_duration"] > 0


def test_statistics_of_drafting_are_those_of_the_chat() -> None:
    chat = post(CHAT, {"messages": HELLO}, saying("hello"))[1]
    answer = told()
    assert (answer["uad"], answer["timings"]) == (chat["uad"], chat["timings"])


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("path", [TALK, GENERATE])
@pytest.mark.parametrize("text", ["hello", EVERYTHING, THOUGHT, ""])
def test_lines_say_the_same_as_the_whole(path: str, text: str, step: int) -> None:
    question = {"messages": HELLO, "tools": TOOLS} if path == TALK else {"prompt": "hi"}
    found = lines(path, question, saying(text, step=step))
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
    heard = [line["message"] if path == TALK else {**line, "content": line["response"]} for line in found]
    whole = told(path, text, **question)
    message = whole["message"] if path == TALK else {**whole, "content": whole["response"]}
    assert "".join(one["content"] for one in heard) == message["content"]
    assert "".join(one.get("thinking", "") for one in heard) == message.get("thinking", "")
    calls = [call["function"] for one in heard for call in one.get("tool_calls", ())]
    assert calls == [call["function"] for call in message.get("tool_calls", ())]


def test_a_call_that_was_cut_is_not_shown() -> None:
    answer = told(text=CALL, tools=TOOLS, options={"num_predict": len(CALL) - 20})
    assert (answer["message"], answer["done_reason"]) == ({"role": "assistant", "content": ""}, "length")


def test_probabilities_are_in_the_pieces_and_all_of_them_in_the_whole() -> None:
    body = {"logprobs": True, "top_logprobs": 1}
    for path, question in ((TALK, {"messages": HELLO}), (GENERATE, {"prompt": "hi"})):
        found = lines(path, {**question, **body}, saying("Tea for two.", step=4))
        streamed = [one["token"] for line in found for one in line.get("logprobs", ())]
        whole = told(path, "Tea for two.", **body)["logprobs"]
        assert "".join(streamed).startswith("Tea for two")
        assert [one["token"] for one in whole] == streamed
        assert {"token", "logprob", "bytes", "top_logprobs"} <= whole[0].keys()
    raw = told(GENERATE, "Tea.", raw=True, **body)["logprobs"]
    assert [len(one["top_logprobs"]) for one in raw] == [1] * len(raw)


def test_an_error_in_a_stream_is_its_last_line() -> None:
    fake = saying("Good day, all of you here.", fail=DecodeError("no luck"), fail_after=24)
    *_, before, last = lines(TALK, {"messages": HELLO}, fake)
    assert not before["done"]
    assert last == {"error": "no luck"}


def test_silence_is_broken_by_a_line_that_says_nothing() -> None:
    dialects: list[ollama.LineDialect] = []
    made = ollama.TalkDialect.__init__

    def kept(self: ollama.TalkDialect, *given: Any) -> None:
        made(self, *given)
        dialects.append(self)

    with mock.patch.object(ollama.TalkDialect, "__init__", kept):
        told()
    assert json.loads(dialects[0].ping)["message"] == {"role": "assistant", "content": ""}
    assert dialects[0].ping.endswith(b"\n")


def test_a_client_that_leaves_is_not_written_for() -> None:
    async def test() -> list[int]:
        fake = saying("x" * 1000, step=1, pause=0.01)
        async with asyncio.timeout(120), serving(fake) as session:
            async with session.post(TALK, json={"messages": HELLO}) as answer:
                await answer.content.readline()
                answer.close()
            while not fake.cancelled:
                await asyncio.sleep(0)
        return fake.cancelled

    assert len(asyncio.run(test())) == 1


# --- requests


def test_a_request_is_the_same_as_that_of_a_chat() -> None:
    options = {"temperature": 0.3, "seed": 5, "top_k": 7, "num_predict": 9, "stop": ["END"], "mirostat": 2}
    drafts = {"speculative": {"n_max": 3}}
    mine = asked(TALK, messages=HELLO, options=options, tools=TOOLS, **drafts)
    flat = {("max_tokens" if name == "num_predict" else name): value for name, value in options.items()}
    (chat,) = asked(CHAT, messages=HELLO, tools=TOOLS, **flat, **drafts).requests
    assert replace(mine.requests[0], name="") == replace(chat, name="")
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    (chat,) = asked(CHAT, messages=system, **flat).requests
    (one,) = asked(GENERATE, prompt="hi", system="Be brief.", options=options).requests
    assert replace(one, name="") == replace(chat, name="")
    (text,) = asked("/v1/completions", prompt="hi", **flat).requests
    (one,) = asked(GENERATE, prompt="hi", raw=True, options=options).requests
    assert replace(one, name="") == replace(text, name="")


@pytest.mark.parametrize("length", [0, 0.5, -1, -2, -1e300])
@pytest.mark.parametrize("question", [(TALK, {"messages": HELLO}), (GENERATE, {"prompt": "hi", "raw": True})])
def test_no_end_and_the_end_of_the_context_are_one(question: tuple[str, dict[str, Any]], length: float) -> None:
    path, body = question
    (one,) = asked(path, **body, options={"num_predict": length}).requests
    assert one.max_tokens is None
    (one,) = asked(path, **body, options={"num_predict": 1.5}).requests
    assert one.max_tokens == 1


def test_pictures_stand_before_the_parts_of_their_message() -> None:
    parts = [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": "aGk="}}]
    talk = [{"role": "user", "content": parts, "images": ["aG8="]}, {"role": "user", "content": parts[1:]}]
    translated = ollama.read_talk({"messages": talk})
    assert isinstance(translated, Translated)
    assert isinstance(translated.chat, ChatBody)
    sources = chat_sources(translated.chat, translated.places)
    assert [one.where for one in sources] == ["messages.0.images.0", "messages.0.content.1", "messages.1.content.0"]
    kinds = [part.type for part in translated.chat.messages[0].content or ()]
    assert kinds == ["image_url", "text", "image_url"]


def test_options_without_effect_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    ollama._leave_out.cache_clear()
    with caplog.at_level(logging.WARNING, "uad.server"):
        for _ in range(2):
            asked(TALK, messages=HELLO, options={"num_ctx": 4096, "tfs_z": 1.0, "num_gpu": None})
    assert [record.getMessage() for record in caplog.records] == [
        "option 'num_ctx' of Ollama's API has no effect: the server is started with it",
        "option 'tfs_z' of Ollama's API has no effect: there is no such option here",
    ]


def test_the_page_lists_the_options_that_there_are() -> None:
    page = (ROOT / "docs" / "ollama.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|(.*?)\|", page.partition("\n| option |")[2].partition("\n\n")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted({*ollama.OPTIONS, *ollama.FIXED})


@pytest.mark.parametrize(("think", "expected"), [(True, True), (False, False), ("high", True), (None, None)])
def test_think_is_the_switch_of_thoughts(think: object, expected: bool | None) -> None:
    for path, question in ((TALK, {"messages": HELLO}), (GENERATE, {"prompt": "hi"})):
        ((_, kwargs, _),) = asked(path, **question, think=think).chats
        ((_, same, _),) = asked(
            CHAT,
            messages=[{"role": "user", "content": "hi"}],
            **({} if expected is None else {"enable_thinking": expected}),
            **({"reasoning_effort": think} if isinstance(think, str) else {}),
        ).chats
        assert kwargs == same


def test_a_format_is_json_or_a_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for path, question in ((TALK, {"messages": HELLO}), (GENERATE, {"prompt": "hi"}), (GENERATE, {"raw": True})):
        question = {**question, **({"prompt": "hi"} if path == GENERATE else {})}
        (one,) = asked(path, **question, format=schema).requests
        assert one.constraint is not None
        assert json.loads(one.constraint.text) == schema
        (one,) = asked(path, **question, format="json").requests
        assert one.constraint is not None
        assert json.loads(one.constraint.text) == {"type": "object"}
        (one,) = asked(path, **question, format="").requests
        assert one.constraint is None


def test_results_go_to_the_calls_that_wait_for_them() -> None:
    calls = [{"function": {"name": name, "arguments": {"word": name}}} for name in ("look_up", "say", "say")]
    given = [
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": calls},
        {"role": "tool", "content": "one", "tool_name": "say"},
        {"role": "tool", "content": "two"},
        {"role": "tool", "content": "three", "tool_call_id": "call00003"},
        {"role": "assistant", "tool_calls": [{"id": "mine", **calls[0]}]},
        {"role": "tool", "content": "four", "tool_name": "other"},
        {"role": "tool", "content": "five"},
    ]
    ((messages, _, _),) = asked(TALK, messages=[*HELLO, *given]).chats
    sent = messages[1:]
    assert [call["id"] for call in sent[0]["tool_calls"]] == ["call00001", "call00002", "call00003"]  # type: ignore[attr-defined]
    assert sent[0]["reasoning_content"] == "Hm."
    ids = [message.get("tool_call_id") for message in sent if message["role"] == "tool"]
    assert ids == ["call00002", "call00001", "call00003", "mine", None]
    assert (sent[1]["name"], "name" in sent[2]) == ("say", False)


@pytest.mark.parametrize(("keep_alive", "reason"), [(None, "load"), ("5m", "load"), (-1, "load"), (0, "unload")])
def test_a_request_that_asks_nothing_is_answered_at_once(keep_alive: object, reason: str) -> None:
    for path, said in ((TALK, {"message": {"role": "assistant", "content": ""}}), (GENERATE, {"response": ""})):
        fake = saying("no")
        status, answer = post(path, {"model": "m", "keep_alive": keep_alive}, fake)
        created = answer.pop("created_at")
        assert created.endswith("Z")
        assert (status, answer) == (200, {"model": "m", **said, "done": True, "done_reason": reason})
        assert fake.requests == []


@pytest.mark.parametrize("value", [0, -1, 1.5, "0", "5m", "1h30m", "-1s", "1.5h", ".5s", "300ms"])
def test_a_model_may_be_kept_as_long_as_is_wished(value: object) -> None:
    assert told(keep_alive=value)["done_reason"] == "stop"


@pytest.mark.parametrize("value", ["10", "-1", "", "5 m", "m", True, [], "1d"])
def test_what_is_no_duration_is_refused(value: object) -> None:
    assert refused(keep_alive=value).startswith("keep_alive: must be a number of seconds")


def test_what_stands_before_a_suffix() -> None:
    fake = saying("ok")
    fake.info = replace(fake.info, fim=FimTokens(prefix=1, suffix=2, middle=3))
    status, answer = post(GENERATE, {"prompt": "ab", "suffix": "ef", "stream": False}, fake)
    assert (status, answer["response"]) == (200, "ok"), answer
    assert fake.requests[0].prompt[-7:] == (1, *b"ab", 2, *b"ef", 3)


@pytest.mark.parametrize("name", ["toy", "toy:latest", "toy:7b", "llama3.2", ""])
def test_any_name_means_the_model_and_answers_repeat_it(name: str) -> None:
    assert told(model=name)["model"] == (name or "toy")


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (TALK, {"messages": [{**HELLO[0], "images": ["aGk="]}]}, "messages.0.images.0: image input is not supported"),
        (TALK, {"messages": [*HELLO, {"role": "bot", "content": "a"}]}, "messages.1.role: "),
        (TALK, {"messages": ["hi"]}, "messages.0: must be an object"),
        (TALK, {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages.0.tool_calls.0.function: "),
        (TALK, {"messages": [{"role": "tool", "content": "a", "tool_name": 1}]}, "messages.0.tool_name: "),
        (TALK, {"messages": [{"role": "assistant", "thinking": 1}]}, "messages.0.thinking: "),
        (TALK, {"tools": [{"function": {"name": ""}}]}, "tools.0.function.name: "),
        (TALK, {"template": "{{ x }}"}, "template is not supported"),
        (TALK, {"n": 2}, "n is not supported"),
        (TALK, {"format": "xml"}, "format: must be "),
        (TALK, {"format": {"type": "nothing"}}, "format: "),
        (TALK, {"think": "hard"}, "think: must be true, false, or one of"),
        (TALK, {"logprobs": True, "top_logprobs": 101}, "top_logprobs: "),
        (TALK, {"stream": "yes"}, "stream: "),
        (TALK, {"options": {"temperature": "hot"}}, "options.temperature: must be a number"),
        (TALK, {"options": {"num_predict": "5"}}, "options.num_predict: "),
        (TALK, {"options": {"seed": "a"}}, "options.seed: "),
        (TALK, {"options": {"stop": 1}}, "options.stop: "),
        (TALK, {"options": []}, "options: "),
        (GENERATE, {"images": ["aGk="]}, "images.0: image input is not supported"),
        (GENERATE, {"context": [1, 2]}, "context is not supported: send the conversation to /api/chat"),
        (GENERATE, {"template": "x"}, "template is not supported"),
        (GENERATE, {"raw": True, "system": "x"}, "raw mode does not support template, system, or context"),
        (GENERATE, {"raw": True, "context": [1]}, "raw mode does not support template, system, or context"),
        (GENERATE, {"suffix": "x"}, "suffix: this model cannot fill in the middle"),
        (GENERATE, {"prompt": "x", "options": {"top_p": "2"}}, "options.top_p: "),
        (GENERATE, {"raw": True, "logprobs": True, "top_logprobs": 101}, "top_logprobs: "),
    ],
)
def test_what_is_wrong_is_named_in_the_words_of_the_request(path: str, body: dict[str, Any], why: str) -> None:
    assert refused(path, **body).startswith(why)


# --- the model


def test_the_one_model_is_listed_shown_and_running() -> None:
    (listed,) = get("/api/tags")[1]["models"]
    (running,) = get("/api/ps")[1]["models"]
    assert (listed["name"], listed["model"], listed["size"]) == ("toy:latest", "toy:latest", 20)
    assert re.fullmatch("[0-9a-f]{64}", listed["digest"])
    assert running["digest"] == listed["digest"]
    assert (running["context_length"], running["expires_at"] > listed["modified_at"]) == (4096, True)
    for name in ("toy", "toy:latest", "TOY", "Toy:Latest", "library/toy", "registry.ollama.ai/library/toy:latest"):
        fake = saying("ok")
        target = replace(fake.info.target, arch="qwen2", n_params=1_543_714_304, ftype="Q4_K - Medium")
        fake.info = replace(fake.info, target=target, fim=FimTokens(prefix=1, suffix=2, middle=3))
        status, shown = post("/api/show", {"model": name}, fake)
        assert status == 200
        assert shown["details"]["family"] == "qwen2"
        assert (shown["details"]["parameter_size"], shown["details"]["quantization_level"]) == ("1.54B", "Q4_K_M")
        assert shown["model_info"]["qwen2.context_length"] == 4096
        assert shown["capabilities"] == ["completion", "tools", "insert"]
        assert ".Suffix" in shown["template"]
        assert re.fullmatch(r"(\S+)\s+(\S+)", shown["parameters"]), "Continue takes lines of two words only"


def test_an_empty_name_hides_none_and_capitals_of_an_alias_do_not_count() -> None:
    config = replace(CONFIG, alias="Big.GGUF")
    for members in ({"model": "", "name": "big.gguf"}, {"model": None, "name": "BIG.gguf:latest"}):
        assert post("/api/show", members, saying("ok"), config)[0] == 200
    assert post("/api/show", {"model": "", "name": "other"}, saying("ok"), config)[0] == 404


def test_another_model_is_not_shown() -> None:
    for members in ({"model": "llama3.2"}, {"name": "llama3.2"}):
        assert post("/api/show", members) == (404, {"error": "model 'llama3.2' not found"})


def test_the_version_is_one_of_ollamas() -> None:
    assert get("/api/version") == (200, {"version": ollama.VERSION})


@pytest.mark.parametrize("ui", [True, False])
def test_clients_that_look_for_a_server_find_one(ui: bool) -> None:
    async def test(session: ClientSession) -> tuple[int, str]:
        async with session.head("/") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with session.get("/") as answer:
            return answer.status, await answer.text()

    status, text = with_server(test, config=replace(CONFIG, ui=ui))
    assert (status, text == ollama.RUNNING) == (200, not ui)


# --- errors


def test_every_error_has_ollamas_form() -> None:
    async def test(session: ClientSession) -> None:
        named = [path.removeprefix("/api/").format(digest="sha256:1") for path in ollama.OLLAMA.absent]
        for method in ("POST", "GET", "DELETE"):
            for name in named:
                async with session.request(method, f"/api/{name}") as answer:
                    assert answer.status == 501
                    assert list(await answer.json()) == ["error"]
                    assert f"/api/{name} is not supported" in (await answer.json())["error"]
        for path, data, expected in (
            ("/api/nothing", b"{}", 404),
            ("/api/tags", b"{}", 405),
            (TALK, b"{", 400),
            (GENERATE, b'"x"', 400),
            (TALK, json.dumps({"messages": [{"role": "user", "content": "x" * 9000}]}).encode(), 400),
        ):
            async with session.post(path, data=data) as answer:
                assert answer.status == expected
                found = await answer.json()
                assert list(found) == ["error"]
                assert isinstance(found["error"], str)

    with_server(test)
    config = replace(CONFIG, api_keys=("secret",))
    status, answer = post(TALK, {"messages": HELLO}, config=config)
    assert (status, isinstance(answer["error"], str)) == (401, True)


def test_a_prefix_called_api_leaves_the_other_routes_their_errors() -> None:
    config = replace(CONFIG, api_prefix="/api")
    for path in ("/api/completion", "/api/v1/chat/completions", "/api/slots/0"):
        assert isinstance(post(path, {}, config=config)[1]["error"], dict), path
    assert isinstance(post("/api/api/embed", {}, config=config)[1]["error"], str)
