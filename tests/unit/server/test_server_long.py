"""Long bodies and long answers: short requests do not wait for them, clients that leave take their work along, and all
have bounds.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import threading
import time
from contextlib import suppress

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import CHAT, HELLO, post, serving

from uad.base.checkpoint import DroppedError, checkpoint, wanted_while
from uad.base.common.json_out import chunks, dumps, dumps_large
from uad.base.errors import UnavailableError
from uad.http.apis.problems import BusyError
from uad.http.requests.fields import MAX_MESSAGES
from uad.http.requests.message_fields import MAX_PARTS
from uad.http.server.state import N_THREADS, WorkerPool, Workers

LONG = "x" * (2 << 20)
MANY = ["a"] * 50_000


def sent(session, path, body):
    """A request under way."""
    return asyncio.create_task(session.post(path, data=io.BytesIO(json.dumps(body).encode())))


async def until(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


class Held(FakeRuntime):
    """Long texts are tokenized when `may_go` is set."""

    def __post_init__(self):
        super().__post_init__()
        self.may_go = threading.Event()
        self.n_held = 0

    def tokenize(self, text, *args, **options):
        if len(text) > 1000:
            self.n_held += 1
            assert self.may_go.wait(120)
            text = ""
        return super().tokenize(text, *args, **options)


def test_a_short_request_does_not_wait_for_long_ones():
    async def run():
        fake = Held()
        async with serving(fake) as session:
            long = [sent(session, "/tokenize", {"content": LONG}) for _ in range(4)]
            await until(lambda: fake.n_held >= 2)
            async with asyncio.timeout(120), session.post(CHAT, json={"messages": HELLO, "max_tokens": 1}) as answer:
                status = answer.status
            assert not any(one.done() for one in long)
            fake.may_go.set()
            return status, [(await one).status for one in long]

    assert asyncio.run(run()) == (200, [200] * 4)


class Slow(FakeRuntime):
    """Counts what it is asked for; each takes a millisecond."""

    n_asked = 0

    def tokenize(self, text, *args, **options):
        self.n_asked += 1
        time.sleep(0.001)
        return [65]

    def detokenize(self, ids):
        self.n_asked += 1
        time.sleep(0.01)
        return b"A" * len(ids)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"content": MANY}),
        ("/detokenize", {"tokens": [65] * 2_000_000}),
        ("/completion", {"prompt": [65, *MANY]}),
        ("/completion", {"prompt": "x", "logit_bias": {f"t{i}": 1 for i in range(4000)}}),
    ],
)
def test_work_for_a_client_that_left_is_dropped(path, body):
    async def run():
        fake = Slow(n_ctx=2_000_000)
        async with serving(fake) as session:
            asked = sent(session, path, body)
            await until(lambda: fake.n_asked > 20, 15)
            asked.cancel()
            with suppress(asyncio.CancelledError):
                await asked
            await asyncio.sleep(0.2)
            n_asked = fake.n_asked
            await asyncio.sleep(0.2)
            return fake.n_asked - n_asked

    assert asyncio.run(run()) == 0


def held_in(pool, n):
    """n pieces of work in a pool, which end with the event that comes back, too."""
    may_go = threading.Event()
    return may_go, [asyncio.create_task(pool.run(lambda: may_go.wait(120))) for _ in range(n)]


def test_a_lane_has_a_bound_and_recovers():
    async def run():
        pool = WorkerPool("test", 3)
        may_go, held = held_in(pool, 3)
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="3 requests"):
            await pool.run(lambda: 1)
        may_go.set()
        assert await asyncio.gather(*held) == [True] * 3
        assert (await pool.run(lambda: 1), pool.n_inside) == (1, 0)
        pool.close()

    asyncio.run(run())


def test_what_waits_in_a_lane_is_dropped_with_its_client():
    async def run():
        pool, done = WorkerPool("test", 64), []
        may_go, held = held_in(pool, N_THREADS)
        waiting = asyncio.create_task(pool.run(lambda: done.append(1)))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        may_go.set()
        await asyncio.gather(*held)
        await asyncio.to_thread(pool.close)
        assert (done, pool.n_inside) == ([], 0)

    asyncio.run(run())


def test_shutdown_ends_long_work_with_an_error():
    def work():
        while True:
            checkpoint()
            time.sleep(0.001)

    async def run():
        workers = Workers()
        asked = asyncio.create_task(workers.pool(1).run(work))
        await asyncio.sleep(0.02)
        async with asyncio.timeout(120), workers.closing():
            pass
        with pytest.raises(UnavailableError, match="shutting down"):
            await asked

    asyncio.run(run())


def test_a_checkpoint_without_somebody_who_may_leave_does_nothing():
    checkpoint()
    with wanted_while(lambda: True):
        checkpoint()
    with wanted_while(lambda: False), pytest.raises(DroppedError):
        checkpoint()
    checkpoint()


def drawn(draw, depth=0):
    kind = draw.randrange(6 if depth < 4 else 4)
    if kind == 5:
        return {str(i): drawn(draw, depth + 1) for i in range(draw.randrange(4))}
    if kind == 4:
        return [drawn(draw, depth + 1) for _ in range(draw.randrange(4))]
    return [draw.randrange(9), draw.random(), 'a"\\é\U0001f642\n' * draw.randrange(3), [1] * draw.randrange(20)][kind]


def test_chunks_are_the_whole_text(monkeypatch):
    monkeypatch.setattr("uad.base.common.json_out._CHARS_AT_ONCE", 8)
    monkeypatch.setattr("uad.base.common.json_out._NUMBERS", 3)
    draw = random.Random(0)
    for _ in range(500):
        value = drawn(draw)
        for depth in range(4):
            assert b"".join(chunks(value, depth)).decode() == dumps_large(value, depth) == dumps(value)


def test_chunks_are_short():
    made = chunks({"ids": list(range(300_000)), "text": "é" * 300_000, "items": ({"id": i} for i in range(50_000))})
    assert max(map(len, made)) < 8 * (1 << 16)
    assert len(made) > 30


def test_long_answers_arrive_whole():
    ids = list(b"word ") * 60_000
    assert post("/tokenize", {"content": "word " * 60_000, "add_special": False}) == (200, {"tokens": ids})
    assert post("/detokenize", {"tokens": ids[:200_000]}) == (200, {"content": "word " * 40_000})
    messages = [{"role": "user", "content": "word " * 60_000}]
    assert post("/apply-template", {"messages": messages}) == (200, {"prompt": f"user:{'word ' * 60_000}\nassistant:"})


def test_characters_stay_whole_between_pieces_of_many_ids():
    text = "é東\U0001f642" * 3000
    assert post("/detokenize", {"tokens": list(text.encode())}) == (200, {"content": text})
    assert post("/detokenize", {"tokens": [0xC3]}) == (200, {"content": "\ufffd"})


def turns(n, content="a"):
    return [{"role": "user", "content": content}, {"role": "assistant", "content": content}] * (n // 2) + HELLO


@pytest.mark.parametrize(
    "body",
    [
        {"messages": turns(6000)},
        {"messages": turns(20, "line\n" * 5000)},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "part"}] * 1000}] * 20},
        {
            "messages": HELLO,
            "tool_choice": "none",
            "metadata": {str(i): [{"name": "x", "parameters": {"a": []}}] for i in range(800)},
        },
    ],
)
def test_what_long_histories_hold_is_read(body):
    assert post(CHAT, {**body, "max_tokens": 1}, FakeRuntime(n_ctx=10**7))[0] == 200


def test_a_context_full_of_ids_is_read():
    fake = FakeRuntime(n_ctx=400_000)
    assert post("/completion", {"prompt": [65] * 399_000, "n_predict": 1}, fake)[0] == 200
    assert fake.requests[0].prompt == (65,) * 399_000


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        (CHAT, {"messages": turns(MAX_MESSAGES + 2)}, "messages"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * (MAX_PARTS + 1)}]},
            "messages.0.content",
        ),
        (
            CHAT,
            {"messages": HELLO, "chat_template_kwargs": dict.fromkeys(map(str, range(65)), 1)},
            "chat_template_kwargs",
        ),
        ("/completion", {"prompt": ["a", 1] * 5000}, "10000 prompt tokens"),
        ("/completion", {"prompt": ["", ""] * 100_000}, "prompt"),
        ("/completion", {"prompt": "a", "logit_bias": dict.fromkeys(map(str, range(5000)), 1)}, "4096"),
        ("/completion", {"prompt": "a", "logit_bias": {"a" * 5000: 1}}, "4096"),
        ("/completion", {"prompt": "a", "stop": ["a"] * 300}, "256"),
        ("/detokenize", {"tokens": [1] * 300_000}, "262144 values"),
    ],
)
def test_what_no_request_needs_is_refused_by_name(path, body, told):
    status, answer = post(path, body)
    assert (status, answer["error"]["code"]) == (400, 400)
    assert told in answer["error"]["message"], answer


def test_ids_that_are_none_are_refused():
    for tokens in ("65", [True], ["65"], [-1], [259], [1.5], [1e300], {"0": 65}, [[65]]):
        status, answer = post("/detokenize", {"tokens": tokens})
        assert (status, answer["error"]["param"]) == (400, "tokens"), tokens
    assert post("/detokenize", {"tokens": [65.0, 66]}) == (200, {"content": "AB"})
    assert post("/detokenize", json.dumps({"tokens": []}).encode()) == (200, {"content": ""})
