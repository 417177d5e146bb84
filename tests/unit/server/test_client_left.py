"""Why a request was cancelled, as the log has it: the client left, or something else ended it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, HELLO, post, serving

ROUTES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    "/v1/messages": {"messages": HELLO, "max_tokens": 10**6},
    "/v1/responses": {"input": "hello"},
    "/completion": {"prompt": "hello"},
    "/api/chat": {"messages": HELLO, "model": "x"},
    "/v1beta/models/x:streamGenerateContent?alt=sse": {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", ROUTES)
def test_a_client_that_leaves_is_named(path: str, streams: bool) -> None:
    async def test() -> list[str]:
        fake = FakeRuntime(script=lambda _: b"x" * 10**6, step=1, pause=0.001)
        async with asyncio.timeout(120), serving(fake) as session:
            asking = asyncio.create_task(session.post(path, json={**ROUTES[path], "stream": streams}))
            while not fake.requests:
                await asyncio.sleep(0)
            if streams or "stream" in path:
                (await asking).close()
            asking.cancel()
            while not fake.reasons:
                await asyncio.sleep(0)
        return fake.reasons

    assert asyncio.run(test()) == ["client left"]


def test_a_request_that_something_else_ended_is_not_put_down_to_the_client() -> None:
    fake = FakeRuntime(n_ctx=20)
    fake.go.clear()
    assert post("/completion", {"prompt": ["x", "x" * 50]}, fake)[0] == 400
    assert len(fake.reasons) == 1
    assert "exceeds the available context" in fake.reasons[0]
