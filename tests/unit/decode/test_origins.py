"""Who wrote which token: in the loop, and in the chunks of streams that ask for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kit.fake_runtime import REJECTED, FakeRuntime
from kit.server_kit import CHAT, HELLO, post, stream
from kit.toys import SCRIPT, TARGET_VOCAB, RandomDrafter, ScriptedModel, make_engine, run

from uad.base.types import GREEDY, Origin, Request, SpecPolicy, SpeculativeParams
from uad.text.calls.format import AnswerFormat, ThoughtFormat

FIXED = SpeculativeParams(n_max=6, p_min=0.0, policy=SpecPolicy.FIXED)
TEXT = "Ein Käse — 東京 😀 für später"


def by_threes(place: int) -> Origin:
    return (Origin.MODEL, Origin.SUFFIX, Origin.TARGET)[place // 3 % 3]


def fake(text: str = TEXT, step: int = 4, **fields) -> FakeRuntime:
    return FakeRuntime(script=lambda _: text.encode(), by=by_threes, step=step, **fields)


def told(chunks: list) -> list[dict]:
    return [token for chunk in chunks if chunk != "[DONE]" for token in chunk.get("origins", ())]


def request(**fields) -> Request:
    prompt = tuple(TARGET_VOCAB.tokenize(SCRIPT))[:20]
    return Request(prompt=prompt, sampling=GREEDY, max_tokens=60, origins=True, **{"speculative": FIXED, **fields})


def drafter() -> RandomDrafter:
    """Right half of the time: the truth is what the target writes alone."""
    alone = replace(request(), speculative=SpeculativeParams(enabled=False))
    return RandomDrafter({0: run(make_engine(ScriptedModel(TARGET_VOCAB)), [alone])[0].ids}, seed=3)


# --- in the loop


@pytest.mark.parametrize("stop", [(), ("def",), ("東",)])
def test_the_tokens_of_an_answer_are_its_text_and_say_who_wrote_it(stop: tuple[str, ...]) -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB), drafter())
    got = run(engine, [request(stop=stop)])[0]
    tokens = [token for delta in got.deltas for token in delta.tokens]
    origins = [origin for delta in got.deltas for origin in delta.origins]
    assert "".join(token.text for token in tokens).startswith(got.text)
    assert [token.origin for token in tokens] == origins
    assert len(tokens) == got.done.usage.n_predicted


def test_a_guess_that_was_rejected_stands_at_the_token_written_in_its_place() -> None:
    target = ScriptedModel(TARGET_VOCAB)
    engine = make_engine(target, drafter())
    got = run(engine, [request()])[0]
    n = got.done.timings.draft
    rejected = [token for delta in got.deltas for token in delta.tokens if token.rejected]
    assert n.n_rejected > 0
    assert rejected
    assert all(token.origin is Origin.TARGET for token in rejected)


def test_who_does_not_ask_gets_no_tokens() -> None:
    engine = make_engine(ScriptedModel(TARGET_VOCAB), drafter())
    got = run(engine, [replace(request(), origins=False)])[0]
    assert all(delta.tokens == () for delta in got.deltas)


# --- in streams


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/completion"])
@pytest.mark.parametrize("step", [1, 4, 50])
def test_a_stream_that_asks_has_every_token_once(path: str, step: int) -> None:
    body = {"messages": HELLO, "prompt": "x", "return_origins": True}
    tokens = told(stream(path, body, fake(step=step)))
    data = TEXT.encode()[:-1]  # the last one is held back, as if it were of a stop string
    assert "".join(one["text"] for one in tokens) == TEXT[:-1]
    assert [one["by"] for one in tokens] == [by_threes(i) for i in range(len(data))]
    assert {one["by"] for one in tokens if one.get("rejected") == REJECTED} <= {"target"}


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/completion"])
def test_standard_clients_never_see_it(path: str) -> None:
    plain = stream(path, {"messages": HELLO, "prompt": "x"}, fake())
    assert not any("origins" in chunk for chunk in plain if chunk != "[DONE]")


def test_an_answer_that_is_no_stream_has_no_place_for_it() -> None:
    status, answer = post(CHAT, {"messages": HELLO, "return_origins": True}, fake())
    assert (status, answer["error"]["param"]) == (400, "return_origins")
    assert "stream" in answer["error"]["message"]


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_thoughts_and_content_say_where_they_begin_in_the_text_of_all_tokens(step: int) -> None:
    text = "<think>\nthink é hard, < or <th\n</think>\n\nthe k answer <b>"
    answers = AnswerFormat(thought=ThoughtFormat("<think>", "</think>"))
    chunks = stream(CHAT, {"messages": HELLO, "return_origins": True}, fake(text, step, answers=answers))
    raw = "".join(one["text"] for one in told(chunks)) + text[-1]
    said = {"content": "", "reasoning_content": ""}
    for chunk in chunks[:-1]:
        for name, piece in chunk["choices"][0]["delta"].items():
            if name in said and piece:
                at = chunk["origins_at"]
                assert raw[at : at + len(piece)] == piece
                said[name] += piece
    assert raw == text
    assert said == {"content": "the k answer <b>", "reasoning_content": "think é hard, < or <th"}


def test_two_choices_keep_their_tokens_apart() -> None:
    chunks = stream("/v1/completions", {"prompt": "x", "n": 2, "seed": 1, "return_origins": True}, fake())
    for index in (0, 1):
        mine = [chunk for chunk in chunks[:-1] if chunk["choices"] and chunk["choices"][0]["index"] == index]
        assert "".join(one["text"] for one in told(mine)) == TEXT[:-1]
