"""Constrained answers of a real server with the bundled pair, asked for by the openai package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from kit.models import DRAFTS, TARGET
from kit.process import Server, uad
from pydantic import BaseModel

pytestmark = pytest.mark.model
PROMPT = [{"role": "user", "content": "Write this as JSON: river is 12; stone is red; cart is true."}]


class Item(BaseModel):
    river: int
    stone: Literal["red", "green"]
    cart: bool
    tags: list[Literal["a", "b"]]


SCHEMA = {**Item.model_json_schema(), "additionalProperties": False}
SCHEMA["properties"]["tags"]["maxItems"] = 3
FORMAT = {"type": "json_schema", "json_schema": {"name": "item", "strict": True, "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "log"
    with Server(
        log, ["-m", str(TARGET), "-md", str(DRAFTS["zephyr"]), "-np", "2", "-c", "4096", "--spec-policy", "fixed"]
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=240)


def ask(client: openai.OpenAI, **fields):
    return client.chat.completions.create(
        model="any", messages=PROMPT, **{"temperature": 0, "max_tokens": 200, **fields}
    )


def test_a_schema_streamed_and_whole(client: openai.OpenAI) -> None:
    whole = ask(client, response_format=FORMAT)
    streamed = "".join(
        chunk.choices[0].delta.content or ""
        for chunk in ask(client, response_format=FORMAT, stream=True)
        if chunk.choices
    )
    assert streamed == whole.choices[0].message.content
    assert Item.model_validate_json(streamed)
    assert whole.choices[0].finish_reason == "stop"
    by = whole.uad["drafters"]["grammar"]
    assert 0 < by["draft_n_accepted"] <= by["draft_n"]  # blanks are guesses


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_drafts_change_nothing(client: openai.OpenAI, temperature: float) -> None:
    drafts: tuple[dict, ...] = ({"enabled": False}, {"types": "draft-simple"}, {"policy": "fixed"}, {"policy": "auto"})
    answers = [
        ask(client, response_format=FORMAT, temperature=temperature, seed=5, extra_body={"speculative": one})
        for one in drafts
    ]
    assert len({answer.choices[0].message.content for answer in answers}) == 1


def test_parse_with_pydantic(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="any", messages=PROMPT, response_format=Item, temperature=0, max_tokens=300
    )
    assert isinstance(answer.choices[0].message.parsed, Item)


def test_other_kinds(client: openai.OpenAI) -> None:
    def text(**body: object) -> str:
        return ask(client, extra_body=body).choices[0].message.content

    assert text(guided_choice=["river", "stone"]) in ("river", "stone")
    assert text(guided_regex="[ab]{3}") in {a + b + c for a in "ab" for b in "ab" for c in "ab"}
    assert text(grammar='root ::= "a"{5,5}') == "aaaaa"
    assert json.loads(text(json_schema={"const": 42})) == 42


def test_what_cannot_be_compiled_is_400(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, extra_body={"json_schema": {"properties": {"a": {"type": "foo"}}}})
    assert "(at #/properties/a)" in str(caught.value)


def test_a_default_for_all_requests(tmp_path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"const": [1, 2]}', encoding="utf-8")
    done = uad("generate", "-m", str(TARGET), "-c", "512", "-jf", str(file), "-p", "hello", "--no-chat")
    assert json.loads(done.stdout) == [1, 2], done.stderr
    wrong = uad("generate", "-m", str(TARGET), "-j", '{"type": "foo"}', "-p", "hello")
    assert wrong.returncode == 2
    assert "Invalid type: foo" in wrong.stderr
