"""/v1/responses over HTTP: what answers look like, whole and streamed, what requests may say, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.api_kit import ANSWERS, CALL, SECOND, THOUGHT, named_events, saying, streamed
from kit.fake_runtime import FakeRuntime
from kit.server_kit import post, with_server

from uad.base.errors import DecodeError
from uad.http.apis.messages import seal, unsealed
from uad.http.requests.left_out import leave_out

PATH = "/v1/responses"
LOOK_UP = {
    "type": "function",
    "name": "look_up",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    "strict": False,
}
SAY = {"type": "function", "name": "say", "description": "Says it.", "strict": False}
TOOLS = [LOOK_UP, SAY]


def created(text: str = "hello", **body: Any) -> dict[str, Any]:
    status, answer = post(PATH, {"input": "hi", **body}, saying(text))
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


def refused(**body: Any) -> tuple[int, str | None, str]:
    status, answer = post(PATH, {"input": "hi", **body}, saying(CALL))
    return status, answer["error"]["param"], answer["error"]["message"]


def told(fake: FakeRuntime) -> list[dict[str, Any]]:
    """The messages that the template got."""
    ((messages, _, _),) = fake.chats
    return [dict(message) for message in messages]


def conversation(items: Any, **body: Any) -> list[dict[str, Any]]:
    fake = saying("ok")
    status, answer = post(PATH, {"input": items, **body}, fake)
    assert status == 200, answer
    return told(fake)


def test_a_text_is_a_message_of_the_assistant() -> None:
    answer = created("hello")
    assert (answer["object"], answer["status"], answer["model"]) == ("response", "completed", "toy")
    assert answer["id"].startswith("resp_")
    (item,) = answer["output"]
    assert item["id"].startswith("msg_")
    part = {"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}
    assert item == {
        "id": item["id"],
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
    assert usage["input_tokens_details"] == {"cached_tokens": 1}
    assert answer["timings"]["predicted_n"] == usage["output_tokens"]


def test_both_paths_answer() -> None:
    assert post("/responses", {"input": "hi"}, saying("hello"))[1]["output"][0]["content"][0]["text"] == "hello"


def test_thoughts_text_and_calls_are_items_in_order() -> None:
    answer = created(f"{THOUGHT}I look.\n{CALL}\n{SECOND}", tools=TOOLS)
    thought, message, call, second = answer["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm, hm."}]
    assert (thought["summary"], thought["encrypted_content"]) == ([], None)
    assert message["content"][0]["text"] == "I look."
    assert (call["name"], json.loads(call["arguments"])) == ("look_up", {"word": "tea"})
    assert call["call_id"].startswith("call_")
    assert call["id"].startswith("fc_")
    assert (second["name"], second["arguments"]) == ("say", "{}")
    assert call["call_id"] != second["call_id"]
    assert answer["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}  # the scripted runtime counts none


def test_an_answer_that_was_cut_is_incomplete() -> None:
    answer = created("hello world", max_output_tokens=4)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["status"] == "incomplete"
    assert answer["max_output_tokens"] == 4


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("text", ["hello", f"{THOUGHT}I look.\n{CALL}\n{SECOND}", CALL])
def test_a_stream_says_the_same_as_the_whole(step: int, text: str) -> None:
    body = {"input": "hi", "tools": TOOLS}
    events = streamed(PATH, body, saying(text, step=step))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    last = events[-1]["response"]
    assert events[-1]["timings"]["predicted_n"] == last["usage"]["output_tokens"]
    whole = created(text, tools=TOOLS)
    assert _plain(last["output"]) == _plain(whole["output"])
    assert _plain(_from_deltas(events)) == _plain(whole["output"])
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == last["output"]


def _plain(items: list[dict[str, Any]]) -> list[Any]:
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in items]


def _from_deltas(events: list[Any]) -> list[dict[str, Any]]:
    """The items, put together from the pieces as clients do it."""
    items: list[dict[str, Any]] = []
    for event in events:
        item = items[event["output_index"]] if "output_index" in event and event["output_index"] < len(items) else {}
        assert "item_id" not in event or event["item_id"] == item["id"]
        match event["type"]:
            case "response.output_item.added":
                assert event["output_index"] == len(items)
                items.append(json.loads(json.dumps(event["item"])))
            case "response.content_part.added":
                item["content"].append(event["part"])
            case "response.output_text.delta" | "response.reasoning_text.delta":
                item["content"][event["content_index"]]["text"] += event["delta"]
            case "response.function_call_arguments.delta":
                item["arguments"] += event["delta"]
            case "response.function_call_arguments.done":
                assert (item["arguments"], item["name"]) == (event["arguments"], event["name"])
            case "response.output_text.done" | "response.reasoning_text.done":
                assert item["content"][0]["text"] == event["text"]
            case "response.output_item.done":
                item["status"] = event["item"]["status"]
    return items


def test_probabilities_are_those_of_the_text() -> None:
    text = f"{THOUGHT}hello"
    include = ["message.output_text.logprobs"]
    answer = created(text, include=include, top_logprobs=2)
    probs = answer["output"][1]["content"][0]["logprobs"]
    assert "".join(one["token"] for one in probs) == "hell"  # the scripted runtime tells none of the last byte
    assert {len(one["top_logprobs"]) for one in probs} == {2}
    events = streamed(PATH, {"input": "hi", "include": include, "top_logprobs": 2}, saying(text))
    told = [one for event in events if event["type"] == "response.output_text.delta" for one in event["logprobs"]]
    assert told == probs
    assert created("hello")["output"][0]["content"][0]["logprobs"] == []


def test_instructions_come_first_and_items_become_messages() -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look up tea."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"word": "tea"}'},
        {"type": "function_call", "call_id": "c2", "name": "say", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a drink"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "said"}]},
        {"role": "user", "content": "Thanks."},
    ]
    system, developer, user, assistant, first, second, last = conversation(items, instructions="Help.")
    assert (system["role"], system["content"]) == ("system", "Help.")
    assert (developer["role"], developer["content"]) == ("developer", "Be brief.")
    assert (user["content"], last["content"]) == ("Look up tea.", "Thanks.")
    assert (assistant["content"], assistant["reasoning_content"]) == ("I look.", "Hm.")
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2"]
    assert [(one["role"], one["tool_call_id"], one["content"]) for one in (first, second)] == [
        ("tool", "c1", "a drink"),
        ("tool", "c2", "said"),
    ]


def test_messages_of_the_user_in_a_row_are_one() -> None:
    (only,) = conversation([{"role": "user", "content": "<environment/>"}, {"role": "user", "content": "Hi."}])
    assert [part["text"] for part in only["content"]] == ["<environment/>", "Hi."]


def test_thoughts_come_back_in_what_was_put_away() -> None:
    answer = created(f"{THOUGHT}hello", include=["reasoning.encrypted_content"])
    thought, message = answer["output"]
    sealed = thought["encrypted_content"]
    assert unsealed(sealed) == "Hm, hm."
    back = [{"role": "user", "content": "hi"}, {**thought, "content": None}, message, {"role": "user", "content": "so"}]
    assert conversation(back)[1]["reasoning_content"] == "Hm, hm."
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB"}
    assert "reasoning_content" not in conversation([{"role": "user", "content": "hi"}, foreign, message, back[-1]])[1]


@pytest.mark.parametrize("text", ["", "é", "x" * 1000])
def test_what_is_put_away_can_be_read(text: str) -> None:
    assert unsealed(seal(text)) == text
    assert unsealed("uad1:!") == unsealed("uad1:/w==") == unsealed(None) == ""


def test_settings_reach_the_engine_and_are_repeated() -> None:
    fake = saying("ok")
    body = {"temperature": 0.25, "top_p": 0.5, "top_k": 7, "seed": 3, "max_output_tokens": 5, "metadata": {"a": "b"}}
    _, answer = post(PATH, {"input": "hi", **body, "speculative": {"enabled": False}, "stop": ["END"]}, fake)
    (request,) = fake.requests
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0.25, 7, 3)
    assert (request.max_tokens, request.stop, request.speculative.enabled) == (5, ("END",), False)
    assert {name: answer[name] for name in ("temperature", "top_p", "max_output_tokens", "metadata")} == {
        "temperature": 0.25,
        "top_p": 0.5,
        "max_output_tokens": 5,
        "metadata": {"a": "b"},
    }


def test_what_is_long_is_not_repeated() -> None:
    many = [{**SAY, "name": f"say_{i}", "description": "x" * 1000} for i in range(70)]
    assert len(created(tools=many[:3])["tools"]) == 3
    assert created(tools=many)["tools"] == []
    body = {"input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 20}
    events = streamed(PATH, body, saying("x" * 300))
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == []
    assert sum(len(event.get("logprobs", ())) for event in events if "delta" in event) == 299


def test_efforts_go_to_the_template() -> None:
    for effort, expected in (("low", {"reasoning_effort": "low"}), ("none", {"enable_thinking": False})):
        fake = saying("ok")
        assert post(PATH, {"input": "hi", "reasoning": {"effort": effort, "summary": "auto"}}, fake)[0] == 200
        assert fake.chats[0][1] == expected


def test_the_form_of_the_text() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    fake = saying('{"a": 1}')
    form = {"type": "json_schema", "name": "one", "schema": schema, "strict": True}
    status, answer = post(PATH, {"input": "hi", "text": {"format": form}}, fake)
    assert status == 200
    assert answer["text"]["format"] == form
    constraint = fake.requests[0].constraint
    assert constraint is not None
    assert json.loads(constraint.text) == schema
    assert refused(text={"format": {"type": "json_schema", "name": "x"}})[:2] == (400, "text.format.schema")
    assert refused(text={"format": {"type": "xml"}})[:2] == (400, "text.format.type")
    assert refused(text={"format": {"type": "json_schema", "schema": {"type": "no"}}})[:2] == (400, "text.format")


def test_other_kinds_of_tools_are_left_out_and_places_stay_those_of_the_request() -> None:
    fake = saying(CALL)
    status, answer = post(PATH, {"input": "hi", "tools": [{"type": "web_search"}, LOOK_UP]}, fake)
    assert status == 200
    assert [tool["name"] for tool in answer["tools"]] == ["look_up"]
    assert answer["output"][0]["name"] == "look_up"
    bad = {**LOOK_UP, "parameters": {"type": "no"}, "strict": True}
    assert refused(tools=[{"type": "web_search"}, bad])[:2] == (400, "tools.1.parameters")
    assert refused(tools=[{"type": "web_search"}, {"type": "function"}])[:2] == (400, "tools.1.name")


def test_tools_are_strict_unless_they_say_or_cannot_be() -> None:
    free = {name: value for name, value in LOOK_UP.items() if name != "strict"}
    for tool, is_bound in ((free, True), (LOOK_UP, False), ({**free, "parameters": {"type": "no"}}, False)):
        fake = saying(CALL)
        assert post(PATH, {"input": "hi", "tools": [tool]}, fake)[0] == 200
        assert (fake.requests[0].constraint is not None) is is_bound, tool


def test_choices_of_tools() -> None:
    fake = saying(CALL)
    choice: Any = {"type": "function", "name": "look_up"}
    assert post(PATH, {"input": "hi", "tools": TOOLS, "tool_choice": choice}, fake)[1]["tool_choice"] == choice
    assert fake.requests[0].constraint is not None
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "say"}]}
    answer = created(f"{CALL}\n{SECOND}", tools=TOOLS, tool_choice=choice)
    assert [item["name"] for item in answer["output"] if item["type"] == "function_call"] == ["say"]
    assert refused(tools=TOOLS, tool_choice={"type": "web_search"})[:2] == (400, "tool_choice")
    assert refused(tools=TOOLS, tool_choice={"type": "function", "name": "x"})[:2] == (400, "tool_choice")
    answer = created(f"{CALL}\n{SECOND}", tools=TOOLS, parallel_tool_calls=False)
    assert len(answer["output"]) == 1


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("tools", [TOOLS, [], [{"type": "web_search"}]])
def test_a_name_that_no_tool_has_is_refused(mode: str, tools: list[Any]) -> None:
    choice: Any = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "x"}]}
    assert refused(tools=tools, tool_choice=choice)[:2] == (400, "tool_choice.tools.0")
    assert refused(tools=tools, tool_choice={"type": "function", "name": "x"})[:2] == (400, "tool_choice")


SEARCH = {"type": "web_search"}


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        (TOOLS, {"type": "allowed_tools", "mode": "required", "tools": []}, "tool_choice.tools"),
        (TOOLS, {"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        (TOOLS, {"type": "allowed_tools", "mode": "required"}, "tool_choice.tools"),
        (TOOLS, {"type": "allowed_tools", "mode": "none", "tools": TOOLS}, "tool_choice.mode"),
        (TOOLS, {"type": "allowed_tools", "mode": ["auto"], "tools": TOOLS}, "tool_choice.mode"),
        ([*TOOLS, SEARCH], {"type": "allowed_tools", "mode": "required", "tools": [SEARCH]}, "tool_choice"),
        ([SEARCH], "required", "tool_choice"),
    ],
)
def test_a_required_call_that_no_tool_is_left_for_is_refused(tools: list[Any], choice: Any, param: str) -> None:
    assert refused(tools=tools, tool_choice=choice)[:2] == (400, param)


def test_a_tool_may_be_allowed_twice() -> None:
    twice = {"type": "allowed_tools", "mode": "required", "tools": [LOOK_UP, LOOK_UP]}
    assert [item["name"] for item in created(CALL, tools=TOOLS, tool_choice=twice)["output"]] == ["look_up"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["something.new"]}, "include 'something.new'"),
    ],
)
def test_what_has_no_effect_is_taken_and_said_once(
    body: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    leave_out.cache_clear()
    with caplog.at_level("WARNING", "uad.server"):
        for _ in range(2):
            answer = created(**body)
    assert (answer["status"], answer["store"], answer["background"]) == ("completed", False, False)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"/v1/responses: {said} is left out: ")


SAID = {"role": "user", "content": "a"}
ELSEWHERE = [  # what a conversation may hold that began on OpenAI's servers
    [{"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "x"}}],
    [{"type": "image_generation_call", "id": "i", "result": None, "status": "completed"}],
    [{"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []}],
    [{"type": "local_shell_call", "call_id": "c"}, {"type": "local_shell_call_output", "id": "c", "output": "a"}],
    [{"type": "apply_patch_call", "call_id": "c"}, {"type": "apply_patch_call_output", "call_id": "c"}],
    [{"type": "compaction", "encrypted_content": "x"}],
]


@pytest.mark.parametrize("items", ELSEWHERE, ids=lambda items: items[0]["type"])
def test_a_conversation_that_began_elsewhere_goes_on_without_its_tools(
    items: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    leave_out.cache_clear()
    with caplog.at_level("WARNING", "uad.server"):
        messages = conversation([SAID, *items, {"role": "assistant", "content": "b"}, SAID])
    assert [(one["role"], one["content"]) for one in messages] == [("user", "a"), ("assistant", "b"), ("user", "a")]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" is left out")[0] for line in lines] == [
        f"/v1/responses: an item of type {item['type']!r}" for item in items
    ]


def test_a_call_of_free_text_is_a_call_with_one_argument() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin", "id": None}
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": "Done"}
    _, called, answered = conversation([SAID, call, result])
    (one,) = called["tool_calls"]
    assert one["function"]["name"] == "apply_patch"
    arguments = one["function"]["arguments"]
    assert (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"input": "*** Begin"}
    assert (answered["role"], answered["content"]) == ("tool", "Done")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"store": "yes"}, "store"),
        ({"include": "everything"}, "include"),
        ({"n": 2}, "n"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0"),
        ({"input": [{"type": "something_new"}]}, "input.0.type"),
        ({"input": [{"type": ["web_search_call"]}]}, "input.0.type"),
        ({"input": [{"type": "custom_tool_call", "name": "x"}]}, "input.0.call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input.0.role"),
        ({"input": [{"type": "function_call", "name": "x"}]}, "input.0.call_id"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [7]}, "input.0"),
        ({"input": [{"role": "assistant", "content": [7]}]}, "input.0.content.0"),
        ({"max_output_tokens": "x"}, "max_output_tokens"),
        ({"max_output_tokens": 3, "min_tokens": 9}, "min_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"tools": [3]}, "tools.0"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"metadata": {"a": 3}}, "metadata.a"),
    ],
)
def test_what_is_refused_is_named(body: dict[str, Any], param: str) -> None:
    assert refused(**body)[:2] == (400, param)


def test_an_error_names_what_is_missing() -> None:
    status, answer = post(PATH, {})
    assert (status, answer["error"]["param"]) == (400, "input")
    long = "x" * 5000
    status, answer = post(PATH, {"input": long})
    assert (status, answer["error"]["type"]) == (400, "exceed_context_size_error")


def test_a_stream_that_breaks_off_ends_with_the_failed_response() -> None:
    fake = FakeRuntime(script=lambda request: b"hello world", answers=ANSWERS, fail=DecodeError("no"), fail_after=6)
    events = streamed(PATH, {"input": "hi"}, fake)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    response = events[-1]["response"]
    assert (response["status"], response["error"]["message"]) == ("failed", "no")
    assert events[-2]["message"] == "no"


def test_progress_and_timings_stand_in_events_where_they_are_asked_for() -> None:
    body = {"input": "hi", "timings_per_token": True, "return_progress": True}
    events = streamed(PATH, body, saying("hello"))
    assert {event["type"] for event in events if "prompt_progress" in event} == {"response.in_progress"}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert any("timings" in event for event in events if event["type"] == "response.output_text.delta")


def test_ids_of_a_request_are_counted() -> None:
    status, answer = post("/v1/responses/input_tokens", {"input": "hi", "instructions": "Help."})
    assert (status, answer["object"]) == (200, "response.input_tokens")
    whole = created(instructions="Help.")
    assert answer["input_tokens"] == whole["usage"]["input_tokens"]


def test_an_event_has_a_name_and_there_is_no_done() -> None:
    async def test(session: Any) -> bytes:
        async with session.post(PATH, json={"input": "hi", "stream": True}) as answer:
            data: bytes = await answer.read()
            return data

    data = with_server(test, saying("hello"))
    assert data.startswith(b"event: response.created\ndata: {")
    assert b"[DONE]" not in data
    assert len(named_events(data)) > 5
