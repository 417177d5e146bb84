"""What llama-server takes of a request is taken: numbers of any size, tokens that there are not, any slot."""

from __future__ import annotations

import math
from typing import Any

import pytest
from kit.fake_runtime import N_VOCAB, FakeRuntime
from kit.server_kit import CHAT, HELLO, post

from uad.base.common.samplers import SETTINGS
from uad.base.common.settings import INT32_MAX
from uad.base.config import Config
from uad.base.types import Request, SamplingParams
from uad.http.requests.fields import CompletionBody, NativeBody, checked
from uad.http.requests.left_out import leave_out

NATIVE, TEXT = "/completion", "/v1/completions"
HUGE = 10**400


def asked(path: str = NATIVE, fake: FakeRuntime | None = None, **members: Any) -> Request:
    fake = fake or FakeRuntime()
    question: dict[str, Any] = {"messages": HELLO} if path == CHAT else {"prompt": "ab"}
    status, answer = post(path, {**question, **members}, fake)
    assert status == 200, answer
    return fake.requests[-1]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (-1, None),
        (2**32 - 1, None),
        (2**64 - 1, None),
        (-5, 2**32 - 5),
        (-(2**32) - 1, None),
        (1.5, 1),
        (2**63, 2**63),
        (2**64 + 7, 7),
        (-0.5, 0),
        (HUGE, HUGE % 2**64),
    ],
)
@pytest.mark.parametrize("path", [NATIVE, CHAT])
def test_any_number_is_a_seed(path: str, seed: float, expected: int | None) -> None:
    assert asked(path, seed=seed).sampling.seed == expected


def test_answers_repeat_the_seed_as_it_is_kept() -> None:
    status, answer = post(NATIVE, {"prompt": "a", "seed": -5})
    assert (status, answer["generation_settings"]["seed"]) == (200, 4294967291)


CUT: dict[str, list[tuple[float, float]]] = {
    "top_k": [(2**40, INT32_MAX), (-2, -1), (1.9, 1), (-0.5, 0)],
    "top_p": [(2, 1.0), (-0.1, 0.0)],
    "min_p": [(-0.1, 0.0), (1.1, 1.0)],
    "typical_p": [(2, 1.0), (-1, 0.0)],
    "xtc_probability": [(-1, 0.0), (9, 1.0)],
    "temperature": [(-3, -1.0), (1e30, 1e9), (HUGE, 1e9)],
    "dynatemp_range": [(-1, 0.0)],
    "dynatemp_exponent": [(-2, -2.0)],
    "presence_penalty": [(1e9, 1000.0), (-1e9, -1000.0)],
    "top_n_sigma": [(-7, -1.0), (1e6, 1000.0)],
    "mirostat": [(7, 2), (-1, 0)],
    "adaptive_target": [(-9, -1.0), (2, 1.0)],
    "dry_multiplier": [(-1, -1.0)],
    "repeat_penalty": [(5000, 1000.0)],
    "repeat_last_n": [(2**40, INT32_MAX)],
    "min_keep": [(2**40, INT32_MAX), (2.5, 2)],
}


@pytest.mark.parametrize("name", CUT)
def test_a_number_out_of_bounds_is_the_nearest_one_within(name: str) -> None:
    for value, expected in CUT[name]:
        members: dict[str, Any] = {name: value}
        assert getattr(asked(**members).sampling, name) == expected


def test_a_sampler_refuses_only_what_llama_server_refuses_or_would_be_wrong() -> None:
    refused = {name: one.refused for name, one in SETTINGS.items() if one.refused != "nothing"}
    assert refused == {
        **dict.fromkeys(("repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "min_keep"), "below"),
        "repeat_penalty": "below",  # of 0 llama.cpp makes infinite logits
        "adaptive_decay": "both",
    }


def test_a_base_of_dry_below_1_is_the_servers_own() -> None:
    config = Config(target=FakeRuntime().config.target, sampling=SamplingParams(dry_base=2.5))
    assert asked(fake=FakeRuntime(config=config), dry_base=0.5).sampling.dry_base == 2.5
    assert asked(fake=FakeRuntime(config=config), dry_base=1).sampling.dry_base == 1.0


@pytest.mark.parametrize("name", ["max_tokens", "n_predict", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("value", "expected"), [(2**53 - 1, INT32_MAX), (HUGE, INT32_MAX), (2.5, 2), (-1.5, None), (0.5, 0)]
)
def test_a_length_of_any_size_is_taken(name: str, value: float, expected: int | None) -> None:
    members: dict[str, Any] = {name: value}
    assert asked(**members).max_tokens == expected


@pytest.mark.parametrize(
    ("path", "members", "expected"),
    [
        (NATIVE, {"n_probs": -1}, (False, 0)),
        (NATIVE, {"n_probs": 2.5}, (True, 2)),
        (NATIVE, {"logprobs": -1}, (False, 0)),
        (NATIVE, {"logprobs": True}, (True, 1)),
        (NATIVE, {"logprobs": False}, (False, 0)),
        (TEXT, {"logprobs": -1}, (False, 0)),
        (TEXT, {"logprobs": True}, (True, 1)),
        (TEXT, {"logprobs": False}, (False, 0)),
        (CHAT, {"n_probs": -1}, (False, 0)),
        (CHAT, {"logprobs": 5}, (True, 5)),
        (CHAT, {"logprobs": 0}, (False, 0)),
        (CHAT, {"logprobs": -2}, (False, 0)),
        (CHAT, {"logprobs": 5, "top_logprobs": 2}, (True, 2)),
        (CHAT, {"logprobs": True, "top_logprobs": 100}, (True, 100)),
        (CHAT, {"logprobs": True, "top_logprobs": -1}, (True, 0)),
    ],
)
def test_alternatives_as_llama_server_counts_them(path: str, members: Any, expected: tuple[bool, int]) -> None:
    found = asked(path, **members)
    assert (found.logprobs, found.n_probs) == expected


@pytest.mark.parametrize(("slot", "expected"), [(-1, -1), (0, 0), (2, 0), (3, 1), (-2, -1), (1.5, 1), (2**40, 1)])
def test_a_slot_past_the_last_is_counted_on_from_the_first(slot: float, expected: int) -> None:
    assert asked(id_slot=slot).slot == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"50256": -100, "97": 1}, ((97, 1.0),)),
        ({"-1": 1, str(N_VOCAB): 1, "9" * 30: 1}, ()),
        ({"97": "x", "98": True, "99": None, "100": 2}, ((100, 2.0),)),
        ([[97, 1], [98], [99, 1, 2], 5, "a", None, [100, 2]], ((97, 1.0), (100, 2.0))),
        ([[True, 1], [1.5, 1], [None, 1], [[97], 1], [HUGE, 1]], ()),
        ({"97": 1e99, "98": -1e99, "99": HUGE}, ((97, 1e6), (98, -1e6), (99, 1e6))),
        ([[97, False]], ((97, -math.inf),)),
    ],
)
def test_a_bias_of_no_token_is_left_out(value: Any, expected: Any) -> None:
    assert asked(logit_bias=value).sampling.logit_bias == expected


def test_what_is_left_out_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    leave_out.cache_clear()
    with caplog.at_level("WARNING", "uad.server"):
        for _ in range(2):
            asked(logit_bias={"50256": -100, "97": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "logit_bias: ('50256', -100) is left out: no token of this vocabulary with a number or false"
    ]


def test_a_stop_that_is_null_is_passed_over() -> None:
    assert asked(stop=["a", None, "b"]).stop == ("a", "b")


@pytest.mark.parametrize(
    ("members", "name", "expected"),
    [
        ({"sse_ping_interval": 1e9}, "sse_ping_interval", 86400.0),
        ({"speculative.n_max": 1000}, "n_max", 512),
        ({"speculative": {"p_min": 1.5}}, "p_min", 1.0),
        ({"speculative": {"p_min": -1}}, "p_min", 0.0),
        ({"n_indent": 2**40}, "n_indent", INT32_MAX),
        ({"t_max_predict_ms": 1e30}, "t_max_predict_ms", 2.0**63),
    ],
)
def test_what_changes_no_text_is_cut(members: Any, name: str, expected: float) -> None:
    for kind in (NativeBody, CompletionBody):
        body = checked(kind, {"prompt": "a", **members})
        assert getattr(body if hasattr(body, name) else body.speculative, name) == expected


@pytest.mark.parametrize("name", ["n_predict", "temperature", "seed", "top_k", "id_slot", "n_probs"])
@pytest.mark.parametrize("value", ["5", True, [], {}])
def test_what_is_no_number_is_refused(name: str, value: Any) -> None:
    status, answer = post(NATIVE, {"prompt": "a", name: value})
    assert (status, answer["error"]["param"]) == (400, name)
