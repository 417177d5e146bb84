"""Every way to be refused: each with its status, its type, and a text that names the field."""

import asyncio
import json
import math

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, CONFIG, HELLO, events, post, serving, stream

from uad.base.errors import DecodeError
from uad.http.requests.job import MOST_BIAS, _addend


def refused(path, body, status=400, kind="invalid_request_error", param=None, fake=None):
    got, answer = post(path, body, fake)
    error = answer["error"]
    assert (got, error["code"], error["type"]) == (status, status, kind), error
    if param is not None:
        assert error["param"] == param
        assert param.split(".")[-1] in error["message"]
    return error["message"]


def chat(**members):
    return {"messages": HELLO, **members}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{'a': 1}", b'{"messages": [}', b"\xff\xfe{", b'{"prompt": "\xff"}', b"[" * 100_000]
)
def test_malformed_json(body):
    refused(CHAT, body)


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b"3"])
def test_body_must_be_an_object(body):
    assert "object" in refused(CHAT, body)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_are_not_json(number):
    assert number in refused("/completion", f'{{"prompt": "a", "temperature": {number}}}'.encode())


def test_numbers_with_very_many_digits():
    refused("/completion", b'{"prompt": "a", "n_predict": ' + b"9" * 5000 + b"}")
    refused("/completion", b'{"prompt": "a", "temperature": 1e999}', param="temperature")


def test_bodies_that_are_not_coded_as_they_say():
    status, answer = post("/completion", b"{}", headers={"Content-Encoding": "gzip"})
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert "body" in answer["error"]["message"]


def test_half_surrogate_pairs():
    assert "surrogate" in refused("/completion", b'{"prompt": "\\ud83d"}')
    assert post("/completion", b'{"prompt": "\\ud83d\\ude42"}')[0] == 200


BAD_NUMBERS = [
    ("max_tokens", -2),
    ("max_tokens", "5"),
    ("max_tokens", True),
    ("top_p", "0.9"),
    ("temperature", True),
    ("repeat_penalty", 0),
    ("repeat_last_n", -5),
    ("frequency_penalty", [1]),
    ("seed", "5"),
    ("dry_base", "2"),
    ("adaptive_decay", 1),
    ("min_keep", -1),
    ("n_probs", 101),
    ("logprobs", 101),
    ("logprobs", "5"),
    ("n", 0),
    ("n", 5),
    ("n", 10**9),
    ("sse_ping_interval", "1"),
    ("sse_ping_interval", 1e-6),
    ("sse_ping_interval", 0.99),
    ("speculative.n_min", -1),
    ("speculative.p_min", "0.5"),
]


@pytest.mark.parametrize(("name", "value"), BAD_NUMBERS)
def test_numbers_out_of_bounds(name, value):
    refused(CHAT, chat(**{name: value}), param=name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", "true"),
        ("stream", 1),
        ("stop", 5),
        ("stop", ["a", 1]),
        ("stop", ["x"] * 257),
        ("ignore_eos", 0),
        ("cache_prompt", "no"),
        ("stream_options", []),
        ("samplers", 4),
        ("messages", "hello"),
        ("messages", []),
        ("chat_template_kwargs", []),
        ("add_generation_prompt", 1),
    ],
)
def test_wrong_types(name, value):
    refused(CHAT, chat(**{name: value}), param=name)


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([{"role": "user"}], "messages.0"),
        ([{"content": "x"}], "messages.0.role"),
        ([{"role": "king", "content": "x"}], "messages.0.role"),
        ([{"role": "user", "content": 5}], "messages.0.content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages.0.content"),
        (["hello"], "messages.0"),
    ],
)
def test_bad_messages(messages, where):
    got, answer = post(CHAT, {"messages": messages})
    assert got == 400
    assert answer["error"]["param"].startswith(where)


def test_missing_fields():
    refused(CHAT, {}, param="messages")
    refused("/v1/completions", {}, param="prompt")
    refused("/completion", {"prompt": None}, param="prompt")
    refused("/tokenize", {}, param="content")
    refused("/detokenize", {}, param="tokens")


@pytest.mark.parametrize(
    "prompt", [[], [[]], [1.5], [True], [-1], [259], 7, [["a", []]], {"other": 1}, ["a", [{"x": 1}]]]
)
def test_bad_prompts(prompt):
    refused("/v1/completions", {"prompt": prompt}, param="prompt")
    refused("/completion", {"prompt": prompt}, param="prompt")


def test_too_many_prompts():
    assert "at most 4" in refused("/completion", {"prompt": ["a"] * 5}, param="prompt")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{}]),
        ("function_call", {"name": "f"}),
        ("grammar_lazy", True),
        ("modalities", ["text", "audio"]),
        ("lora", [{"id": 0, "scale": 1}]),
        ("echo", True),
        ("best_of", 2),
        ("use_beam_search", True),
        ("prompt_logprobs", 0),
        ("truncate_prompt_tokens", 5),
        ("skip_special_tokens", False),
    ],
)
def test_active_features_that_are_missing(name, value):
    refused(CHAT, chat(**{name: value}), param=name)


@pytest.mark.parametrize(("name", "value"), [("suffix", "}"), ("grammar_lazy", True)])
def test_missing_features_of_completions(name, value):
    refused("/v1/completions", {"prompt": "a", name: value}, param=name)


def test_neutral_values_of_missing_features_pass():
    neutral = {
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "grammar": "",
        "json_schema": None,
        "mirostat": 0,
        "mirostat_tau": 5,
        "dry_multiplier": 0.0,
        "dynatemp_range": 0,
        "min_keep": 0,
        "lora": [],
        "echo": False,
        "best_of": 1,
        "suffix": None,
        "modalities": ["text"],
        "logit_bias": [],
        "rep_pen": 1.1,
        "tfs_z": 1,
        "adaptive_target": -0.01,
        "samplers": [
            "penalties",
            "dry",
            "top_n_sigma",
            "top_k",
            "typ_p",
            "adaptive_p",
            "typical_p",
            "top_p",
            "min_p",
            "xtc",
            "temperature",
        ],
        "user": "someone",
    }
    assert post(CHAT, chat(**neutral))[0] == 200


@pytest.mark.parametrize("name", ["mirostat", "dry_multiplier", "best_of"])
def test_missing_features_with_wrong_types(name):
    refused(CHAT, chat(**{name: "much"}), param=name)


def test_images_are_refused():
    image = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": "x"}}],
        }
    ]
    refused(CHAT, {"messages": image}, param="messages.0.content.1")


def test_a_field_that_is_not_here_is_not_sent_again():
    async def run():
        async with serving(FakeRuntime()) as session, session.post(CHAT, json=chat(use_beam_search=True)) as answer:
            return answer.status, answer.headers["x-should-retry"]

    assert asyncio.run(run()) == (400, "false")


def test_templates_are_not_taken_from_requests():
    refused(CHAT, chat(chat_template="{{ 1 }}"), param="chat_template")
    refused(CHAT, chat(chat_template_kwargs={"messages": "x"}))
    refused(CHAT, chat(chat_template_kwargs={"__class__": "x"}))
    refused(CHAT, chat(chat_template_kwargs={"long": {"a": ["x" * 65536]}}), param="chat_template_kwargs.long")


def test_speculative_names_are_strict():
    message = refused(CHAT, chat(speculative={"n_maxx": 4}), param="speculative")
    assert "n_max" in message
    refused(CHAT, chat(speculative={"n_max": True}), param="speculative.n_max")
    refused(CHAT, chat(speculative=True), param="speculative")
    refused(CHAT, chat(speculative={"n_max": 2, "n_min": 4}), param="speculative.n_min")


def test_drafters_that_cannot_be_asked_for():
    missing = refused(CHAT, chat(**{"speculative.types": "suffix,ngram-mod"}), param="speculative.types")
    assert "has suffix, draft-simple, not ngram-mod" in missing
    assert "has no drafter" in refused(
        CHAT, chat(**{"speculative.types": "suffix"}), param="speculative.types", fake=FakeRuntime(loaded=())
    )
    assert "one or more of draft-simple, " in refused(
        CHAT, chat(**{"speculative.types": "sufix"}), param="speculative.types"
    )
    assert "draft-simple, not draft-mtp" in refused(
        CHAT, chat(speculative={"types": ["draft-mtp"]}), param="speculative.types"
    )
    assert "draft-simple, not draft-eagle3" in refused(
        CHAT, chat(speculative={"types": ["draft-eagle3"]}), param="speculative.types"
    )
    assert "none stands alone" in refused(
        CHAT, chat(speculative={"types": ["none", "suffix"]}), param="speculative.types"
    )
    for wrong in (1, [1], [], "", True, {"suffix": 1}):
        refused(CHAT, chat(speculative={"types": wrong}), param="speculative.types")


@pytest.mark.parametrize(
    "value",
    [
        5,
        "a",
        True,
    ],
)
def test_bad_logit_bias(value):
    refused(CHAT, chat(logit_bias=value), param="logit_bias")


def test_a_bias_is_cut_off_at_a_million_up_and_down():
    assert [_addend(bias) for bias in (1e300, -1e300, 2.5, False)] == [MOST_BIAS, -MOST_BIAS, 2.5, -math.inf]


@pytest.mark.parametrize("other", [{"type": "image_url", "text": "b"}, {"type": "text", "text": 1}, "b"])
def test_a_prediction_holds_text_alone(other):
    prediction = {"type": "content", "content": [{"type": "text", "text": "a"}, other]}
    assert "only parts of type" in refused(CHAT, chat(prediction=prediction), param="prediction")


def test_a_text_in_logit_bias_counts_with_all_its_tokens():
    assert post(CHAT, chat(logit_bias={"a": 1, "b" * 4095: 1}))[0] == 200
    assert "4096 tokens" in refused(CHAT, chat(logit_bias={"a": 1, "b" * 4096: 1}), param="logit_bias")


def test_top_logprobs_needs_logprobs():
    refused(CHAT, chat(top_logprobs=2), param="top_logprobs")
    refused(CHAT, chat(logprobs=0, top_logprobs=2), param="top_logprobs")
    refused(CHAT, chat(logprobs=True, top_logprobs=101), param="top_logprobs")


@pytest.mark.parametrize("is_stream", [False, True])
def test_context_overflow(is_stream):
    got, answer = post("/completion", {"prompt": "x" * 50, "stream": is_stream}, FakeRuntime(n_ctx=20))
    error = answer["error"]
    assert (got, error["type"], error["n_prompt_tokens"], error["n_ctx"]) == (400, "exceed_context_size_error", 51, 20)
    assert "exceeds the available context size" in error["message"]


def test_a_failing_second_choice_cancels_the_first():
    fake = FakeRuntime(n_ctx=20)
    fake.go.clear()
    got, _ = post("/completion", {"prompt": ["x", "x" * 50]}, fake)
    assert got == 400
    assert fake.cancelled == [1]


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_error_before_the_first_event_has_its_own_status(is_stream):
    got, answer = post(CHAT, chat(stream=is_stream), FakeRuntime(fail=DecodeError("no luck")))
    assert (got, answer["error"]["type"], answer["error"]["message"]) == (500, "server_error", "no luck")


def test_an_error_in_a_stream_is_its_last_event():
    *chunks, last = stream(CHAT, chat(), FakeRuntime(fail=DecodeError("no luck"), fail_after=6, pause=0.02))
    assert chunks
    assert last == {"error": {"code": 500, "message": "no luck", "type": "server_error", "param": None}}


def test_unexpected_errors_are_told_in_general_words():
    got, answer = post(CHAT, chat(), FakeRuntime(fail=ValueError("secret")))
    assert got == 500
    assert "secret" not in json.dumps(answer)

    def breaks(request):
        raise ZeroDivisionError("secret")

    got, answer = post(CHAT, chat(), FakeRuntime(script=breaks))
    assert (got, answer["error"]["type"]) == (500, "server_error")
    assert "secret" not in json.dumps(answer)


def test_unknown_paths_and_methods():
    async def run():
        async with serving(FakeRuntime(), CONFIG) as session:
            async with session.get("/nowhere") as answer:
                missing = answer.status, (await answer.json())["error"]
            async with session.post("/v1/chat/completion", json={}) as answer:
                misspelt = (await answer.json())["error"]["message"]
            async with session.get(CHAT) as answer:
                error = (await answer.json())["error"]
                wrong = answer.status, error["type"], answer.headers["Allow"], error["message"]
            async with session.post("/v1/embeddings", json={}) as answer:
                absent = answer.status, (await answer.json())["error"]["type"], answer.headers["x-should-retry"]
            return missing, misspelt, wrong, absent

    missing, misspelt, wrong, absent = asyncio.run(run())
    assert (missing[0], missing[1]["type"], missing[1]["message"]) == (
        404,
        "not_found_error",
        "there is no /nowhere here",
    )
    assert misspelt == "there is no /v1/chat/completion here; did you mean /v1/chat/completions?"
    assert wrong == (405, "invalid_request_error", "POST", f"{CHAT} takes POST, not GET")
    assert absent == (501, "not_supported_error", "false")


def test_what_is_no_http_is_one_line_in_the_log(caplog):
    async def run():
        async with serving(FakeRuntime()) as session:
            reader, writer = await asyncio.open_connection(session._base_url.host, session._base_url.port)
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"}")
            writer.write(b"BR\xffEW /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = await reader.read()
            writer.close()
            return told

    assert asyncio.run(run()).count(b" 400 Bad Request") == 1
    (record,) = [record for record in caplog.records if record.name == "uad.http"]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "\n" not in record.getMessage()


def test_long_bodies_pass_and_are_read_off_the_loop():
    fake = FakeRuntime(n_ctx=10**7)
    got, answer = post("/completion", {"prompt": "x" * 2_000_000, "n_predict": 3}, fake)
    assert (got, answer["content"]) == (200, "XXX")
    assert "object" in refused("/completion", b" " * 200_000 + b"[]")


def test_the_body_has_a_limit(monkeypatch):
    monkeypatch.setattr("uad.http.server.app.MAX_BODY", 1000)
    got, answer = post("/completion", {"prompt": "x" * 2000})
    assert (got, answer["error"]["type"]) == (413, "invalid_request_error")


def test_error_events_are_read_like_all_others():
    assert events(b'data: {"error":1}\n\n:\n\n') == [{"error": 1}]
