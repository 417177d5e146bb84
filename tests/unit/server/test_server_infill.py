"""POST /infill, `suffix` of completions, and `prediction` on all routes that generate, over a scripted runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.fake_runtime import BOS, CONFIG, FakeRuntime
from kit.server_kit import CHAT, HELLO, post, stream

from uad.base.config import Config, ServerConfig
from uad.base.events import Done
from uad.base.stats import DrafterStats, DraftStats, Timings, Usage
from uad.base.types import FimTokens, Finish, Origin, Request, StopKind
from uad.http.apis.choice import Choice, usage_json
from uad.http.requests.job import MAX_PREDICTED_BYTES
from uad.http.requests.prompt_ids import FimShares, Prompt

PRE, SUF, MID, REPO, FILE = 1, 2, 3, 4, 5
"""Ids of the scripted vocabulary whose bytes no text here has."""
FIM = FimTokens(PRE, SUF, MID, REPO, FILE)
BARE = FimTokens(PRE, SUF, MID)
ROUTES = ["/infill", "/v1/completions", "/completion", CHAT]


def fim_runtime(fim: FimTokens = FIM, n_ctx: int = 4096, **config: Any) -> FakeRuntime:
    fake = FakeRuntime(n_ctx=n_ctx, config=Config(**{"target": CONFIG.target, **config}))
    fake.info = replace(fake.info, fim=fim)
    return fake


def infilled(fake: FakeRuntime | None = None, **members: Any) -> Request:
    fake = fake or fim_runtime()
    status, answer = post("/infill", {"input_prefix": "", "input_suffix": "", **members}, fake)
    assert status == 200, answer
    return fake.requests[-1]


def text(*parts: str | int) -> tuple[int, ...]:
    return tuple(id_ for part in parts for id_ in (part.encode() if isinstance(part, str) else [part]))


def test_the_prompt_is_llama_servers() -> None:
    extra = [{"filename": "a.h", "text": "int a;", "time": 1}, {"filename": "b.h", "text": "int b;"}]
    asked = infilled(input_prefix="one(", prompt=" two", input_suffix=")three", input_extra=extra)
    head = text(REPO, "myproject\n", FILE, "a.h\nint a;", FILE, "b.h\nint b;", FILE, "filename\n")
    assert asked.prompt == (*head, BOS, *text(PRE, "one( two", SUF, ")three", MID))


def test_a_chunk_without_a_name_and_one_whose_name_is_null_are_the_same() -> None:
    unnamed = infilled(input_prefix="x", input_extra=[{"text": "int a;"}])
    assert infilled(input_prefix="x", input_extra=[{"filename": None, "text": "int a;"}]).prompt == unnamed.prompt


def test_without_marks_for_files_their_chunks_are_snippets() -> None:
    asked = infilled(fim_runtime(BARE), input_prefix="x", input_extra=[{"text": "int a;"}])
    assert asked.prompt == (*text("\n\n--- snippet ---\n\nint a;"), BOS, *text(PRE, "x", SUF, MID))


def test_the_suffix_comes_first_where_the_server_was_told_so() -> None:
    asked = infilled(fim_runtime(BARE, server=ServerConfig(spm_infill=True)), input_prefix="x", input_suffix="y")
    assert asked.prompt == (BOS, *text(SUF, "y", PRE, "x", MID))


def test_drafters_read_the_prefix_last_and_no_marks() -> None:
    asked = infilled(input_prefix="one(", prompt=" two", input_suffix=")three", input_extra=[{"text": "int a;"}])
    assert asked.drafted_prompt == text("myproject\ntmp\nint a;filename\n", ")three", "one( two")
    plain = FakeRuntime()
    assert post("/completion", {"prompt": "ab"}, plain)[0] == 200
    assert plain.requests[0].drafted_prompt == ()


@pytest.mark.parametrize("n_ctx", [64, 300, 4096])
def test_long_texts_are_cut_around_the_cursor(n_ctx: int) -> None:
    lines = [f"line {i}\n" for i in range(2000)]
    asked = infilled(
        fim_runtime(n_ctx=n_ctx),
        input_prefix="".join(lines[:1000]),
        input_suffix="".join(lines[1000:]),
        input_extra=[{"text": "x" * 9000}, {"text": "y" * 9000}],
        prompt="z",
        n_predict=8,
    )
    data = bytes(id_ for id_ in asked.prompt if id_ < 256)
    assert len(asked.prompt) + 8 <= n_ctx
    assert b"line 999\nz\x02line 1000" in data.replace(b"\x01", b"") or n_ctx == 64
    before, behind = data[data.index(b"\x01") + 1 : -1].split(b"z\x02")
    n = min(2048, n_ctx * 3 // 4) // 4
    assert (len(before), len(behind)) == (3 * n, n - 3)


def test_the_shares_are_llama_servers_where_these_fit() -> None:
    assert FimShares.of(8192, 2048, 10, 128) == FimShares(1536, 500, 8192 - 2048 - 256 - 8)
    assert FimShares.of(4096, 2048, 900, 128).suffix == 0
    assert FimShares.of(1024, 2048, 0, 256) == FimShares(576, 190, 0)


def test_a_text_of_megabytes_is_not_tokenized_as_a_whole() -> None:
    fake = fim_runtime(n_ctx=256)
    texts: list[int] = []
    tokenize = fake.tokenize
    fake.tokenize = lambda text, **rest: texts.append(len(text)) or tokenize(text, **rest)  # type: ignore[method-assign]
    infilled(fake, input_prefix="a" * (1 << 22), input_suffix="b" * (1 << 22), input_extra=[{"text": "c" * (1 << 22)}])
    assert max(texts) <= 64 * 256


def test_ids_and_texts_may_be_mixed_around_the_cursor() -> None:
    asked = infilled(fim_runtime(BARE), input_prefix=[97, "b"], input_suffix=["c", 100])
    assert asked.prompt == (BOS, *text(PRE, "ab", SUF, "cd", MID))


def test_names_of_specials_in_files_are_text() -> None:
    fake, seen = fim_runtime(), {}
    tokenize = fake.tokenize

    def noting(text: str, add_special: bool = False, parse_special: bool = True) -> list[int]:
        seen[text] = parse_special
        return tokenize(text, add_special, parse_special)

    fake.tokenize = noting  # type: ignore[method-assign]
    infilled(fake, input_prefix="p", input_suffix="s", prompt="begun", input_extra=[{"text": "e"}])
    assert (seen["p"], seen["s"], seen["e"], seen["begun"]) == (False, False, False, True)


def test_the_prompt_that_warms_the_cache_is_that_of_the_next_request() -> None:
    extra = [{"text": "x" * 9000}]
    warm, asked = (infilled(n_predict=n, input_prefix="p", input_extra=extra).prompt for n in (0, 200))
    assert warm == asked


def test_no_tokens_only_warm_the_cache() -> None:
    asked = infilled(n_predict=0, samplers=[], cache_prompt=True, t_max_prompt_ms=1, response_fields=[""])
    assert (asked.max_tokens, asked.cache_prompt) == (0, True)


def test_response_fields_and_streams_are_those_of_completions() -> None:
    body = {"input_prefix": "ab", "input_suffix": "c", "n_predict": 4}
    status, answer = post("/infill", {**body, "response_fields": ["content", "timings/prompt_n"]}, fim_runtime())
    assert status == 200
    assert set(answer) == {"content", "timings/prompt_n"}
    said = stream("/infill", body, fim_runtime())
    assert said[-1]["stop"] is True
    assert "".join(one["content"] for one in said)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"input_suffix": "s"}, "input_prefix"),
        ({"input_prefix": "p"}, "input_suffix"),
        ({"input_prefix": 7, "input_suffix": "s"}, "input_prefix"),
        ({"input_prefix": "p", "input_suffix": ["s", -1]}, "input_suffix"),
        ({"input_prefix": "p", "input_suffix": "s", "prompt": 3}, "prompt"),
        ({"input_prefix": "p", "input_suffix": "s", "prompt": ["a"]}, "prompt"),
        ({"input_prefix": "p", "input_suffix": "s", "input_extra": {}}, "input_extra"),
        ({"input_prefix": "p", "input_suffix": "s", "input_extra": [{}]}, "input_extra.0.text"),
        ({"input_prefix": "p", "input_suffix": "s", "input_extra": [{"filename": "ok"}]}, "input_extra.0.text"),
        ({"input_prefix": "p", "input_suffix": "s", "input_extra": [{"filename": 1, "text": "a"}]}, "input_extra"),
        ({"input_prefix": "p", "input_suffix": "s", "suffix": "t"}, "suffix"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], param: str) -> None:
    status, answer = post("/infill", members, fim_runtime())
    assert status == 400
    assert answer["error"]["param"].startswith(param)


def test_a_prompt_that_is_too_long_is_refused() -> None:
    body = {"input_prefix": "", "input_suffix": "", "prompt": "a" * 5000}
    status, answer = post("/infill", body, fim_runtime())
    assert (status, answer["error"]["type"]) == (400, "exceed_context_size_error")


@pytest.mark.parametrize("fim", [FimTokens(), FimTokens(PRE, SUF), FimTokens(middle=MID)])
def test_a_model_without_the_tokens_cannot_fill_in(fim: FimTokens) -> None:
    for path, body in (("/infill", {"input_prefix": "a", "input_suffix": "b"}), ("/v1/completions", SUFFIXED)):
        status, answer = post(path, body, fim_runtime(fim))
        assert status == 400
        assert "FIM token" in answer["error"]["message"]


# --- suffix of completions

SUFFIXED = {"prompt": "ab", "suffix": "yz"}


def test_a_completion_with_a_suffix_fills_in() -> None:
    fake = fim_runtime()
    assert post("/v1/completions", {**SUFFIXED, "prompt": ["ab", [BOS, 99]]}, fake)[0] == 200
    assert {one.prompt for one in fake.requests} == {
        (BOS, *text(PRE, "ab", SUF, "yz", MID)),
        (BOS, *text(PRE, "c", SUF, "yz", MID)),
    }
    assert {one.drafted_prompt for one in fake.requests} == {text("yz", "ab"), text("yz", "c")}


def test_what_fills_in_has_no_bos_where_none_is_to_be_added() -> None:
    fake = fim_runtime()
    assert post("/v1/completions", {**SUFFIXED, "prompt": "", "add_special_tokens": False}, fake)[0] == 200
    assert fake.requests[-1].prompt == text(PRE, SUF, "yz", MID)
    with_bos, without = (
        infilled(fim_runtime(BARE), input_prefix="a", input_suffix="b", add_special_tokens=add).prompt
        for add in (True, False)
    )
    assert with_bos == (BOS, *without)


def test_an_empty_suffix_is_none() -> None:
    for suffix in ("", None):
        fake = FakeRuntime()
        assert post("/v1/completions", {"prompt": "ab", "suffix": suffix}, fake)[0] == 200
        assert fake.requests[-1].prompt == (BOS, 97, 98)


@pytest.mark.parametrize("path", ["/completion", CHAT])
def test_other_routes_say_where_a_suffix_goes(path: str) -> None:
    status, answer = post(path, {"prompt": "a", "messages": HELLO, "suffix": "b"}, fim_runtime())
    assert status == 400
    assert "/v1/completions" in answer["error"]["message"]


# --- prediction


def predicted(path: str, value: object, fake: FakeRuntime | None = None) -> tuple[int, Any, FakeRuntime]:
    fake = fake or fim_runtime()
    body = {"prompt": "a", "messages": HELLO, "input_prefix": "a", "input_suffix": "b", "prediction": value}
    return (*post(path, body, fake), fake)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("content", "data"),
    [
        ("naïve", "naïve".encode()),
        ([{"type": "text", "text": "one\n"}, {"type": "text", "text": "two"}], b"one\ntwo"),
        ("", b""),
        ([], b""),
    ],
)
def test_a_prediction_reaches_the_request(path: str, content: object, data: bytes) -> None:
    status, answer, fake = predicted(path, {"type": "content", "content": content})
    assert status == 200, answer
    assert fake.requests[-1].prediction == data


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "value",
    [
        "text",
        [],
        {},
        {"type": "content"},
        {"type": "other", "content": "a"},
        {"type": "content", "content": 7},
        {"type": "content", "content": [7]},
        {"type": "content", "content": [{"type": "image_url", "image_url": {}}]},
        {"type": "content", "content": [{"type": "text"}]},
        {"type": "content", "content": "a" * (MAX_PREDICTED_BYTES + 1)},
        {"type": "content", "content": [{"type": "text", "text": ""}] * 5000},
    ],
)
def test_a_prediction_that_is_none_is_named(path: str, value: object) -> None:
    status, answer, _ = predicted(path, value)
    assert status == 400
    assert answer["error"]["param"] == "prediction"


def test_no_prediction_is_no_prediction() -> None:
    for path in ROUTES:
        status, answer, fake = predicted(path, None)
        assert status == 200
        assert fake.requests[-1].prediction == b""
        details = answer.get("usage", {}).get("completion_tokens_details", {})
        assert not any("prediction" in name for name in details)


@pytest.mark.parametrize(("path", "body"), [("/v1/responses", {"input": "a"}), ("/v1/messages", {"max_tokens": 4})])
def test_translated_routes_hand_it_on(path: str, body: dict[str, Any]) -> None:
    fake = FakeRuntime()
    prediction = {"type": "content", "content": "c"}
    assert post(path, {"model": "m", "messages": HELLO, **body, "prediction": prediction}, fake)[0] == 200
    assert fake.requests[-1].prediction == b"c"


def test_each_choice_has_the_prediction() -> None:
    fake = FakeRuntime()
    body = {"prompt": ["a", "b"], "n": 1, "prediction": {"type": "content", "content": "c"}}
    assert post("/v1/completions", body, fake)[0] == 200
    assert [one.prediction for one in fake.requests] == [b"c", b"c"]


def test_settings_name_it_among_the_drafters_of_its_request() -> None:
    for value, types in ((None, "suffix"), ({"type": "content", "content": "c"}, "prediction,suffix")):
        fake = FakeRuntime(loaded=(Origin.PREDICTION, Origin.SUFFIX))
        status, answer = post("/completion", {"prompt": "a", "prediction": value}, fake)
        assert status == 200
        assert answer["generation_settings"]["speculative.types"] == types


def test_usage_counts_what_was_submitted_of_a_prediction() -> None:
    def ended(*by: DrafterStats) -> Choice:
        timings = Timings(1.0, 1.0, 3, 0, 9, DraftStats(by={one.origin: one for one in by}))
        return Choice(0, Request(()), Prompt((), ""), done=Done(1, Finish.STOP, StopKind.EOS, Usage(3, 0, 9), timings))

    suffix = DrafterStats(Origin.SUFFIX, n_drafted=20, n_accepted=20)
    both = [ended(DrafterStats(Origin.PREDICTION, n_drafted=9, n_accepted=7), suffix) for _ in range(2)]
    counted = usage_json(both, 1)["completion_tokens_details"]
    assert counted == {"reasoning_tokens": 0, "accepted_prediction_tokens": 14, "rejected_prediction_tokens": 4}
    assert usage_json([ended(suffix)], 1)["completion_tokens_details"] == {"reasoning_tokens": 0}
