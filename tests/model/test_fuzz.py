"""scripts/fuzz.py: what it sends is a function of the seed, patched models load, and bad answers are told from good
ones.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from kit.models import TARGET

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import fuzz  # noqa: E402
import fuzz_cases  # noqa: E402
import fuzz_setup  # noqa: E402

from uad.llama.vocab import load_vocab  # noqa: E402


def cases(seed: int) -> list[fuzz_cases.Case]:
    draw = random.Random(seed)
    return [make(draw, 512) for make in (fuzz_cases.text_case, fuzz_cases.body_case) for _ in range(40)]


def test_a_seed_says_all_that_is_sent() -> None:
    assert cases(3) == cases(3) != cases(4)
    assert fuzz_setup.Setup.of(3, 5) == fuzz_setup.Setup.of(3, 5)


def test_every_pre_tokenizer_has_its_turn_and_some_drafters_fail() -> None:
    setups = [fuzz_setup.Setup.of(1, number) for number in range(3 * len(fuzz_setup.PRES))]
    tried = {pre for one in setups for pre in (one.target_pre, one.draft_pre)}
    assert len(tried) > 0.9 * len(fuzz_setup.PRES)
    assert {one.fail.split(":")[2] for one in setups if one.fail} == {"drafters", "context"}


@pytest.mark.parametrize("pre", ["bloom", "gpt3-finnish", "default", "granite-embed-multi-97m"])
def test_a_patched_model_loads_with_the_other_pre_tokenizer(pre: str, tmp_path: Path) -> None:
    patched = fuzz_setup.with_pre(TARGET, pre, tmp_path / "patched.gguf")
    assert (patched.stat().st_size - TARGET.stat().st_size) % 32 == 0
    text = "It's  1234567 o'clock;\n\n  naïve => x += 1".encode()
    assert load_vocab(patched).tokenize(text) == load_vocab(TARGET, pre=pre).tokenize(text)


def judged(status: int, body: object, kind: str = "application/json", **headers: str) -> str:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return fuzz._judged(fuzz_cases.Case("POST", "/v1/completions"), status, {"Content-Type": kind, **headers}, data)


def test_bad_answers_are_found_and_good_ones_pass() -> None:
    def error(code: int) -> dict[str, object]:
        return {"error": {"code": code, "message": "no", "type": "x", "param": None}}

    assert judged(200, {}) == judged(400, error(400)) == judged(501, error(501)) == ""
    assert judged(503, error(503), **{"Retry-After": "1"}) == ""
    assert judged(500, error(500))
    assert judged(503, error(503))
    assert judged(400, error(404))
    assert judged(400, {"detail": "no"})
    assert judged(200, b"<html>")
    assert judged(200, b"Traceback (most recent call last):")
    assert judged(200, b"data: {}\n\ndata: [DONE]\n\n", "text/event-stream") == ""
    assert judged(200, b"data: {}\n\n", "text/event-stream")
    assert judged(200, b'data: {"error": {"code": 500}}\n\n', "text/event-stream")


def test_bad_answers_of_other_apis_are_found_and_good_ones_pass() -> None:
    def streamed(path: str, *kinds: str) -> str:
        data = "".join(f'event: {kind}\ndata: {{"type": "{kind}"}}\n\n' for kind in kinds).encode()
        return fuzz._judged(fuzz_cases.Case("POST", path), 200, {"Content-Type": "text/event-stream"}, data)

    def refused(path: str, body: object) -> str:
        data = json.dumps(body).encode()
        return fuzz._judged(fuzz_cases.Case("POST", path), 400, {"Content-Type": "application/json"}, data)

    assert streamed("/v1/responses", "response.created", "response.completed") == ""
    assert streamed("/v1/responses", "response.created")
    assert streamed("/v1/messages", "message_start", "message_stop") == ""
    assert streamed("/v1/messages", "message_start", "error")
    error = {"type": "invalid_request_error", "message": "no"}
    assert refused("/v1/messages", {"type": "error", "error": error, "request_id": "req_1"}) == ""
    assert refused("/v1/messages", {"error": {**error, "code": 400, "param": None}})
    assert refused("/v1/responses", {"error": {**error, "code": 400, "param": None}}) == ""


def test_smaller_cases_are_smaller() -> None:
    case = fuzz_cases.Case("POST", "/x", json.dumps({"a": "xxxx", "b": [1, 2, {"c": "yy"}]}).encode())
    less = list(fuzz_cases.smaller(case))
    assert less
    assert all(len(one.body) < len(case.body) for one in less)
    assert all(len(one.body) < 5 for one in fuzz_cases.smaller(fuzz_cases.Case("POST", "/x", b"[[[[[")))
