"""The script that goes through all fields of requests beside llama-server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import ClientSession
from kit.server_kit import with_server

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

import fields_beside
import http_fields
from fields_beside import Case, Reply, cases, differences, rule_of, values_of

from uad.base.common.samplers import SETTINGS


def test_every_field_is_tried_at_its_bounds_past_them_and_with_other_types() -> None:
    found = list(cases())
    keys = [json.dumps([case.path, case.name, case.value]) for case in found]
    assert len(keys) == len(set(keys)) > 1000
    values = {name: [case.value for case in found if case.name == name] for name in (case.name for case in found)}
    for name, one in SETTINGS.items():
        assert {one.low, one.high, one.low - 1, one.high + 1} <= {v for v in values[name] if type(v) in (int, float)}
    for name, its in values.items():
        assert None in its, name
        assert "5" in its, name
    assert {row.name for own in http_fields.all_rows().values() for row in own} <= set(values)


def test_values_of_texts_lists_and_choices() -> None:
    assert list(values_of({"type": "string", "maxLength": 2})) == ["xx", "xxx"]
    assert list(values_of({"type": "array", "maxItems": 1})) == [["x"], ["x", "x"]]
    assert list(values_of({"anyOf": [{"enum": ["a"]}, {"type": "object"}]})) == ["a"]


def test_a_case_stands_where_its_field_belongs() -> None:
    inner = Case("/v1/completions", "stream_options.include_usage", True, {"prompt": "a"})
    assert inner.body == {"prompt": "a", "stream_options": {"include_usage": True}}
    length = Case("/completion", "max_tokens", -1, {"prompt": "a", "n_predict": 4})
    assert length.body == {"prompt": "a", "max_tokens": -1, "stream": True}


def test_what_differs_is_said() -> None:
    assert differences(Reply(200, 0.1, "a"), Reply(200, 0.10000000149, "a")) == []
    assert differences(Reply(400, why="no"), Reply(500)) == []
    assert differences(Reply(400, why="no"), Reply(200)) == ["status 400 beside 200: no"]
    assert differences(Reply(200, 1, "a"), Reply(200, 2, "b")) == ["setting 1 beside 2", "text 'a' beside 'b'"]
    assert differences(Reply(200, None, "a"), Reply(200, 2, None)) == []


@pytest.mark.parametrize(
    ("name", "value", "mine", "theirs", "words"),
    [
        ("min_tokens", -1, Reply(400), Reply(200), "does not know the field"),
        ("stop", 1, Reply(400, why="stop: must be a string"), Reply(200), "another type"),
        ("stop", "", Reply(200, [], "a"), Reply(200, [""], ""), None),
        ("top_k", 2**40, Reply(200, 2**31 - 1), Reply(200, 0), "wraps"),
        ("dry_base", 1001.0, Reply(200, 1000.0), Reply(200, 1001.0), "nearest bound"),
        ("samplers", [], Reply(200, [], "a"), Reply(200, [], "b"), "at random"),
        ("top_p", 0.5, Reply(200, 0.5, "a"), Reply(200, 0.5, "b"), None),
        ("top_p", 0.5, Reply(400), Reply(200), None),
    ],
)
def test_what_a_rule_explains(name: str, value: object, mine: Reply, theirs: Reply, words: str | None) -> None:
    rule = rule_of(Case("/completion", name, value, {}), mine, theirs)
    assert rule is None if words is None else words in str(rule)


def test_a_server_beside_itself_differs_in_nothing_and_refusals_are_told() -> None:
    async def test(session: ClientSession) -> tuple[list[str], list[str], Counter[str]]:
        url = str(session._base_url)
        beside: list[str] = []
        alone: list[str] = []
        counted = await asyncio.to_thread(fields_beside.run, url, url, "top_k", beside.append)
        await asyncio.to_thread(fields_beside.run, url, None, "repeat_penalty", alone.append)
        return beside, alone, counted

    beside, alone, counted = with_server(test)
    assert beside == []
    assert list(counted) == ["cases"]
    assert counted["cases"] > 9
    assert any(line.startswith("/completion repeat_penalty -0.99: 400 repeat_penalty: ") for line in alone)
    assert not any("repeat_penalty 1001" in line for line in alone)


def test_a_server_that_does_not_answer_is_told() -> None:
    assert fields_beside.answer_of("http://127.0.0.1:9", Case("/tokenize", "content", "a", {})).status == 0
