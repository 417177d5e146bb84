"""Models that are unloaded while no request needs them: which routes load them again, which do not, and when they go.

The timer's seconds are asked for, not waited for: tests call `_due` where they are over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.fake_runtime import FakeRuntime
from kit.server_kit import HELLO, with_server

from uad.base.config import ServerConfig
from uad.base.errors import UnavailableError
from uad.base.events import SleepState
from uad.base.types import FimTokens
from uad.http.apis.ollama import kept_for
from uad.http.server.idle import IdleTimer

CONFIG = ServerConfig(port=0, alias="toy", metrics=True, sleep_idle_seconds=3600)
ASLEEP = SleepState(is_asleep=True)
TALK = {"messages": HELLO, "stream": False}


def asleep(**fields: Any) -> FakeRuntime:
    """Unloaded; without a timer of the server's that could do it again."""
    return FakeRuntime(sleep=ASLEEP, **fields)


def filling_in(fake: FakeRuntime) -> FakeRuntime:
    """The same, of a vocabulary that can fill in the middle."""
    fake.info = replace(fake.info, fim=FimTokens(256, 257, 258))
    return fake


async def turns(n: int = 20) -> None:
    """The loop does what is due."""
    for _ in range(n):
        await asyncio.sleep(0)


QUIET = (
    *("/health", "/v1/health", "/props", "/models", "/v1/models", "/v1/models/toy", "/metrics", "/slots"),
    *("/lora-adapters", "/api/tags", "/api/ps", "/api/version", "/"),
)


@pytest.mark.parametrize("path", QUIET)
def test_routes_about_the_server_answer_without_loading_the_models(path: str) -> None:
    fake = asleep()

    async def test(session: ClientSession) -> None:
        async with session.get(path) as answer:
            assert answer.status == 200

    with_server(test, fake, CONFIG)
    assert fake.sleep.is_asleep
    assert fake.sleep.n_wakes == 0


WAKING: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": TALK,
    "/v1/completions": {"prompt": "hello"},
    "/completion": {"prompt": "hello"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
    "/api/chat": TALK,
    "/api/generate": {"prompt": "hello", "stream": False},
    "/tokenize": {"content": "hello"},
    "/detokenize": {"tokens": [104]},
    "/apply-template": {"messages": HELLO},
    "/v1/chat/completions/input_tokens": {"messages": HELLO},
    "/v1/responses/input_tokens": {"input": "hello"},
    "/v1/messages/count_tokens": {"messages": HELLO},
}


@pytest.mark.parametrize("path", WAKING)
def test_what_needs_the_models_waits_until_they_are_loaded(path: str) -> None:
    fake = filling_in(asleep(loaded_again=Future()))

    async def test(session: ClientSession) -> int:
        asking = asyncio.create_task(session.post(path, json=WAKING[path]))
        while not fake.loaded_again._done_callbacks:
            await asyncio.sleep(0)
        assert not fake.requests
        assert not fake.threads, "nothing of the vocabulary is read before"
        fake.loaded_again.set_result(None)
        async with await asking as answer:
            await answer.read()
            return answer.status

    assert with_server(test, fake, CONFIG) == 200
    assert not fake.sleep.is_asleep


@pytest.mark.parametrize("path", WAKING)
def test_models_that_cannot_be_loaded_are_a_503_of_each_request_and_the_next_one_tries_again(path: str) -> None:
    fake = filling_in(asleep(loaded_again=Future()))
    fake.loaded_again.set_exception(UnavailableError("the models cannot be loaded again after sleep: toy.gguf is gone"))

    async def test(session: ClientSession) -> None:
        async with session.post(path, json=WAKING[path]) as answer:
            assert answer.status == 503
            assert "toy.gguf is gone" in await answer.text()
            assert answer.headers["x-should-retry"] == "false"
        fake.loaded_again = None
        async with session.post(path, json=WAKING[path]) as answer:
            assert answer.status != 503

    with_server(test, fake, CONFIG)


OUTSIDE, PICTURE = 259, [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "aGk="}}]}]
NAMED = {"type": "function", "function": {"name": "none"}}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": 3}),
    *(
        (path, {**WAKING[path], **more})
        for path in ("/v1/chat/completions", "/v1/completions", "/completion", "/v1/responses", "/v1/messages")
        for more in (
            {"stop_token_ids": [OUTSIDE]},
            {"allowed_token_ids": [OUTSIDE]},
            {"bad_words_ids": [[OUTSIDE]]},
            {"min_tokens": 9, "max_tokens": 3, "max_output_tokens": 3},
            {"return_origins": True},
            {"speculative": {"types": "draft-mtp"}},
            {"lora": [{"id": 9}]},
            {"prediction": {"type": "x"}},
            {"logit_bias": 3},
            {"dry_sequence_breakers": 3},
            {"guided_regex": "a", "grammar": "b"},
        )
    ),
    ("/v1/chat/completions", {"messages": HELLO, "tool_choice": NAMED}),
    ("/v1/chat/completions", {"messages": [*HELLO, *[{"role": "assistant", "content": "a"}] * 2]}),
    ("/v1/chat/completions", {"messages": HELLO, "n": 99999}),
    *((path, {"messages": PICTURE}) for path in ("/v1/chat/completions", "/apply-template")),
    ("/v1/chat/completions/input_tokens", {"messages": PICTURE}),
    ("/v1/messages/count_tokens", {"messages": [*HELLO, *[{"role": "assistant", "content": "a"}] * 2], "lora": 3}),
    *((path, {"prompt": [OUTSIDE]}) for path in ("/v1/completions", "/completion")),
    ("/completion", {"prompt": [1] * 5000}),
    ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": ["aGk="]}}),
    ("/v1/completions", {"prompt": "a", "suffix": "b"}),
    ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
    ("/tokenize", {"content": [OUTSIDE]}),
    ("/detokenize", {"tokens": [OUTSIDE]}),
    ("/api/chat", {**TALK, "keep_alive": "9m", "stop_token_ids": [OUTSIDE]}),
    ("/api/generate", {"prompt": "a", "raw": True, "keep_alive": "9m", "options": {"top_k": 1}, "lora": 3}),
]


@pytest.mark.parametrize(("path", "body"), REFUSED)
def test_a_request_that_is_refused_loads_nothing(path: str, body: dict[str, Any]) -> None:
    fake = asleep()

    async def test(session: ClientSession) -> None:
        async with session.post(path, json=body) as answer:
            assert answer.status == 400, await answer.text()

    with_server(test, fake, CONFIG)
    assert fake.sleep.n_wakes == 0


def test_a_request_that_is_refused_sets_no_time() -> None:
    async def test(session: ClientSession) -> list[str]:
        said = []
        for more in ({"keep_alive": "2h"}, {"keep_alive": -1, "stop_token_ids": [OUTSIDE]}):
            async with session.post("/api/chat", json={**TALK, **more}) as answer:
                said.append(str(answer.status))
            async with session.get("/api/ps") as answer:
                said.append((await answer.json())["models"][0]["expires_at"])
        return said

    first, at, second, after = with_server(test, FakeRuntime(), CONFIG)
    assert (first, second) == ("200", "400")
    between = datetime.fromisoformat(after) - datetime.fromisoformat(at)
    assert abs(between.total_seconds()) < 60


def test_a_slot_that_there_is_not_loads_nothing(tmp_path: Path) -> None:
    fake, config = asleep(), ServerConfig(port=0, slot_save_path=tmp_path)

    async def test(session: ClientSession) -> None:
        async with session.post("/slots/9?action=erase") as answer:
            assert answer.status == 400

    with_server(test, fake, config)
    assert fake.sleep.n_wakes == 0


def test_a_client_that_leaves_while_the_models_are_loaded_takes_nobody_with_it() -> None:
    fake = asleep(loaded_again=Future())

    async def test(session: ClientSession) -> int:
        leaving, staying = (asyncio.create_task(session.post("/v1/chat/completions", json=TALK)) for _ in range(2))
        while len(fake.loaded_again._done_callbacks) < 2:
            await asyncio.sleep(0)
        leaving.cancel()
        await turns()
        fake.loaded_again.set_result(None)
        async with await staying as answer:
            return answer.status

    assert with_server(test, fake, CONFIG) == 200


def test_props_metrics_and_the_live_view_say_it() -> None:
    fake = asleep()
    fake.sleep = SleepState(True, n_wakes=2, n_failed=1, asleep_s=12.5, loading_s=0.5)

    async def test(session: ClientSession) -> None:
        async with session.get("/props") as answer:
            assert (await answer.json())["is_sleeping"] is True
        async with session.get("/live") as answer:
            assert json.loads((await answer.content.readline()).removeprefix(b"data: "))["asleep"] is True
        async with session.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        assert {
            *("uad:wakes_total 2.0", "uad:wakes_failed_total 1.0"),
            *("uad:asleep_seconds_total 12.5", "uad:wake_seconds_total 0.5"),
        } <= set(lines)

    with_server(test, fake, CONFIG)


def test_metrics_are_the_same_before_sleep_and_in_it() -> None:
    async def test(session: ClientSession) -> None:
        async with session.get("/metrics") as answer:
            before = await answer.text()
        fake.fall_asleep()
        async with session.get("/metrics") as answer:
            assert await answer.text() == before

    fake = FakeRuntime()
    with_server(test, fake, CONFIG)


# --- the timer


@dataclass
class Engine:
    """What the timer asks for."""

    sleep: SleepState = field(default_factory=SleepState)
    n: int = 0
    falls: bool = True

    def fall_asleep(self) -> None:
        self.n += 1
        self.sleep = SleepState(is_asleep=self.falls)

    def wake(self) -> Future[None]:
        self.sleep = SleepState()
        done: Future[None] = Future()
        done.set_result(None)
        return done


def timed(test: Callable[[IdleTimer, Engine], Awaitable[None]], usual: float = 30.0, works: list[int] | None = None):
    async def run() -> None:
        engine = Engine()
        timer = IdleTimer(engine, usual, lambda: bool(works))
        timer.start()
        await test(timer, engine)
        timer.stop()

    asyncio.run(run())


def left(timer: IdleTimer) -> float | None:
    """Seconds until the timer is due, to the second."""
    if timer._timer is None:
        return None
    return round(timer._timer.when() - asyncio.get_running_loop().time())


def test_the_time_runs_from_the_start_and_from_the_end_of_the_last_request() -> None:
    async def test(timer: IdleTimer, engine: Engine) -> None:
        assert left(timer) == 30
        async with timer.awake():
            assert left(timer) is None
            async with timer.awake():
                pass
            assert left(timer) is None, "one still needs the models"
        assert left(timer) == 30
        timer._due()
        assert engine.n == 1

    timed(test)


def test_without_a_time_nothing_is_unloaded() -> None:
    async def test(timer: IdleTimer, engine: Engine) -> None:
        async with timer.awake():
            pass
        assert left(timer) is None
        assert timer.expires_at is None

    timed(test, inf)


def test_threads_that_still_work_for_somebody_who_left_are_waited_for() -> None:
    works = [1]

    async def test(timer: IdleTimer, engine: Engine) -> None:
        timer._due()
        assert engine.n == 0
        assert left(timer) == 0
        works.clear()
        timer._due()
        assert engine.n == 1

    timed(test, works=works)


def test_models_that_were_needed_after_all_are_asked_to_go_again() -> None:
    async def test(timer: IdleTimer, engine: Engine) -> None:
        engine.falls = False
        timer._due()
        assert left(timer) == 30
        timer._due()
        assert engine.n == 2

    timed(test)


def test_a_wish_of_a_request_holds_until_the_models_are_loaded_again() -> None:
    async def test(timer: IdleTimer, engine: Engine) -> None:
        async with timer.awake():
            timer.keep(5.0)
            timer.keep(None)
        assert left(timer) == 5
        async with timer.awake():
            pass
        assert left(timer) == 5
        timer._due()
        assert engine.sleep.is_asleep
        async with timer.awake():
            assert not engine.sleep.is_asleep
        assert left(timer) == 30

    timed(test)


@pytest.mark.parametrize("seconds", [1e99, 999999999999.0])
def test_more_than_a_century_is_for_ever(seconds: float) -> None:
    async def test(timer: IdleTimer, engine: Engine) -> None:
        async with timer.awake():
            timer.keep(seconds)
        assert timer.expires_at is None
        assert left(timer) is None

    timed(test)
    timed(test, seconds)


def test_nothing_is_loaded_only_to_be_unloaded() -> None:
    async def test(timer: IdleTimer, engine: Engine) -> None:
        engine.sleep = ASLEEP
        async with timer.awake(wakes=False):
            timer.keep(0.0)
        assert engine.sleep.is_asleep

    timed(test)


# --- Ollama's keep_alive


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0.0),
        ("0", 0.0),
        ("0s", 0.0),
        (90, 90.0),
        (2.5, 2.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("300ms", 0.3),
        ("20us", 2e-5),
        ("20µs", 2e-5),
        ("+7s", 7.0),
        (-1, inf),
        ("-1s", inf),
        (999999999999, inf),
        (1e99, inf),
        ("70000000h", inf),
        (10**400, inf),
        ("9" * 401 + "s", inf),
        (99 * 365 * 86400, 99 * 365 * 86400.0),
    ],
)
def test_a_duration_is_read_as_go_reads_it(value: Any, seconds: float | None) -> None:
    assert kept_for(value) == (None if seconds is None else pytest.approx(seconds))


def ollama(fake: FakeRuntime, *bodies: tuple[str, dict[str, Any]], config: ServerConfig = CONFIG) -> list[Any]:
    """What /api/ps says after each of these requests, when the loop had time for what is due."""

    async def test(session: ClientSession) -> list[Any]:
        said = []
        for path, body in bodies:
            async with session.post(path, json={"stream": False, **body}) as answer:
                assert answer.status == 200
            await turns()
            async with session.get("/api/ps") as answer:
                said.append((await answer.json())["models"])
        return said

    return with_server(test, fake, config)


def test_keep_alive_0_unloads_after_the_answer_and_the_next_request_loads() -> None:
    fake = FakeRuntime()
    gone, there = ollama(
        fake, ("/api/chat", {"messages": HELLO, "keep_alive": 0}), ("/api/generate", {"prompt": "hello"})
    )
    assert gone == []
    assert len(there) == 1
    assert fake.sleep.n_wakes == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {"messages": HELLO}),
        ("/api/generate", {"prompt": "hello"}),
        ("/api/generate", {"prompt": "hello", "raw": True}),
        ("/api/chat", {}),
        ("/api/generate", {}),
    ],
)
def test_keep_alive_says_when_the_model_goes(path: str, body: dict[str, Any]) -> None:
    (models,) = ollama(FakeRuntime(), (path, {**body, "keep_alive": "2h"}), config=ServerConfig(port=0))
    at = datetime.fromisoformat(models[0]["expires_at"])
    assert 7100 < (at - datetime.now(UTC)).total_seconds() < 7200
    (models,) = ollama(FakeRuntime(), (path, {**body, "keep_alive": -1}))
    for value in (-1, 999999999999, 1e99, "70000000h", 10**400):
        (models,) = ollama(FakeRuntime(), (path, {**body, "keep_alive": value}))
        assert int(models[0]["expires_at"][:4]) > 2100, "never"


def test_a_request_that_asks_nothing_loads_or_unloads() -> None:
    fake = asleep()
    gone, there, gone_again = ollama(
        fake, ("/api/chat", {"keep_alive": 0}), ("/api/chat", {}), ("/api/generate", {"keep_alive": "0s"})
    )
    assert (gone, len(there), gone_again) == ([], 1, [])
    assert fake.sleep.n_wakes == 1
    assert not fake.requests
