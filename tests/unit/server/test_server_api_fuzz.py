"""Changed and torn bodies for the Responses API, Anthropic's and Ollama's: each answer is one that is documented."""

from __future__ import annotations

import io
import os
import random
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession
from kit.api_kit import CALL, THOUGHT, saying
from kit.server_kit import with_server
from yarl import URL

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import fuzz  # noqa: E402
import fuzz_apis  # noqa: E402
import fuzz_cases  # noqa: E402

N_CASES = int(os.environ.get("UAD_FUZZ_CASES", "150"))


def cases(seed: int) -> list[fuzz_cases.Case]:
    draw = random.Random(seed)
    found: list[fuzz_cases.Case] = []
    while len(found) < N_CASES:
        case = fuzz_cases.body_case(draw, 256)
        found += [case] if case.path in fuzz_apis.PATHS else []
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_no_body_brings_an_undocumented_answer(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def test(session: ClientSession) -> tuple[dict[bytes, str], set[int]]:
        wrong: dict[bytes, str] = {}
        statuses = set()
        for case in cases(seed):
            url = URL(str(session._base_url).rstrip("/") + case.path, encoded=True)
            headers = {"Content-Type": "application/json"}
            async with session.request(case.method, url, data=io.BytesIO(case.body), headers=headers) as answer:
                data = await answer.read()
                statuses.add(answer.status)
                if why := fuzz._judged(case, answer.status, answer.headers, data):
                    wrong[case.body[:300]] = why
        return wrong, statuses

    wrong, statuses = with_server(test, saying(f"{THOUGHT}I look.\n{CALL}", step=50))
    assert wrong == {}
    assert {200, 400} <= statuses
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
