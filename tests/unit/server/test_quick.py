"""Which requests are rendered and tokenized on the loop's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from aiohttp import ClientSession
from kit.fake_runtime import FakeRuntime
from kit.listening import base_url, listen
from kit.server_kit import CHAT, CONFIG, HELLO

from uad.http.requests.fields import ChatBody, CompletionBody, InfillBody, NativeBody, checked
from uad.http.server import make_app, make_runner
from uad.http.server.quick import MAX_BYTES, QUICK_S, Quick, kind_of
from uad.http.server.state import STATE

KIND = "a kind"
PROMPT = {"prompt": "once upon a time"}


def clock(seconds: Iterable[float]) -> Iterator[float]:
    """Times at which works begin and end that take these."""
    now = 0.0
    for one in seconds:
        yield now
        now += one
        yield now


def test_a_kind_is_quick_after_one_that_was_and_until_one_that_was_not() -> None:
    quick = Quick(clock([QUICK_S / 2, 2 * QUICK_S, QUICK_S / 2]).__next__)
    known = []
    for _ in range(3):
        known.append(KIND in quick)
        assert quick.timed(KIND, lambda: 5) == 5
    assert [*known, KIND in quick] == [False, True, False, True]
    assert "another kind" not in quick


def test_work_that_fails_is_timed_too() -> None:
    quick = Quick(clock([0.0, 2 * QUICK_S]).__next__)
    for is_quick in (True, False):
        with pytest.raises(ZeroDivisionError):
            quick.timed(KIND, lambda: 1 // 0)
        assert (KIND in quick) == is_quick


def test_kinds_are_not_kept_without_bound() -> None:
    quick = Quick(lambda: 0.0)
    for i in range(10_000):
        quick.timed(i, lambda: None)
    assert sum(i in quick for i in range(10_000)) <= 256


def chat(**more: Any) -> ChatBody:
    return checked(ChatBody, {"messages": HELLO, **more})


def test_texts_and_numbers_of_one_length_are_of_one_kind() -> None:
    one, other = chat(temperature=0.5, seed=1), chat(temperature=0.0, seed=7)
    assert kind_of(one, 100) == kind_of(other, 120) is not None
    assert kind_of(one, 100) != kind_of(one, 200), "longer ones take longer"
    assert kind_of(one, 100) != kind_of(chat(), 100)
    more = {"messages": [{"role": "system", "content": "be kind"}, *HELLO], "temperature": 1, "seed": 2}
    assert kind_of(one, 100) != kind_of(checked(ChatBody, more), 100)
    assert kind_of(checked(CompletionBody, PROMPT), 100) != kind_of(checked(NativeBody, PROMPT), 100)


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [TOOL]},
        {"json_schema": {"type": "object"}},
        {"grammar": 'root ::= "a"'},
        {"logit_bias": {"5": 1}},
        {"bad_words": ["x"]},
        {"dry_multiplier": 0.8},
        {"chat_template_kwargs": {"a": 1}},
        {"enable_thinking": True},
        {"n": 2},
        {"prediction": {"type": "content", "content": "x"}},
        {"messages": HELLO * 5},
        {"messages": [*HELLO, {"role": "assistant", "content": "a"}, *HELLO]},
        {"messages": [{"role": "user", "content": "a", "name": "b"}]},
    ],
    ids=str,
)
def test_what_may_take_long_belongs_to_workers(more: dict[str, Any]) -> None:
    assert kind_of(chat(), 100) is not None
    assert kind_of(chat(**more), 100) is None


def test_long_bodies_and_several_prompts_belong_to_workers() -> None:
    assert kind_of(chat(), MAX_BYTES) is not None
    assert kind_of(chat(), MAX_BYTES + 1) is None
    for prompt in (["a", "b"], [1, 2], {"prompt_string": "a"}):
        assert kind_of(checked(CompletionBody, {"prompt": prompt}), 100) is None
    assert kind_of(checked(CompletionBody, {**PROMPT, "suffix": "b"}), 100) is None
    assert kind_of(checked(InfillBody, {"input_prefix": "a", "input_suffix": "b"}), 100) is None


class Watched(FakeRuntime):
    """Notes which thread checks what was asked for."""

    def check_sampling(self, sampling: object) -> None:
        self.seen_on.append(threading.current_thread() is threading.main_thread())


@pytest.mark.parametrize(("path", "body"), [(CHAT, {"messages": HELLO}), ("/completion", PROMPT)])
def test_the_first_short_request_is_prepared_by_a_worker_and_the_next_one_at_once(path: str, body: dict) -> None:
    import asyncio

    fake = Watched()
    fake.seen_on = []  # type: ignore[attr-defined]

    async def test() -> list[Any]:
        app = make_app(fake, CONFIG)
        app[STATE].quick = Quick(lambda: 0.0)
        runner = make_runner(app)
        answers = []
        with fake:
            await runner.setup()
            try:
                await listen(runner, CONFIG)
                async with ClientSession(base_url(runner, CONFIG)) as session:
                    for more in ({}, {}, {"logit_bias": {"5": 1}}):
                        async with session.post(path, json={**body, **more, "seed": 3}) as answer:
                            answers.append((answer.status, (await answer.json()).get("content")))
            finally:
                await runner.cleanup()
        return answers

    async def bounded() -> list[Any]:
        async with asyncio.timeout(120):
            return await test()

    first, second, _ = asyncio.run(bounded())
    assert first == second
    assert fake.seen_on == [False, True, False]  # type: ignore[attr-defined]
