"""The page's files as they are sent: who may have them, what browsers are told, and what the live stream says."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CONFIG, events, get, with_server
from kit.source_imports import ROOT

from uad.base.config import ServerConfig
from uad.base.events import CacheCounts, DrafterView, EngineView, Totals
from uad.base.stats import DrafterStats
from uad.base.types import Origin, SpecPolicy, SpeculativeParams

VENDOR = ROOT / "uad/http/edge/page/vendor"
LOCKED = ServerConfig(port=0, api_keys=("k",), api_prefix="/llm")
OFF = ServerConfig(port=0, ui=False, api_keys=("k",))


def test_the_page_needs_no_key_and_what_it_asks_does() -> None:
    paths = ("/llm/", "/llm/page/app.js", "/llm/page/style.css", "/llm/live", "/llm/v1/models", "/llm/page/none.js")
    assert [get(path, FakeRuntime(), LOCKED)[0] for path in paths] == [200, 200, 200, 401, 401, 404]


def test_without_the_page_there_is_none() -> None:
    without = ServerConfig(port=0, ui=False)
    assert get("/page/app.js", FakeRuntime(), without)[0] == 404
    # Ollama's clients ask there whether a server runs
    assert get("/", FakeRuntime(), without) == (200, "Ollama is running")
    assert [get(path, FakeRuntime(), OFF)[0] for path in ("/", "/page/app.js")] == [401, 401]


def test_browsers_are_told_to_run_nothing_else_and_to_ask_whether_it_is_new() -> None:
    async def test(session: ClientSession) -> None:
        async with session.get("/") as first:
            assert "default-src 'none'" in first.headers["Content-Security-Policy"]
            assert "unsafe" not in first.headers["Content-Security-Policy"]
            assert first.headers["X-Content-Type-Options"] == "nosniff"
        async with session.get("/", headers={"If-None-Match": first.headers["ETag"]}) as again:
            assert (again.status, await again.read()) == (304, b"")

    with_server(test)


def test_libraries_are_kept_by_browsers_and_lie_below_their_versions() -> None:
    async def test(session: ClientSession) -> None:
        for package in json.loads((VENDOR / "vendored.json").read_text("utf-8")):
            for name in package["files"]:
                path = f"/page/vendor/{package['name']}-{package['version']}/{name}"
                async with session.get(path) as answer:
                    assert answer.status == (404 if "LICENSE" in name else 200), path
                    if answer.status == 200:
                        assert "immutable" in answer.headers["Cache-Control"]
                        assert answer.content_type in ("text/javascript", "text/css", "font/woff2")

    with_server(test)


def look(runtime: FakeRuntime, n: int = 1, config: ServerConfig = CONFIG, query: str = "?every=0.2") -> list[Any]:
    """The first n events of the live stream."""

    async def test(session: ClientSession) -> list[Any]:
        async with session.get(f"/live{query}") as answer:
            assert answer.status == 200, await answer.text()
            frames = [await answer.content.readuntil(b"\n\n") for _ in range(n)]
            return events(b"".join(frames))

    return with_server(test, runtime, config)


def test_the_live_stream_goes_on_and_says_what_the_engine_does() -> None:
    view = EngineView(7, 3, 9, (1.0, 1.5), ((0, 1.0),), (1, 2), (DrafterView(Origin.MODEL, 0.5, 0.25),))
    first, second = look(FakeRuntime(seen=view), 2)
    assert second["time"] > first["time"]
    assert (first["tokens"], first["rounds"], first["depth"], first["curve"]) == (7, 3, 9, [1.0, 1.5])
    assert (first["plain"], first["lengths"], first["policy"]) == ([[0, 1.0]], [1, 2], "auto")
    model, suffix = first["drafters"]
    assert (model["type"], model["saves"], model["costs"]) == ("draft-simple", 0.5, 0.25)
    assert (suffix["type"], suffix["saves"]) == ("suffix", None)
    assert [slot["id"] for slot in first["slots"]] == [0, 1]


def test_a_drafter_that_the_fixed_policy_leaves_out_is_not_called_on() -> None:
    fixed = SpeculativeParams(policy=SpecPolicy.FIXED)
    drafting = replace(FakeRuntime().config.drafting, defaults=fixed, weighed=(Origin.SUFFIX,))
    (event,) = look(FakeRuntime(config=replace(FakeRuntime().config, drafting=drafting)))
    assert event["policy"] == "fixed"
    assert [(one["type"], one["asked"]) for one in event["drafters"]] == [("draft-simple", True), ("suffix", False)]


def test_the_live_stream_says_what_came_from_the_prompt_cache() -> None:
    fake = FakeRuntime()
    fake._totals = Totals(cache=CacheCounts(n_bytes=3, n_restored=5, n_from_disk=1, saved_seconds=7.5, n_disk_bytes=9))
    (event,) = look(fake)
    assert event["cache"] == {"memory": 4, "disk": 1, "memory_bytes": 3, "disk_bytes": 9, "saved_ms": 7500.0}


def test_it_tells_nothing_of_slots_where_these_are_off() -> None:
    assert look(FakeRuntime(), config=ServerConfig(port=0, slots=False))[0]["slots"] is None


def test_an_engine_that_does_not_answer_is_told_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uad.http.server.live._PATIENCE_S", 0.01)
    silent = FakeRuntime()
    silent.look = lambda tell: None  # type: ignore[method-assign]
    assert look(silent)[0]["tokens"] == 0


@pytest.mark.parametrize("every", ["0.1", "61", "x", "nan"])
def test_an_interval_that_makes_no_sense_is_refused(every: str) -> None:
    status, answer = get(f"/live?every={every}")
    assert (status, answer["error"]["param"]) == (400, "every")


def test_only_so_many_look_and_who_leaves_makes_room() -> None:
    async def test(session: ClientSession) -> None:
        opened = [await session.get("/live") for _ in range(16)]
        async with session.get("/live") as refused:
            assert refused.status == 503
            assert "live views" in json.loads(await refused.text())["error"]["message"]
        for one in opened:
            one.close()
        for _ in range(100):
            async with session.get("/live?every=0.2") as again:
                if again.status == 200:
                    return
            await asyncio.sleep(0.02)
        raise AssertionError("a place stays taken")

    with_server(test)


def drafted() -> FakeRuntime:
    """One whose draft model had ids accepted."""
    runtime = FakeRuntime()
    model = DrafterStats(Origin.MODEL, n_drafts=6, n_accepted=9, accepted=(1, 2, 2, 1))
    runtime.drafters = lambda: (model, DrafterStats(Origin.SUFFIX))  # type: ignore[method-assign]
    return runtime


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    names = set(re.findall(r"\b(?:llamacpp|uad):\w+", (ROOT / "docs/grafana-dashboard.json").read_text("utf-8")))
    _, text = get("/metrics", drafted(), ServerConfig(port=0, metrics=True))
    assert len(names) > 10
    assert names - set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == set()


def test_accepted_tokens_are_counted_by_position_under_the_name_of_llama_server() -> None:
    _, text = get("/metrics", drafted(), ServerConfig(port=0, metrics=True))
    found = re.findall(r'per_pos_total{position="(\d)"} (\S+)', text)
    assert found == [("0", "5.0"), ("1", "3.0"), ("2", "1.0")]
