"""The first promise under constraints on the bundled pair: drafted ids equal plain ids, and answers are what was asked
for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.grammar_kit import choice, grammar, regex, schema
from kit.models import DRAFTS, chat_prompts, chat_requests, config, finish, quantized

from uad.base.types import Constraint, Finish, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.runtime.runtime import Runtime

pytestmark = pytest.mark.model
PROMPTS = chat_prompts(4)
ITEM = {
    "type": "object",
    "properties": {
        "river": {"type": "integer", "maximum": 99},
        "stone": {"enum": ["red", "green"]},
        "text": {"type": "string", "maxLength": 9},
    },
    "required": ["river", "stone", "text"],
    "additionalProperties": False,
}


def is_json(text: str) -> bool:
    json.loads(text)
    return True


CONSTRAINTS: dict[str, tuple[Constraint, Callable[[str], object]]] = {
    "schema": (schema(ITEM), is_json),
    "GBNF": (grammar('root ::= "(" root ")" | [a-z]{1,9}'), lambda text: re.fullmatch(r"\(*[a-z]{1,9}\)*", text)),
    "regex": (regex(r"(\w+ ){2,4}end"), lambda text: text.endswith(" end")),
    "choice": (choice("river and stone", "river or stone"), lambda text: text.startswith("river")),
    "trigger": (schema({"const": [1, 2]}, triggers=(" the", "a")), lambda text: True),
}


PLAIN: dict[float, dict[str, list[list[int]]]] = {}


def request(constraint: Constraint, temperature: float, speculative: SpeculativeParams) -> Request:
    return Request(
        (), SamplingParams(temperature=temperature, seed=3), speculative, max_tokens=40, constraint=constraint
    )


def plain(target: Path, temperature: float) -> dict[str, list[list[int]]]:
    """One sequence alone, no draft loaded."""
    if temperature not in PLAIN:
        off = SpeculativeParams(enabled=False)
        with Runtime.open(config(target, None)) as runtime:
            PLAIN[temperature] = {
                name: [
                    one.ids
                    for one in finish(runtime, chat_requests(runtime, PROMPTS, request(constraint, temperature, off)))
                ]
                for name, (constraint, _) in CONSTRAINTS.items()
            }
    return PLAIN[temperature]


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafted_equals_plain(temperature: float, slots: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = quantized("q8_0", _folder(tmp_path_factory))
    expected, n_forced = plain(target, temperature), 0
    with Runtime.open(config(target, DRAFTS["zephyr"], slots)) as runtime:
        for name, (constraint, judge) in CONSTRAINTS.items():
            policy = SpecPolicy.AUTO if name == "choice" else SpecPolicy.FIXED
            asked = request(constraint, temperature, SpeculativeParams(policy=policy, n_max=8, p_min=0.3))
            drafted = finish(runtime, chat_requests(runtime, PROMPTS, asked))
            assert [one.ids for one in drafted] == expected[name], name
            ended = [one.text for one in drafted if one.done.finish is Finish.STOP]
            assert all(judge(text) for text in ended), (name, ended)
            by = [one.done.timings.draft.by.get(Origin.GRAMMAR) for one in drafted]
            n_forced += sum(one.n_accepted for one in by if one is not None)
    assert n_forced > 30


def _folder(factory: pytest.TempPathFactory) -> Path:
    """One for all tests of this run."""
    folder = factory.getbasetemp() / "targets"
    folder.mkdir(exist_ok=True)
    return folder
