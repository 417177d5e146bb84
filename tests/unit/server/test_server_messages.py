"""/v1/messages over HTTP: what answers look like, whole and streamed, what requests may say, and what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from kit.api_kit import ANSWERS, CALL, SECOND, THOUGHT, named_events, saying, streamed
from kit.fake_runtime import HELD, FakeRuntime
from kit.server_kit import HELLO, post, serving, with_server

from uad.base.config import ServerConfig
from uad.base.errors import DecodeError
from uad.http.apis import anthropic
from uad.http.requests.left_out import leave_out

PATH = "/v1/messages"
LOOK_UP = {
    "name": "look_up",
    "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}},
}
SAY = {"name": "say", "description": "Says it.", "input_schema": {"type": "object"}}
TOOLS = [LOOK_UP, SAY]
USER = {"role": "user", "content": "hi"}
USER_PARTS = [{"type": "text", "text": "say it"}]


def created(text: str = "hello", **body: Any) -> dict[str, Any]:
    status, answer = post(PATH, {"messages": HELLO, "max_tokens": 500, **body}, saying(text))
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


def refused(**body: Any) -> tuple[int, str]:
    status, answer = post(PATH, {"messages": HELLO, **body}, saying(CALL))
    assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error"), answer
    return status, answer["error"]["message"].partition(":")[0]


def conversation(messages: Any, **body: Any) -> list[dict[str, Any]]:
    """The messages that the template gets."""
    fake = saying("ok")
    status, answer = post(PATH, {"messages": messages, **body}, fake)
    assert status == 200, answer
    ((told, _, _),) = fake.chats
    return [dict(message) for message in told]


def test_a_text_is_a_block() -> None:
    answer = created("hello")
    assert answer["id"].startswith("msg_")
    usage = answer.pop("usage")
    assert {**answer, "id": ""} == {
        "id": "",
        "type": "message",
        "role": "assistant",
        "model": "toy",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    n_prompt = post("/v1/messages/count_tokens", {"messages": HELLO})[1]["input_tokens"]
    assert usage == {
        "input_tokens": n_prompt - 1,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 1,
        "output_tokens": 4,  # the scripted runtime does not count the last byte
        "output_tokens_details": {"thinking_tokens": 0},
    }


def test_thoughts_text_and_calls_are_blocks_in_order() -> None:
    answer = created(f"{THOUGHT}I look.\n{CALL}\n{SECOND}", tools=TOOLS)
    thought, text, call, second = answer["content"]
    assert thought == {"type": "thinking", "thinking": "Hm, hm.", "signature": ""}
    assert text == {"type": "text", "text": "I look."}
    assert call == {"type": "tool_use", "id": call["id"], "name": "look_up", "input": {"word": "tea"}}
    assert (second["name"], second["input"]) == ("say", {})
    assert call["id"].startswith("toolu_")
    assert call["id"] != second["id"]
    assert answer["stop_reason"] == "tool_use"


def test_why_an_answer_ends() -> None:
    assert created("hello", max_tokens=2)["stop_reason"] == "max_tokens"
    answer = created("hello END more", stop_sequences=["STOP", "END"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "END")
    assert answer["content"] == [{"type": "text", "text": "hello "}]


def test_a_call_that_was_cut_is_left_out_of_the_whole() -> None:
    answer = created(CALL, tools=TOOLS, max_tokens=len(CALL) - 20)
    assert (answer["content"], answer["stop_reason"]) == ([], "max_tokens")


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("text", ["hello", f"{THOUGHT}I look.\n{CALL}\n{SECOND}", CALL])
def test_a_stream_says_the_same_as_the_whole(step: int, text: str) -> None:
    events = streamed(PATH, {"messages": HELLO, "tools": TOOLS}, saying(text, step=step))
    assert [events[0]["type"], events[-2]["type"], events[-1]["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    message = events[0]["message"]
    assert (message["content"], message["stop_reason"], message["usage"]["output_tokens"]) == ([], None, 0)
    assert message["usage"]["input_tokens"] > 0
    assert message["usage"]["cache_read_input_tokens"] == HELD
    for name in ("input_tokens", "cache_read_input_tokens"):
        assert message["usage"][name] == events[-2]["usage"][name], "known from the beginning"
    assert "prompt_progress" not in str(events)
    whole = created(text, tools=TOOLS)
    assert _plain(_from_deltas(events[1:-2])) == _plain(whole["content"])
    assert events[-2]["delta"] == {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    assert events[-2]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert events[-2]["usage"]["output_tokens"] > 0


def _plain(blocks: list[dict[str, Any]]) -> list[Any]:
    return [{name: value for name, value in block.items() if name != "id"} for block in blocks]


def _from_deltas(events: list[Any]) -> list[dict[str, Any]]:
    """The blocks, put together from the pieces as clients do it."""
    blocks: list[dict[str, Any]] = []
    texts: list[str] = []
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append(event["content_block"])
                texts.append("")
            case "content_block_delta":
                assert event["index"] == len(blocks) - 1
                kind = event["delta"]["type"]
                if kind == "signature_delta":
                    blocks[-1]["signature"] = event["delta"]["signature"]
                else:
                    name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
                    texts[-1] += event["delta"][name[kind]]
            case "content_block_stop":
                assert event["index"] == len(blocks) - 1
                kind = blocks[-1]["type"]
                blocks[-1] |= {"input": json.loads(texts[-1])} if kind == "tool_use" else {kind: texts[-1]}
    return blocks


def test_system_is_a_text_or_blocks_and_may_stand_anywhere() -> None:
    blocks = [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Now."},
    ]
    first, *_ = conversation([USER], system=blocks)
    assert (first["role"], [part["text"] for part in first["content"]]) == ("system", ["Be brief.", "Now."])
    assert conversation([USER], system="Be brief.")[0]["content"] == "Be brief."
    told = conversation([USER, {"role": "system", "content": [{"type": "text", "text": "Tools changed."}]}])
    assert [message["role"] for message in told] == ["user", "system"]


def test_the_stamp_of_claude_code_is_no_part_of_the_prompt() -> None:
    stamp = "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;"
    blocks = [{"type": "text", "text": stamp}, {"type": "text", "text": "You help."}]
    assert conversation([USER], system=blocks)[0]["content"] == "You help."
    assert conversation([USER], system=f"{stamp}You help.")[0]["content"] == "You help."
    assert conversation([USER], system="What is x-anthropic-billing-header: a=b;?")[0]["content"].endswith("a=b;?")


def test_blocks_become_messages() -> None:
    told = conversation(
        [
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"word": "tea"}},
                    {"type": "tool_use", "id": "t2", "name": "say", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Here."},
                    {"type": "tool_result", "tool_use_id": "t1", "content": "a drink"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "is_error": True,
                        "content": [{"type": "text", "text": "no voice"}, {"type": "text", "text": "sorry"}],
                    },
                ],
            },
            {"role": "user", "content": "Go on."},
        ]
    )
    _, assistant, first, second, user = told
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Hm.")
    assert [(call["id"], call["function"]["arguments"]) for call in assistant["tool_calls"]] == [
        ("t1", {"word": "tea"}),
        ("t2", {}),
    ]
    assert (first["role"], first["tool_call_id"], first["content"]) == ("tool", "t1", "a drink")
    assert second["content"] == "Error: no voice\nsorry"
    assert [part["text"] for part in user["content"]] == ["Here.", "Go on."]


def test_an_answer_begun_goes_on() -> None:
    fake = saying("ok")
    begun = [USER, {"role": "assistant", "content": [{"type": "text", "text": "It is"}]}]
    assert post(PATH, {"messages": begun}, fake)[0] == 200
    prompt = bytes(id_ for id_ in fake.requests[0].prompt if id_ < 256)
    assert prompt.endswith(b"assistant:It is")


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        ({"type": "enabled", "budget_tokens": 50}, {"enable_thinking": True, "thinking_budget": 50}),
        ({"type": "enabled", "budget_tokens": 0}, {"enable_thinking": False, "thinking_budget": 0}),
        ({"type": "disabled"}, {"enable_thinking": False}),
        ({"type": "adaptive"}, {}),
        ({"type": "between_tools", "display": None}, {}),
    ],
)
def test_thinking_goes_to_the_template(thinking: Any, expected: Any) -> None:
    fake = saying("ok")
    assert post(PATH, {"messages": HELLO, "thinking": thinking}, fake)[0] == 200
    assert fake.chats[0][1] == expected


def test_thoughts_that_are_not_shown_come_back_in_their_signature() -> None:
    thinking = {"type": "adaptive", "display": "omitted"}
    block, text = created(f"{THOUGHT}hello", thinking=thinking)["content"]
    assert block["thinking"] == ""
    events = streamed(PATH, {"messages": HELLO, "thinking": thinking}, saying(f"{THOUGHT}hello"))
    assert "Hm, hm" not in json.dumps(events)  # "Hm" alone may stand in the signature
    assert _from_deltas(events[1:-2])[0] == block
    told = conversation([USER, {"role": "assistant", "content": [block, text]}, USER])
    assert told[1]["reasoning_content"] == "Hm, hm."


def test_efforts_and_forms() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "schema": schema}
    for more in ({"output_config": {"format": form, "effort": "low"}}, {"output_format": form}):
        fake = saying('{"a": 1}')
        assert post(PATH, {"messages": HELLO, **more}, fake)[0] == 200
        assert fake.chats[0][1] == ({"reasoning_effort": "low"} if "output_config" in more else {})
        constraint = fake.requests[0].constraint
        assert constraint is not None
        assert json.loads(constraint.text) == schema
    assert refused(output_config={"format": {"type": "xml"}}) == (400, "output_config.format")
    assert refused(output_format={"type": "json_schema", "schema": {"type": "no"}}) == (400, "output_config.format")


def test_choices_of_tools() -> None:
    def constrained(choice: Any) -> bool:
        fake = saying(CALL)
        assert post(PATH, {"messages": HELLO, "tools": TOOLS, "tool_choice": choice}, fake)[0] == 200
        return fake.requests[0].constraint is not None

    assert constrained({"type": "any"})
    assert constrained({"type": "tool", "name": "say"})
    assert not constrained({"type": "auto"})
    none = created(CALL, tools=TOOLS, tool_choice={"type": "none"})
    assert [block["type"] for block in none["content"]] == ["text"]
    single = {"type": "auto", "disable_parallel_tool_use": True}
    assert len(created(f"{CALL}\n{SECOND}", tools=TOOLS, tool_choice=single)["content"]) == 1


def test_a_tool_that_is_deferred_waits_until_it_is_found() -> None:
    def tools(messages: Any) -> list[str]:
        fake = saying("ok")
        assert post(PATH, {"messages": messages, "tools": [{**LOOK_UP, "defer_loading": True}, SAY]}, fake)[0] == 200
        told: Any = fake.chats[0][1]["tools"]
        return [tool["function"]["name"] for tool in told]

    use = {"type": "tool_use", "id": "t1", "name": "say", "input": {}}
    found = [{"type": "tool_reference", "tool_name": "look_up"}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": found}
    assert tools([USER]) == ["say"]
    after = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert tools(after) == ["look_up", "say"]
    assert conversation(after)[-1]["content"] == "look_up"
    bad = {**SAY, "strict": True, "input_schema": {"type": "no"}}
    assert refused(tools=[{**LOOK_UP, "defer_loading": True}, bad]) == (400, "tools.1.input_schema")


def test_settings_reach_the_engine() -> None:
    fake = saying("ok")
    body = {"temperature": 0.25, "top_k": 7, "seed": 3, "max_tokens": 9, "stop_sequences": ["END"]}
    assert post(PATH, {"messages": HELLO, **body, "metadata": {"user_id": "x"}}, fake)[0] == 200
    (request,) = fake.requests
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0.25, 7, 3)
    assert (request.max_tokens, request.stop) == (9, ("END",))


WEB = {"type": "web_search_20250305", "name": "web_search"}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}}


def document(**source: Any) -> dict[str, Any]:
    return {"type": "document", "title": "T", "source": source}


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (document(type="text", media_type="text/plain", data="what it says"), "T\nwhat it says"),
        (document(type="content", content="what it says"), "T\nwhat it says"),
        (document(type="content", content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "T\na\nb"),
        ({**document(type="text", data="x"), "context": "of it", "title": None}, "of it\nx"),
        (
            {"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "found"}]},
            "T\nS\nfound",
        ),
    ],
)
def test_the_text_of_documents_is_read(block: dict[str, Any], text: str) -> None:
    part = {"type": "text", "text": text}
    assert conversation([{"role": "user", "content": [block, *USER_PARTS]}]) == [
        {"role": "user", "content": [part, *USER_PARTS]}
    ]
    use = {"type": "tool_use", "id": "x", "name": "say"}
    result = {"type": "tool_result", "tool_use_id": "x", "content": [block]}
    talk = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert conversation(talk)[-1]["content"] == text


SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
HITS = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]}


def test_what_ran_on_anthropics_servers_is_left_out_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    leave_out.cache_clear()
    said = {"type": "text", "text": "It is so."}
    upload = {"type": "container_upload", "file_id": "f"}
    with caplog.at_level("WARNING", "uad.server"):
        for _ in range(2):
            told = conversation(
                [
                    USER,
                    {"role": "assistant", "content": [SEARCH, HITS, said, {"type": "of next year"}]},
                    {"role": "user", "content": [upload, *USER_PARTS]},
                    {"role": "assistant", "content": [SEARCH]},
                    {"role": "assistant"},
                    USER,
                ],
                tools=[WEB, LOOK_UP, {"type": "mcp_toolset", "mcp_server_name": "m"}],
                mcp_servers=[{"url": "x"}],
                container="c",
            )
    assert [(one["role"], one["content"]) for one in told] == [
        ("user", "hi"),
        ("assistant", "It is so."),
        ("user", [*USER_PARTS, {"type": "text", "text": "hi"}]),
    ]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(set(lines)) == 8
    assert all("is left out: nothing runs here" in line for line in lines)


def test_tools_of_anthropics_that_clients_run_are_offered() -> None:
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
        {"type": "memory_20250818", "name": "memory"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 9},
        {"type": "custom_of_next_year", "name": "own", "input_schema": {"type": "object"}},
    ]
    fake = saying("ok")
    assert post(PATH, {"messages": HELLO, "tools": tools}, fake)[0] == 200
    ((_, kwargs, _),) = fake.chats
    told: Any = kwargs["tools"]
    assert [one["function"]["name"] for one in told] == [one["name"] for one in tools]
    assert set(told[0]["function"]["parameters"]["properties"]) == {"command", "restart"}
    assert refused(tools=[{"type": "bash_20250124"}]) == (400, "tools.0.name")


def test_a_stop_of_llama_servers_counts_where_anthropics_is_not_there() -> None:
    for body, expected in (({"stop": ["A"]}, ("A",)), ({"stop": ["A"], "stop_sequences": ["B"]}, ("B",))):
        fake = saying("ok")
        assert post(PATH, {"messages": HELLO, **body}, fake)[0] == 200
        assert fake.requests[0].stop == expected


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"messages": []}, "messages"),
        ({"messages": 3}, "messages"),
        ({"messages": [7]}, "messages.0"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "messages.0.content.0"),
        (
            {
                "messages": [
                    USER,
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [IMAGE]}]},
                ]
            },
            "messages.1.content.0.content.0",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "x"}]}]},
            "messages.1.content.0.name",
        ),
        ({"system": 3}, "system"),
        ({"tools": [WEB], "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": [PDF]}]}, "messages.0.content.0.source.type"),
        ({"messages": [{"role": "user", "content": [{"type": "mcp_tool_use"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"tools": [LOOK_UP, {**SAY, "strict": True, "input_schema": {"type": "no"}}]}, "tools.1.input_schema"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 3}}, "tool_choice.disable_parallel_tool_use"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": -5}}, "thinking.budget_tokens"),
        ({"max_tokens": "x"}, "max_tokens"),
        ({"stop_sequences": 3}, "stop_sequences"),
        ({"n": 2}, "n is not supported"),
    ],
)
def test_what_is_refused_is_named(body: dict[str, Any], where: str) -> None:
    assert refused(**body) == (400, where)


def test_errors_have_the_form_of_anthropic() -> None:
    config = ServerConfig(port=0, api_keys=("sesame",))

    async def run() -> list[tuple[int, str, str | None]]:
        found = []
        async with asyncio.timeout(120), serving(saying("ok"), config) as session:
            for path, headers in (
                (PATH, {"x-api-key": "sesame"}),
                (PATH, {"Authorization": "Bearer sesame"}),
                (PATH, {"x-api-key": "no"}),
                (f"{PATH}/batches", {"x-api-key": "sesame"}),
                (PATH, {"x-api-key": "sesame", "anthropic-version": "1999-01-01"}),
                (PATH, {"x-api-key": "sesame", "anthropic-version": "soon"}),
                (PATH, {"x-api-key": "sesame", "anthropic-version": "2023-06-01"}),
                (PATH, {"x-api-key": "sesame", "anthropic-version": "2026-10-21"}),
            ):
                async with session.post(path, json={"messages": HELLO}, headers=headers) as answer:
                    body = await answer.json()
                    assert answer.headers["request-id"].startswith("req_")
                    assert body.get("request_id", answer.headers["request-id"]) == answer.headers["request-id"]
                    found.append((answer.status, body["type"], body.get("error", {}).get("type")))
        return found

    assert asyncio.run(run()) == [
        (200, "message", None),
        (200, "message", None),
        (401, "error", "authentication_error"),
        (404, "error", "not_found_error"),
        (400, "error", "invalid_request_error"),
        (400, "error", "invalid_request_error"),
        (200, "message", None),
        (200, "message", None),
    ]


def test_a_prompt_that_is_too_long_is_told_so_that_clients_shorten_it() -> None:
    status, answer = post(PATH, {"messages": [{"role": "user", "content": "x" * 5000}]})
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert answer["error"]["message"].startswith("prompt is too long: 50")


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    fake = FakeRuntime(script=lambda request: b"hello world", answers=ANSWERS, fail=DecodeError("no"), fail_after=6)
    events = streamed(PATH, {"messages": HELLO}, fake)
    assert events[-1] == {"type": "error", "error": {"type": "api_error", "message": "no"}}


def test_silence_is_a_ping() -> None:
    async def test(session: Any) -> bytes:
        body = {"messages": HELLO, "stream": True, "sse_ping_interval": 1}
        async with session.post(PATH, json=body) as answer:
            data: bytes = await answer.content.readuntil(b"\n\n")
            fake.go.set()
            return data + await answer.read()

    fake = saying("hello")
    fake.go.clear()
    data = with_server(test, fake)
    assert data.startswith(b'event: ping\ndata: {"type":"ping"}\n\n')
    assert b"event: message_stop" in data


def test_silence_is_a_ping_also_while_thoughts_are_written_that_are_not_shown() -> None:
    async def test(session: Any) -> bytes:
        body = {"messages": HELLO, "stream": True, "thinking": {"type": "enabled", "display": "omitted"}}
        async with session.post(PATH, json=body) as answer:
            data: bytes = await answer.read()
            return data

    fake = saying(f"<think>\n{'hm ' * 20}\n</think>\n\nDone.", pause=0.02)
    data = with_server(test, fake, ServerConfig(port=0, sse_ping_interval=0.05))
    # Two of them: an id is 32 random letters, and two letters stand in one of a hundred.
    assert b"hm hm" not in data
    begun, _, rest = data.partition(b'"type":"thinking"')
    assert begun.startswith(b"event: message_start")
    assert rest.count(b"event: ping") >= 2


def long_read(text: str, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0, n_pings: int = 3) -> list[Any]:
    """The events of a stream whose prompt takes that many pings to read, from its opening on. Before, there are pings
    alone.
    """

    async def test(session: Any) -> bytes:
        async with session.post(PATH, json={"messages": HELLO, "tools": TOOLS, "stream": True}) as answer:
            data: bytes = await answer.content.readuntil(b'"ping"}\n\n')
            fake.begin_prompts()
            data += await answer.content.readuntil(b"event: message_start\n")
            for _ in range(n_pings):
                data += await answer.content.readuntil(b'"ping"}\n\n')
            fake.go.set()
            return data + await answer.read()

    monkeypatch.setattr(anthropic, "MOST_SECONDS_OF_PINGS", seconds)
    fake = saying(text)
    fake.go.clear()
    events = named_events(with_server(test, fake, ServerConfig(port=0, sse_ping_interval=0.02)))
    n = next(n for n, event in enumerate(events) if event["type"] == "message_start")
    assert n >= 1
    assert events[:n] == [PING] * n
    return events[n + 1 :]


PING = {"type": "ping"}
OPENED = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
NOTHING = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}}
STOPPED = {"type": "content_block_stop", "index": 0}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("hello", ["text"]),
        (f"{THOUGHT}hello", ["text", "thinking", "text"]),
        (CALL, ["text", "tool_use"]),
        (f"hello{CALL}{SECOND}", ["text", "tool_use", "tool_use"]),
        ("", ["text"]),
    ],
)
def test_after_long_silence_pings_bring_an_empty_text_in_a_block_of_its_own(
    text: str, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = long_read(text, monkeypatch)
    assert events[:5] == [PING, OPENED, NOTHING, PING, NOTHING]
    starts = [event for event in events if event["type"] == "content_block_start"]
    stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert [start["content_block"]["type"] for start in starts] == kinds
    assert [start["index"] for start in starts] == stops == list(range(len(kinds)))
    at = [n for n, event in enumerate(events) if event["type"] in ("content_block_start", "content_block_stop")]
    assert [events[n]["type"][14:] for n in at] == ["start", "stop"] * len(kinds), "one block is open at a time"
    said = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
    assert said == ("hello" if "hello" in text else "")
    assert events[-2]["delta"]["stop_reason"] == ("tool_use" if "tool_use" in kinds else "end_turn")


def test_in_shorter_silence_there_are_pings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    events = long_read("hello", monkeypatch, anthropic.MOST_SECONDS_OF_PINGS)
    assert NOTHING not in events
    assert events[:3] == [PING] * 3


def test_in_long_thoughts_that_are_not_shown_pings_bring_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic, "MOST_SECONDS_OF_PINGS", 0.0)
    body = {"messages": HELLO, "thinking": {"type": "enabled", "display": "omitted"}, "stream": True}

    async def test(session: Any) -> bytes:
        async with session.post(PATH, json=body) as answer:
            data: bytes = await answer.read()
            return data

    fake = saying(f"<think>\n{'hm ' * 20}\n</think>\n\nDone.", pause=0.02)
    events = named_events(with_server(test, fake, ServerConfig(port=0, sse_ping_interval=0.05)))
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta" and event["index"] == 0]
    assert {"type": "thinking_delta", "thinking": ""} in deltas
    assert {delta["type"] for delta in deltas} == {"thinking_delta", "signature_delta"}
    assert not any(delta.get("thinking") for delta in deltas)


def test_an_answer_that_begins_with_an_empty_text_is_taken_back() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "R"}
    told = [
        conversation([USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}])
        for blocks in ([{"type": "text", "text": ""}, call], [call])
    ]
    assert told[0] == told[1]


def test_counting_needs_no_length_and_counts_all() -> None:
    n = post("/v1/messages/count_tokens", {"messages": HELLO})[1]
    assert set(n) == {"input_tokens"}
    more = post("/v1/messages/count_tokens", {"messages": HELLO, "system": "Be brief."})[1]
    assert more["input_tokens"] > n["input_tokens"]
    assert post("/v1/messages/count_tokens", {})[0] == 400
