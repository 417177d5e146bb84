"""`add_special_tokens` and `return_token_ids`, which vLLM's clients send, on all routes that generate."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from kit.api_kit import CALL, saying
from kit.fake_runtime import BOS, FakeRuntime
from kit.server_kit import CHAT, HELLO, post, stream

LOOK_UP = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "ab"},
    "/completion": {"prompt": "ab"},
}


def ids_of(choices: Iterable[Any]) -> list[int]:
    """The ids that chunks tell, the first of a chat left out."""
    return [id_ for choice in choices for id_ in choice.get("token_ids", [])]


@pytest.mark.parametrize("path", list(ASKED))
@pytest.mark.parametrize("add", [True, False])
def test_add_special_tokens_says_whether_bos_stands_in_front(path: str, add: bool) -> None:
    fake = FakeRuntime()
    assert post(path, {**ASKED[path], "add_special_tokens": add}, fake)[0] == 200
    assert (fake.requests[0].prompt[0] == BOS) is add
    fake = FakeRuntime()
    assert post(path, ASKED[path], fake)[0] == 200
    assert fake.requests[0].prompt[0] == BOS


@pytest.mark.parametrize("path", list(ASKED))
@pytest.mark.parametrize("name", ["add_special_tokens", "return_token_ids"])
def test_they_are_true_or_false(path: str, name: str) -> None:
    status, body = post(path, {**ASKED[path], name: "no"})
    assert (status, body["error"]["param"]) == (400, name)


def test_counts_and_templates_follow_add_special_tokens() -> None:
    path = f"{CHAT}/input_tokens"
    n, fewer = (post(path, {"messages": HELLO, "add_special_tokens": add})[1]["input_tokens"] for add in (True, False))
    assert fewer == n - 1
    assert post("/apply-template", {"messages": HELLO, "add_special_tokens": False})[0] == 200


def test_the_ids_of_a_completion_and_of_its_prompt() -> None:
    _, body = post("/v1/completions", {"prompt": ["ab", [99]], "n": 2, "seed": 1, "return_token_ids": True})
    assert [choice["prompt_token_ids"] for choice in body["choices"]] == [[BOS, 97, 98]] * 2 + [[99]] * 2
    for choice in body["choices"]:
        assert bytes(choice["token_ids"]).decode() == choice["text"][: len(choice["token_ids"])]
        assert len(choice["token_ids"]) >= len(choice["text"]) - 1


def test_the_ids_of_a_chat_and_of_its_prompt() -> None:
    fake = FakeRuntime()
    _, body = post(CHAT, {"messages": HELLO, "n": 2, "return_token_ids": True}, fake)
    assert body["prompt_token_ids"] == list(fake.requests[0].prompt)
    for choice in body["choices"]:
        assert bytes(choice["token_ids"]).decode() in choice["message"]["content"]


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_answers_have_no_ids_unless_asked(path: str) -> None:
    assert "token_ids" not in json.dumps(post(path, ASKED[path])[1])
    assert "token_ids" not in json.dumps(stream(path, ASKED[path]))


def test_a_stream_of_completions_has_the_ids_in_its_choices() -> None:
    asked = {"prompt": ["ab", "c"], "seed": 1, "return_token_ids": True, "stream_options": {"include_usage": True}}
    whole = post("/v1/completions", asked)[1]["choices"]
    *chunks, _ = stream("/v1/completions", asked)
    for i, choice in enumerate(whole):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"] and chunk["choices"][0]["index"] == i]
        assert own[0]["prompt_token_ids"] == choice["prompt_token_ids"]
        assert not any("prompt_token_ids" in one for one in own[1:])
        assert ids_of(own) == choice["token_ids"]
    assert chunks[-1]["choices"] == []
    assert "token_ids" not in chunks[-1]


def test_a_stream_of_a_chat_has_the_prompts_ids_beside_its_first_choice() -> None:
    fake = FakeRuntime()
    first, *chunks, _ = stream(CHAT, {"messages": HELLO, "return_token_ids": True, "seed": 1}, fake)
    assert first["prompt_token_ids"] == list(fake.requests[0].prompt)
    ids = ids_of(chunk["choices"][0] for chunk in chunks)
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert bytes(ids).decode() == text[: len(ids)]
    assert len(ids) >= len(text) - 1


def test_no_id_is_lost_where_a_piece_has_no_chunk_or_several() -> None:
    """The beginning of a call is kept back until it is known to be one."""
    asked = {"messages": HELLO, "tools": [LOOK_UP], "return_token_ids": True}
    said = f"Well. {CALL}"
    _, whole = post(CHAT, asked, saying(said))
    *chunks, _ = stream(CHAT, asked, saying(said))
    assert whole["choices"][0]["message"]["tool_calls"]
    ids = ids_of(chunk["choices"][0] for chunk in chunks)
    assert ids == whole["choices"][0]["token_ids"] == list(said.encode())[: len(ids)]
    assert any(chunk["choices"][0]["delta"].get("tool_calls") for chunk in chunks)


def test_a_stream_with_probabilities_or_an_echo_has_the_ids_too() -> None:
    asked = {"prompt": "ab", "return_token_ids": True, "echo": True, "logprobs": 1, "max_tokens": 4}
    (whole,) = post("/v1/completions", asked)[1]["choices"]
    *chunks, _ = stream("/v1/completions", asked)
    assert ids_of(chunk["choices"][0] for chunk in chunks) == whole["token_ids"] == [*b"AB "]
    assert chunks[0]["choices"][0]["prompt_token_ids"] == [BOS, 97, 98]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "a"}),
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 4}),
    ],
)
def test_return_token_ids_is_refused_where_answers_have_no_place_for_ids(path: str, body: dict[str, Any]) -> None:
    status, answer = post(path, {**body, "return_token_ids": True})
    assert (status, "return_token_ids is not supported" in json.dumps(answer)) == (400, True)
    assert "/v1/completions" in json.dumps(answer)
    status, answer = post(path, {**body, "return_token_ids": False})
    assert "return_token_ids" not in json.dumps(answer)
