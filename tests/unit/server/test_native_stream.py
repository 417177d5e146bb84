"""What answers tell beside their text: an event for each token, progress, times, probabilities after sampling, the
prompt's own probabilities, the best of several.
"""

from __future__ import annotations

import json
import math

import pytest
from kit.fake_runtime import BOS, HELD, FakeRuntime
from kit.server_kit import HELLO, post, stream

from uad.base.types import TokenProb

CHAT, NATIVE, TEXT = "/v1/chat/completions", "/completion", "/v1/completions"


def events(path: str, body: dict, fake: FakeRuntime | None = None) -> list[dict]:
    """The objects of a stream."""
    return [one for one in stream(path, body, fake) if one != "[DONE]"]


def refused(path: str, body: dict, param: str, fake: FakeRuntime | None = None) -> str:
    status, answer = post(path, body, fake)
    assert (status, answer["error"]["param"]) == (400, param), answer
    return str(answer["error"]["message"])


def test_the_native_stream_has_an_event_for_each_token_with_its_own_text_and_probability() -> None:
    fake = FakeRuntime(script=lambda request: "aé東!".encode(), step=20)
    *pieces, last = events(NATIVE, {"prompt": "x", "n_probs": 3}, fake)
    tokens = [piece for piece in pieces if piece["tokens"]]
    assert [piece["tokens"] for piece in tokens] == [[byte] for byte in "aé東".encode()]
    assert [piece["content"] for piece in tokens] == ["a", "", "é", "", "", "東"]
    assert "".join(piece["content"] for piece in pieces) == "aé東!"
    assert [piece["tokens_predicted"] for piece in tokens] == [1, 2, 3, 4, 5, 6]
    for piece in tokens:
        (entry,) = piece["completion_probabilities"]
        assert entry["id"] == piece["tokens"][0]
        assert len(entry["top_logprobs"]) == 3
    assert last["stop"] is True


@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE])
def test_progress_and_times_come_with_pieces_where_they_are_asked_for(path: str) -> None:
    body = {"messages": HELLO} if path == CHAT else {"prompt": "abc"}
    asked = {"return_progress": True, "timings_per_token": True}
    told = events(path, {**body, **asked})
    progress = [one for one in told if "prompt_progress" in one]
    first, second = (one["prompt_progress"] for one in progress)
    assert first == {"total": first["total"], "cache": HELD, "processed": HELD, "time_ms": 0}
    assert second["processed"] == second["total"] == first["total"]
    assert progress[0]["timings"]["prompt_n"] == progress[0]["timings"]["predicted_n"] == 0
    ns = [one["timings"]["predicted_n"] for one in told if "timings" in one]
    assert ns == sorted(ns)
    assert len([one for one in told if "timings" in one]) > len(progress) + 1
    quiet = events(path, body)
    assert not any("prompt_progress" in one for one in quiet)
    assert len([one for one in quiet if "timings" in one]) == 1
    assert "prompt_progress" not in json.dumps(post(path, {**body, **asked}, FakeRuntime())[1]), "not in a stream"


@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE])
def test_probabilities_after_sampling_have_their_own_names(path: str) -> None:
    fake = FakeRuntime()
    body = {"messages": HELLO} if path == CHAT else {"prompt": "abc"}
    status, answer = post(path, {**body, "n_probs": 2, "post_sampling_probs": True}, fake)
    assert status == 200, answer
    assert fake.requests[-1].post_sampling
    entries = answer["completion_probabilities"] if path == NATIVE else answer["choices"][0]["logprobs"]["content"]
    assert all(abs(entry["prob"] - math.exp(-0.25)) < 1e-9 for entry in entries)
    assert [one["prob"] for one in entries[0]["top_probs"]] == [math.exp(-0.5), 0.0]
    assert "logprob" not in json.dumps(entries)


def test_echo_tells_the_prompt_before_the_answer_with_its_probabilities() -> None:
    asked = {"prompt": "ab", "echo": True, "max_tokens": 1, "logprobs": 1}
    status, answer = post(TEXT, asked, fake := FakeRuntime())
    assert status == 200, answer
    assert fake.requests[-1].prompt_probs
    choice = answer["choices"][0]
    assert choice["text"] == "abA"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"][1:3] == ["a", "b"]
    assert logprobs["token_logprobs"][:3] == [None, -0.25, -0.25]
    assert logprobs["top_logprobs"][0] is None
    assert len(logprobs["top_logprobs"][1]) == 1
    assert len(logprobs["tokens"]) == len(logprobs["text_offset"]) == len(logprobs["token_logprobs"])
    streamed = events(TEXT, asked)
    assert "".join(one["choices"][0]["text"] for one in streamed if one["choices"]) == "abA"
    assert streamed[0]["choices"][0]["logprobs"]["tokens"] == logprobs["tokens"][:3]
    post_probs = post(TEXT, {**asked, "post_sampling_probs": True}, FakeRuntime())[1]["choices"][0]["logprobs"][
        "content"
    ]
    assert [entry["prob"] for entry in post_probs][:2] == [None, math.exp(-0.25)]
    plain = {"prompt": [BOS, 97], "echo": True, "max_tokens": 2}
    assert post(TEXT, plain, quiet := FakeRuntime())[1]["choices"][0]["text"].endswith("aA ")
    assert not quiet.requests[-1].prompt_probs


def test_echo_with_too_many_probabilities_is_refused() -> None:
    fake = FakeRuntime(n_ctx=1 << 16)
    assert "at most 10381 tokens" in refused(
        TEXT, {"prompt": "a" * 11_000, "echo": True, "logprobs": 100}, param="echo", fake=fake
    )


def test_best_of_tells_the_likeliest_and_counts_all() -> None:
    says = {11: b"mmmm", 12: b"zzzz", 13: b"aaaa"}
    fake = FakeRuntime(script=lambda request: says[request.sampling.seed], step=20)
    fake._prob = lambda id_, n: TokenProb(id_, bytes([id_]), -float(id_))
    status, answer = post(TEXT, {"prompt": "ab", "best_of": 3, "n": 2, "seed": 11, "max_tokens": 5}, fake)
    assert status == 200, answer
    assert [request.sampling.seed for request in fake.requests] == [11, 12, 13]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["text"] for choice in answer["choices"]] == ["aaaa", "mmmm"]
    assert answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["completion_tokens"] > 6
    refused(TEXT, {"prompt": "a", "best_of": 2, "stream": True}, param="best_of")
    refused(TEXT, {"prompt": "a", "best_of": 2, "n": 3}, param="best_of")


def test_more_choices_than_slots_take_turns() -> None:
    fake = FakeRuntime(n_slots=2)
    status, answer = post(CHAT, {"messages": HELLO, "n": 4, "seed": 5}, fake)
    assert status == 200, answer
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 4
    assert "must be at most 4" in refused(CHAT, {"messages": HELLO, "n": 5}, param="n")


def test_bans_are_told_as_llama_server_tells_them() -> None:
    def told(**fields: object) -> list[dict]:
        fake = FakeRuntime(eog={7: "<end>", 8: "<turn>"})
        return post(NATIVE, {"prompt": "a", **fields}, fake)[1]["generation_settings"]["logit_bias"]

    bans = [{"token": id_, "bias": None} for id_ in (5, 7, 8)]
    assert told(ignore_eos=True, logit_bias=[[5, False]]) == bans
    assert told(ignore_eos=True, stop=["<turn>"], stop_token_ids=[9]) == bans[1:2]
    assert told() == []


def test_words_and_ids_that_are_not_to_be_written() -> None:
    fake = FakeRuntime()
    post(NATIVE, {"prompt": "a", "bad_words": ["ab"], "bad_words_ids": [[5, 6]], "allowed_token_ids": [9, 9, 3]}, fake)
    sampling = fake.requests[-1].sampling
    assert sampling.bad_words == ((97, 98), (32, 97, 98), (5, 6))
    assert sampling.allowed == (9, 3)
    fake = FakeRuntime()
    fake.tokenize = lambda text, add_special=False, parse_special=True: [] if text == "!" else list(text.encode())
    assert post(NATIVE, {"prompt": "a", "bad_words": ["\n", "!", ""]}, fake)[0] == 200
    assert fake.requests[-1].sampling.bad_words == ((10,), (32, 33)), "one that has no token cannot be written"
    refused(NATIVE, {"prompt": "a", "bad_words_ids": [[]]}, param="bad_words_ids")
    refused(NATIVE, {"prompt": "a", "bad_words_ids": [[10**6]]}, param="bad_words_ids")
    refused(NATIVE, {"prompt": "a", "allowed_token_ids": [10**6]}, param="allowed_token_ids")


@pytest.mark.parametrize("value", [["\n", "you"], '["\\n", "you"]'])
def test_breakers_are_a_list_or_its_json(value: object) -> None:
    fake = FakeRuntime()
    post(NATIVE, {"prompt": "a", "dry_sequence_breakers": value}, fake)
    assert fake.requests[-1].sampling.dry_sequence_breakers == ("\n", "you")
    for bad in ("x", [1], {"a": 1}, ["x"] * 65):
        refused(NATIVE, {"prompt": "a", "dry_sequence_breakers": bad}, param="dry_sequence_breakers")
