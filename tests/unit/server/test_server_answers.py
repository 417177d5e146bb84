"""The three generation routes, whole and streamed, over a scripted runtime."""

import asyncio
import threading

import pytest
from kit.fake_runtime import BOS, FakeRuntime
from kit.fake_runtime import CONFIG as RUNTIME
from kit.server_kit import CHAT, CONFIG, HELLO, events, post, serving, stream

from uad.base.common import json_out
from uad.base.config import Config, DraftingConfig, ServerConfig
from uad.http.apis import choice as choices

SAID = "USER:HELLO\nASSISTANT:"


def test_chat_whole():
    fake = FakeRuntime()
    status, body = post(CHAT, {"messages": HELLO, "seed": 7}, fake)
    assert status == 200
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"], body["system_fingerprint"]) == ("chat.completion", "toy", "b1-toy")
    assert body["choices"] == [
        {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": SAID + " [7]"}}
    ]
    n = len(fake.requests[0].prompt)
    assert body["usage"]["prompt_tokens"] == n
    assert body["usage"]["total_tokens"] == n + body["usage"]["completion_tokens"]
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}
    assert body["timings"]["prompt_n"] == n
    assert body["timings"]["draft_n"] == 2 * body["timings"]["draft_n_accepted"] > 0
    assert body["timings"]["translate_hit_rate"] == 0.75
    assert body["timings"]["translate_per_round_us"] == 50.0
    assert body["uad"]["accept_rate"] == 0.5


def test_no_draft_members_without_drafts():
    _, body = post(CHAT, {"messages": HELLO, "speculative": {"enabled": False}})
    assert not {"draft_n", "draft_n_accepted", "translate_n", "translate_us"} & set(body["timings"])


def test_chat_stream_is_the_same_text():
    chunks = stream(CHAT, {"messages": HELLO, "seed": 7, "stream_options": {"include_usage": True}})
    assert chunks.pop() == "[DONE]"
    usage = chunks.pop()
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0
    assert usage["timings"]["predicted_ms"] == 2.0
    assert len({chunk["id"] for chunk in chunks}) == 1
    first, *middle, last = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": None}
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")
    assert "".join(choice["delta"]["content"] for choice in middle) == SAID + " [7]"
    assert not any("usage" in chunk or "timings" in chunk for chunk in chunks)


def test_chat_stream_without_usage_has_timings_in_its_last_chunk():
    *chunks, done = stream(CHAT, {"messages": HELLO})
    assert done == "[DONE]"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["timings"]["predicted_n"] > 0
    assert all(chunk["choices"] for chunk in chunks)


def test_n_choices_have_their_own_seeds():
    _, body = post(CHAT, {"messages": HELLO, "seed": 7, "n": 2})
    assert [choice["message"]["content"][-3:] for choice in body["choices"]] == ["[7]", "[8]"]
    chunks = stream(CHAT, {"messages": HELLO, "seed": 7, "n": 2})[:-1]
    texts = {0: "", 1: ""}
    for choice in (chunk["choices"][0] for chunk in chunks):
        texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == {0: SAID + " [7]", 1: SAID + " [8]"}
    assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks].count("assistant") == 2
    assert sum("timings" in chunk for chunk in chunks) == 1


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, None])
def test_random_seeds_are_none(seed):
    fake = FakeRuntime()
    post(CHAT, {"messages": HELLO, "seed": seed}, fake)
    assert fake.requests[0].sampling.seed is None


def test_completion_whole_and_streamed():
    _, body = post("/v1/completions", {"prompt": "abc", "seed": 1})
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"text": "ABC [1]", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    *chunks, done = stream("/v1/completions", {"prompt": "abc", "seed": 1})
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "ABC [1]"
    assert chunks[-1]["usage"]["prompt_tokens"] == 4
    *chunks, _ = stream("/v1/completions", {"prompt": "abc", "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens"] == 4
    assert "usage" not in chunks[-2]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("ab", ["AB"]),
        ([97, 98], ["AB"]),
        ([97, "bc", 100], ["ABCD"]),
        (["ab", "cd"], ["AB", "CD"]),
        ([[97], [98, "c"]], ["A", "BC"]),
        ({"prompt_string": "ab"}, ["AB"]),
    ],
)
def test_prompt_forms(prompt, said):
    _, body = post("/v1/completions", {"prompt": prompt, "seed": 0})
    assert [choice["text"] for choice in body["choices"]] == [f"{text} [0]" for text in said]
    _, body = post("/completion", {"prompt": prompt, "seed": 0})
    answers = body if isinstance(body, list) else [body]
    assert [answer["content"] for answer in answers] == [f"{text} [0]" for text in said]
    assert [answer["index"] for answer in answers] == list(range(len(said)))


def test_ids_in_a_prompt_get_no_bos():
    fake = FakeRuntime()
    post("/completion", {"prompt": [97, "b"]}, fake)
    assert fake.requests[0].prompt == (97, 98)
    fake = FakeRuntime()
    post("/completion", {"prompt": ["b", 97]}, fake)
    assert fake.requests[0].prompt == (BOS, 98, 97)


def test_prompts_times_choices_share_one_usage():
    _, body = post("/v1/completions", {"prompt": ["ab", "c"], "n": 2, "seed": 5})
    assert [choice["text"] for choice in body["choices"]] == ["AB [5]", "AB [6]", "C [5]", "C [6]"]
    assert body["usage"]["prompt_tokens"] == 3 + 2


def test_native_whole():
    fake = FakeRuntime()
    _, body = post("/completion", {"prompt": "a\nb", "seed": 3, "return_tokens": True, "stop": ["[", "never"]}, fake)
    assert body["content"] == "A\nB "
    assert (body["stop"], body["stop_type"], body["stopping_word"]) == (True, "word", "[")
    assert (body["has_new_line"], body["truncated"], body["prompt"]) == (True, False, "<s>a\nb")
    assert body["tokens_evaluated"] == 4
    assert body["tokens_predicted"] == body["timings"]["predicted_n"] > 0
    assert body["generation_settings"]["seed"] == 3
    assert body["generation_settings"]["speculative.types"] == "suffix,draft-simple"
    assert body["generation_settings"]["stop"] == ["[", "never"]
    assert all(type(id_) is int for id_ in body["tokens"])
    assert fake.requests[0].stop == ("[", "never")


def test_settings_name_those_who_draft():
    config = Config(
        target=RUNTIME.target, drafting=DraftingConfig(types=("draft-simple", "suffix"), weighed=("suffix",))
    )

    def types(**body):
        return post("/completion", {"prompt": "a", **body}, FakeRuntime(config=config))[1]["generation_settings"][
            "speculative.types"
        ]

    assert types() == "suffix,draft-simple"
    assert types(**{"speculative.types": "draft,suffix"}) == "suffix,draft-simple", "the server's order counts"
    assert types(**{"speculative.policy": "fixed"}) == "draft-simple"
    assert types(**{"speculative.policy": "fixed", "speculative.types": "suffix"}) == "suffix"
    assert types(**{"speculative.n_max": 0}) == "none"


def test_native_stream_has_no_done_mark():
    *chunks, last = stream("/completions", {"prompt": "abcdef", "n_predict": 5, "speculative.types": "none"})
    assert [chunk["stop"] for chunk in chunks] == [False] * len(chunks)
    assert "".join(chunk["content"] for chunk in chunks) == "ABCDE"
    assert (last["content"], last["stop"], last["stop_type"]) == ("", True, "limit")
    assert last["generation_settings"]["n_predict"] == 5
    assert last["generation_settings"]["speculative.types"] == "none"
    assert last["generation_settings"]["seed"] == 4242
    assert [chunk["tokens"] for chunk in chunks if chunk["tokens"]] == [[65], [66], [67], [68]], "an event for each"


def test_response_fields():
    _, body = post(
        "/completion", {"prompt": "ab", "response_fields": ["content", "timings/prompt_n", "nothing/here"], "seed": 0}
    )
    assert body == {"content": "AB [0]", "timings/prompt_n": 3}


def test_length_is_a_finish_reason():
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        _, body = post(CHAT, {"messages": HELLO, name: 4})
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["choices"][0]["message"]["content"] == SAID[:4]


def test_logprobs_of_chat():
    _, body = post(CHAT, {"messages": HELLO, "max_tokens": 2, "logprobs": True, "top_logprobs": 2})
    first, second = body["choices"][0]["logprobs"]["content"] + [None] * (
        2 - len(body["choices"][0]["logprobs"]["content"])
    )
    assert first["token"] == "U"
    assert first["bytes"] == [85]
    assert first["logprob"] == -0.25
    assert [top["logprob"] for top in first["top_logprobs"]] == [-0.5, -3.4028234663852886e38]
    assert second is None or second["id"] == ord("S")


def test_logprobs_in_streams_arrive_with_their_text():
    *chunks, _ = stream(CHAT, {"messages": HELLO, "logprobs": True})
    entries = [entry for chunk in chunks for entry in chunk["choices"][0].get("logprobs", {}).get("content", ())]
    assert bytes(entry["bytes"][0] for entry in entries).decode() == (SAID + " [None]")[:-1]
    assert all(entry["top_logprobs"] == [] for entry in entries)
    *chunks, _ = stream("/v1/completions", {"prompt": "ab", "logprobs": 1})
    assert len(chunks[0]["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 1
    old = [chunk["choices"][0]["logprobs"] or {} for chunk in chunks]
    assert "".join(token for one in old for token in one.get("tokens", ())) == "AB [None"
    assert [at for one in old for at in one.get("text_offset", ())] == list(range(8))
    *chunks, _ = stream("/completion", {"prompt": "ab", "n_probs": 1})
    assert chunks[0]["completion_probabilities"][0]["logprob"] == -0.25


def test_logprobs_of_completions_have_openai_members_too():
    fake = FakeRuntime(script=lambda request: "éa!".encode())
    logprobs = post("/v1/completions", {"prompt": "ab", "logprobs": 2}, fake)[1]["choices"][0]["logprobs"]
    assert (logprobs["tokens"], logprobs["text_offset"]) == (["", "\ufffd", "a"], [0, 1, 1])
    assert logprobs["token_logprobs"] == [-0.25] * 3
    assert logprobs["top_logprobs"] == [{"\0": -0.5, "\1": -3.4028234663852886e38}] * 3
    assert len(logprobs["content"]) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "x", "n_probs": 30}),
        ("/v1/completions", {"prompt": "x", "logprobs": 20, "max_tokens": 1500}),
        (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 20}),
        ("/tokenize", {"content": "word " * 40_000, "with_pieces": True}),
    ],
)
def test_large_answers_do_not_keep_others_waiting(path, body, monkeypatch):
    """Workers put them together, a token at a time: none is encoded, nor kept, in a lump that would hold the
    interpreter.
    """
    made, lumps, threads = 0, [], set()
    encode, show = json_out.dumps, json_out.visible

    def dumps(value):
        nonlocal made
        text = encode(value)
        lumps.append((len(text), made))
        made = 0
        threads.add(threading.current_thread().name)
        return text

    def visible(data):
        nonlocal made
        made += 1
        threads.add(threading.current_thread().name)
        return show(data)

    monkeypatch.setattr(json_out, "dumps", dumps)
    monkeypatch.setattr(choices, "visible", visible)
    fake = FakeRuntime(script=lambda request: b"word " * 300, step=50)
    status, _ = post(path, body, fake)
    assert status == 200
    assert sum(size for size, _ in lumps) > 500_000
    assert max(size for size, _ in lumps) < 16_384
    assert max(tokens for _, tokens in lumps) <= 101
    assert all(name.startswith("uad-http") for name in threads | fake.threads), threads | fake.threads


def test_half_characters_are_cut_from_token_text():
    fake = FakeRuntime(script=lambda request: "é!".encode(), step=1)
    _, body = post(CHAT, {"messages": HELLO, "logprobs": True}, fake)
    entries = body["choices"][0]["logprobs"]["content"]
    assert [(entry["token"], entry["bytes"]) for entry in entries] == [("", [0xC3]), ("\ufffd", [0xA9])]


def test_text_beyond_ascii_survives_a_stream():
    text = "naïve \u2028 “quoted” 漢字 🙂 \\ \u0085."
    fake = FakeRuntime(script=lambda request: text.encode(), step=1000)
    *chunks, _ = stream(CHAT, {"messages": HELLO}, fake)
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == text


def test_silence_is_filled_with_comments():
    async def run():
        fake = FakeRuntime()
        fake.go.clear()
        body = {"messages": HELLO, "stream": True}
        config = ServerConfig(port=0, sse_ping_interval=0.05)
        async with serving(fake, config) as session, session.post(CHAT, json=body) as answer:
            assert await answer.content.readuntil(b"\n\n") == b":\n\n"
            assert await answer.content.readuntil(b"\n\n") == b":\n\n"
            fake.go.set()
            return await answer.read()

    assert events(asyncio.run(run()))[-1] == "[DONE]"


@pytest.mark.parametrize("never", [-1, 0])
def test_no_pings_when_the_request_says_so(never):
    async def run():
        fake = FakeRuntime(pause=0.1)
        body = {"messages": HELLO, "stream": True, "sse_ping_interval": never, "max_tokens": 6}
        config = ServerConfig(port=0, sse_ping_interval=0.02)
        async with serving(fake, config) as session, session.post(CHAT, json=body) as answer:
            return await answer.read()

    data = asyncio.run(run())
    assert b":\n\n" not in data.replace(b"data:", b"")
    assert events(data)[-1] == "[DONE]"


def test_prefix_and_short_paths():
    config = ServerConfig(port=0, api_prefix="/api/v9")
    assert post("/api/v9/chat/completions", {"messages": HELLO}, None, config)[0] == 200
    assert post("/chat/completions", {"messages": HELLO})[0] == 200
    assert post(CHAT, {"messages": HELLO}, None, config)[0] == 404


def test_prompts_are_tokenized_off_the_event_loop():
    fake = FakeRuntime()
    post(CHAT, {"messages": HELLO}, fake, CONFIG)
    post("/completion", {"prompt": "x"}, fake := FakeRuntime())
    assert all(name.startswith("uad-http") for name in fake.threads)
    assert fake.threads


def test_an_empty_answer_is_text_too():
    _, body = post(CHAT, {"messages": HELLO}, FakeRuntime(script=lambda request: b""))
    assert body["choices"][0]["message"]["content"] == ""
    *chunks, done = stream(CHAT, {"messages": HELLO}, FakeRuntime(script=lambda request: b""))
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [{"role": "assistant", "content": None}, {}]
    assert done == "[DONE]"
