"""What every field of a request does, recorded: bodies with good values, wrong ones and further names, and what came of
each. `python tests/unit/server/test_request_fields.py` records anew, which only a change that is meant may need.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
from kit.fake_runtime import N_VOCAB, FakeRuntime
from kit.server_kit import CONFIG

from uad.base.token_ids import check_ids
from uad.base.types import FimTokens
from uad.http.apis.native import settings_json
from uad.http.apis.problems import problem_of
from uad.http.edge.json_in import parse_object
from uad.http.requests.fields import ChatBody, CompletionBody, InfillBody, NativeBody, checked
from uad.http.requests.job import Job, check_counts
from uad.http.requests.prepare import prepared
from uad.http.requests.prompt_ids import split_prompts

RECORDED = Path(__file__).with_name("request_fields.jsonl")
HELLO = [{"role": "user", "content": "hi"}]
LIMIT = 10
"""Sequences that a server takes."""
ROUTES: dict[str, tuple[type[NativeBody | CompletionBody | ChatBody], dict[str, Any]]] = {
    "native": (NativeBody, {"prompt": "ab"}),
    "completion": (CompletionBody, {"prompt": "ab"}),
    "chat": (ChatBody, {"messages": HELLO}),
    "infill": (InfillBody, {"input_prefix": "a", "input_suffix": "b"}),
}
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 0.5, -2, 21, 300, 2**31, 2**63, 1e308, "", "x", "none"),
    *([], ["a"], [1], [-1], [[1]], [True], {}, {"a": 1}, {"1": 5}, {"n_max": 3}, {"type": "x"}),
)
"""Some are good and some wrong, whichever the field is."""
GOOD: dict[str, tuple[Any, ...]] = {
    "logit_bias": ([["a", 1]], [[1, 2.5]], [["a", False]]),
    "lora": ([{"id": 0, "scale": 0.5}], [{"id": 9}]),
    "prediction": ({"type": "content", "content": "x"},),
    "stream_options": ({"include_usage": True}, {"include_usage": 1}),
    "speculative": ({"types": "suffix"}, {"policy": "fixed", "p_min": 0.2}, {"n_min": 3, "n_max": 1}, {"policy": "no"}),
    "samplers": ("kt", ["top_k", "temp"], ["temp"] * 300),
    "dry_sequence_breakers": ('["a"]', ["x"] * 65),
    "response_format": ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": {"type": "null"}}}),
    "structured_outputs": ({"regex": "a+"}, {"regex": "a+", "json": {}}),
    "tools": ([{"type": "function", "function": {"name": "f"}}], [{"type": "web"}]),
    "tool_choice": ("required", {"type": "function", "function": {"name": "f"}}),
    "reasoning_format": ("deepseek",),
    "input_extra": ([{"text": "a"}], [{"text": 1}]),
    "stop": (["x"] * 257, ["x" * 4097]),
    "stop_token_ids": ([1, 1, 2], [0] * 4097),
}


@pytest.fixture(scope="module")
def engine() -> FakeRuntime:
    return runtime()


def runtime() -> FakeRuntime:
    made = FakeRuntime(scales=(1.0, 0.5))
    made.info = replace(made.info, fim=FimTokens(256, 257, 258), eog={257: "</s>"})
    return made


def job_of(engine: FakeRuntime, route: str, members: dict[str, object]) -> Job:
    body = checked(ROUTES[route][0], members)
    prompts = [] if isinstance(body, ChatBody) else split_prompts(body.prompt)
    check_counts(body, len(prompts) or 1, LIMIT)
    job, _ = prepared(engine, body, prompts, [()] * (len(prompts) or 1), CONFIG)
    check_ids(job.requests[0], N_VOCAB)
    return job


def settings(engine: FakeRuntime, route: str, more: dict[str, Any]) -> dict[str, Any]:
    """What the answer to the smallest body of the route, with some more members, repeats of them."""
    job = job_of(engine, route, parse_object(json.dumps({**ROUTES[route][1], **more}).encode()))
    told = json.dumps(settings_json(job, job.requests[0], job.requests[0].sampling.seed))
    return dict(json.loads(told))


def outcome(engine: FakeRuntime, route: str, name: str, value: Any) -> str:
    """The settings that this member changes, or the error."""
    usual = settings(engine, route, {})
    try:
        told = settings(engine, route, {name: value})
    except Exception as error:
        return json.dumps(problem_of(error).body())
    assert list(told) == list(usual)
    return json.dumps({key: value for key, value in told.items() if value != usual[key]})


@pytest.mark.parametrize("route", ROUTES)
def test_a_field_does_what_it_did(engine: FakeRuntime, route: str) -> None:
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    own = [row for row in rows if row[0] == route]
    assert own
    for _, name, expected, values in own:
        assert {outcome(engine, route, name, value) for value in values} == {expected}, name


def test_the_settings_of_an_answer_keep_their_order(engine: FakeRuntime) -> None:
    assert list(settings(engine, "native", {}))[-18:] == [
        *("max_tokens", "n_predict", "min_tokens", "stop", "stop_token_ids", "include_stop_str_in_output", "stream"),
        *("n_probs", "post_sampling_probs", "timings_per_token", "n_indent", "t_max_predict_ms"),
        *("speculative.enabled", "speculative.n_max", "speculative.n_min", "speculative.p_min", "speculative.policy"),
        "speculative.types",
    ]


def record() -> None:
    """One line per outcome: route, name, what came of it, and the values that bring it. A name is recorded on the first
    route that has the field.
    """
    made = runtime()
    rows: dict[tuple[str, str, str], list[Any]] = {}
    seen: set[str] = set()
    for route, (kind, base) in ROUTES.items():
        names = [
            str(name)
            for field, info in kind.model_fields.items()
            for name in (field, *getattr(info.validation_alias, "choices", ()))
        ]
        for name in dict.fromkeys((*names, "speculative.n_max", "functions", "chat_template", "unknown")):
            if name not in seen and name not in base:
                seen.add(name)
                for value in (*VALUES, *GOOD.get(name, ())):
                    rows.setdefault((route, name, outcome(made, route, name, value)), []).append(value)
    lines = [json.dumps([*row, values]) + "\n" for row, values in rows.items()]
    RECORDED.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    record()
