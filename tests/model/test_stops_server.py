"""Stops over HTTP: the fields that other servers have, and the real loop behind them on the bundled models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.fake_runtime import CONFIG, N_VOCAB, FakeRuntime
from kit.listening import base_url, listen
from kit.models import TARGET, config
from kit.server_kit import CHAT, HELLO, events, post

from uad.base.config import Config, ServerConfig
from uad.http.server import make_app, make_runner
from uad.runtime.runtime import Runtime

ROUTES = (CHAT, "/v1/completions", "/completion")
MARK = "<|im_start|>"


def body(path: str, **members: Any) -> dict[str, Any]:
    return {"messages": HELLO, **members} if path == CHAT else {"prompt": "ab", **members}


@pytest.mark.parametrize("path", ROUTES)
def test_the_fields_arrive(path: str) -> None:
    fake = FakeRuntime()
    fields = {"stop_token_ids": [7, 3, 7], "min_tokens": 4, "include_stop_str_in_output": True, "stop": ["<|turn|>"]}
    status, answer = post(path, body(path, **fields), fake)
    assert status == 200, answer
    asked = fake.requests[-1]
    assert (asked.stop_token_ids, asked.min_tokens, asked.include_stop, asked.stop) == ((7, 3), 4, True, ("<|turn|>",))


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_token_ids", [N_VOCAB]),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [2**40]),
        ("stop_token_ids", 5),
        ("stop_token_ids", "5"),
        ("stop_token_ids", ["5"]),
        ("stop_token_ids", [True]),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", [1] * 4097),
        ("min_tokens", -1),
        ("min_tokens", "3"),
        ("include_stop_str_in_output", "yes"),
        ("include_stop_str_in_output", 1),
    ],
)
def test_bad_values_are_refused_by_name(path: str, name: str, value: object) -> None:
    status, answer = post(path, body(path, **{name: value}))
    assert status == 400
    assert answer["error"]["param"].startswith(name)


def test_more_tokens_than_there_may_be_are_refused() -> None:
    for members in ({"max_tokens": 4}, {"max_tokens": 0}):
        status, answer = post(CHAT, body(CHAT, min_tokens=5, **members))
        assert (status, answer["error"]["param"]) == (400, "min_tokens")
    limited = FakeRuntime(config=Config(target=CONFIG.target, n_predict=4))
    assert post(CHAT, body(CHAT, min_tokens=5), limited)[0] == 400
    assert post(CHAT, body(CHAT, min_tokens=5, max_tokens=5))[0] == 200
    assert post(CHAT, body(CHAT, min_tokens=None, stop_token_ids=None))[0] == 200


# --- the bundled models behind the same routes


@pytest.fixture(scope="module")
def runtime() -> Any:
    with Runtime.open(config()) as opened:
        yield opened


@pytest.fixture(scope="module")
def defined(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same target, whose <|im_start|> is a user-defined token: text, not control."""
    from gguf import GGUFReader

    path: Path = tmp_path_factory.mktemp("stops") / "target.gguf"
    path.write_bytes(TARGET.read_bytes())
    field = GGUFReader(path, "r+").fields["tokenizer.ggml.token_type"]
    field.parts[field.data[4094]][0] = 4
    with Runtime.open(config(target=path, draft=None)) as opened:
        yield opened


@asynccontextmanager
async def serving(opened: Runtime) -> AsyncIterator[ClientSession]:
    runner = make_runner(make_app(opened, ServerConfig(port=0)))
    await runner.setup()
    try:
        where = ServerConfig(port=0)
        await listen(runner, where)
        async with ClientSession(base_url(runner, where)) as session:
            yield session
    finally:
        await runner.cleanup()


def ask(opened: Runtime, **members: Any) -> dict[str, Any]:
    """One native answer, asked for whole and as a stream, which must agree."""
    asked = {
        "prompt": f"{MARK}user\nName three colours.<|im_end|>\n{MARK}assistant\n",
        "n_predict": 40,
        "temperature": 0,
        **members,
    }

    async def both() -> dict[str, Any]:
        async with serving(opened) as session:
            async with session.post("/completion", json=asked) as reply:
                assert reply.status == 200, await reply.text()
                whole: dict[str, Any] = await reply.json()
            async with session.post("/completion", json={**asked, "stream": True}) as reply:
                pieces = events(await reply.read())
        assert "".join(piece["content"] for piece in pieces) == whole["content"]
        last = pieces[-1]
        assert all(
            last[name] == whole[name] for name in ("stop_type", "stopping_word", "tokens_predicted", "truncated")
        )
        return whole

    return asyncio.run(both())


FIXED = {"policy": "fixed", "n_max": 12, "p_min": 0}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_control_token_as_a_stop_string_or_an_id_ends_the_answer(runtime: Runtime, temperature: float) -> None:
    wanted = {"logit_bias": [[4094, 100]], "temperature": temperature, "seed": 4}
    by_name = ask(runtime, stop=[MARK], **wanted)
    assert (by_name["content"], by_name["stop_type"], by_name["stopping_word"]) == ("", "word", MARK)
    by_id = ask(runtime, stop_token_ids=[4094], **wanted)
    assert (by_id["content"], by_id["stop_type"], by_id["stopping_word"]) == ("", "word", MARK)
    free = ask(runtime, **wanted)
    assert (free["stop_type"], free["stopping_word"], free["tokens_predicted"]) == ("limit", "", 40)


def test_the_end_of_turn_as_a_stop_string_where_ends_are_ignored(runtime: Runtime) -> None:
    plain = ask(runtime)
    assert (plain["stop_type"], plain["stopping_word"]) == ("eos", "")
    ignored = ask(runtime, ignore_eos=True)
    assert (ignored["stop_type"], ignored["tokens_predicted"]) == ("limit", 40)
    named = ask(runtime, ignore_eos=True, stop=["<|im_end|>"])
    assert (named["content"], named["stop_type"], named["stopping_word"]) == (plain["content"], "word", "<|im_end|>")
    told = ask(runtime, stop=["<|im_end|>"])
    assert (told["content"], told["stop_type"], told["stopping_word"]) == (plain["content"], "eos", "<|im_end|>")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "fields",
    [
        {"min_tokens": 30},
        {"min_tokens": 12, "stop": [",", " and"]},
        {"stop": ["e"], "min_tokens": 3, "include_stop_str_in_output": True},
        {"stop_token_ids": list(range(300, 900))},
        {"ignore_eos": True, "stop": ["<|im_end|>\n"]},
        {"logit_bias": [[4094, 8]], "stop": [f".{MARK}", f",{MARK}"]},
    ],
)
def test_drafted_equals_plain_on_the_bundled_models(
    runtime: Runtime, fields: dict[str, Any], temperature: float
) -> None:
    for seed in range(3):
        asked = {"temperature": temperature, "seed": seed, "return_tokens": True, **fields}
        plain = ask(runtime, speculative={"enabled": False}, **asked)
        drafted = ask(runtime, speculative=FIXED, **asked)
        assert drafted["tokens"] == plain["tokens"]
        assert drafted["content"] == plain["content"]
        assert (drafted["stop_type"], drafted["stopping_word"]) == (plain["stop_type"], plain["stopping_word"])
        assert MARK not in plain["content"]
        if plain["stop_type"] != "limit":
            assert plain["tokens_predicted"] > fields.get("min_tokens", 0)


def test_a_user_defined_token_is_text_and_stops_the_answer_by_its_name_or_id(defined: Runtime) -> None:
    wanted = {"logit_bias": [[4094, 100]], "n_predict": 3}
    assert ask(defined, **wanted)["content"] == 3 * MARK
    by_name = ask(defined, stop=[f"t|>{MARK}"], **wanted)
    assert (by_name["content"], by_name["stopping_word"]) == ("<|im_star", f"t|>{MARK}")
    by_id = ask(defined, stop_token_ids=[4094], **wanted)
    assert (by_id["content"], by_id["stop_type"], by_id["stopping_word"]) == ("", "word", MARK)
    kept = ask(defined, stop_token_ids=[4094], include_stop_str_in_output=True, **wanted)
    assert (kept["content"], kept["stopping_word"]) == (MARK, MARK)
