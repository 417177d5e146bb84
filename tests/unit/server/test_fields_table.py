"""The table of request fields, and what is made from it: the documentation, the settings in answers, random cases."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from kit.server_kit import CHAT, HELLO, post
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

import fuzz_cases
import http_fields
from http_fields import Row, all_rows, drawn

from uad.http.requests.fields import ChatBody, CompletionBody, NativeBody, checked

BODIES: dict[type[BaseModel], dict[str, object]] = {
    NativeBody: {"prompt": "a"},
    CompletionBody: {"prompt": "a"},
    ChatBody: {"messages": HELLO},
}
ROWS = {row.name: row for kind in http_fields.GENERATING for row in all_rows()[kind]}


def test_the_documentation_has_the_table() -> None:
    page = http_fields.PAGE.read_text(encoding="utf-8")
    assert page == http_fields.written(page), "run python scripts/http_fields.py"


def test_every_field_says_what_it_does() -> None:
    assert [row.name for rows in all_rows().values() for row in rows if not row.says] == []


def test_an_answer_repeats_the_fields_that_the_table_says_and_no_others() -> None:
    status, answer = post("/completion", {"prompt": "a"})
    assert status == 200
    _, chat = post(CHAT, {"messages": HELLO, "verbose": True})
    told = set(answer["generation_settings"])
    assert told == set(chat["__verbose"]["generation_settings"])
    rows = {row.name for row in ROWS.values() if row.is_echoed}
    of_samplers = {name for name in told if name in http_fields._OF_SAMPLERS}
    assert rows == told - of_samplers - {"n_predict"}


def bodies_with(row: Row) -> list[type[BaseModel]]:
    first = row.name.partition(".")[0]
    return [kind for kind in BODIES if first in kind.model_fields]


TYPED = {name for name, row in ROWS.items() if row.schema.get("type") and not row.is_required}


@pytest.mark.parametrize("name", sorted(TYPED - set(fuzz_cases.SPECIAL)))
def test_a_body_takes_the_values_that_are_drawn_for_a_field(name: str) -> None:
    draw, row = random.Random(name), ROWS[name]
    kinds = bodies_with(row)
    assert kinds
    for kind in kinds:
        for _ in range(9):
            checked(kind, {**BODIES[kind], name: drawn(draw, row.schema)})


def test_cases_of_the_fuzzer_have_every_field_with_a_type() -> None:
    assert TYPED - {"stream", "max_tokens"} <= set(fuzz_cases.FIELDS)
