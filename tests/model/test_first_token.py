"""No request interrupts the pass that it waits for, and none that is interrupted spins: counted in passes of a scripted
target, not by the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from kit.runtime_parts import parts_on
from kit.toys import SCRIPT, TARGET_VOCAB, Collector, ScriptedModel, make_engine, run

from uad.base.config import Config
from uad.base.errors import AbortedError
from uad.base.events import Event
from uad.base.types import Request, Rows, SamplingParams, SpeculativeParams
from uad.runtime import runtime
from uad.runtime.adapters import AdapterTurns
from uad.runtime.runtime import Runtime

IDS = tuple(TARGET_VOCAB.tokenize(SCRIPT * 8))
WAIT_S = 120.0


def request(n_prompt: int, n_tokens: int = 1, begin: int = 0) -> Request:
    ids = IDS[begin : begin + n_prompt]
    return Request(ids, SamplingParams(temperature=0), SpeculativeParams(enabled=False), n_tokens)


class Counting(ScriptedModel):
    """Counts the decodes that were begun, those that were interrupted too."""

    n_begun = 0
    n_aborted = 0

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        self.n_begun += 1
        try:
            super().decode(rows, may_stop)
        except AbortedError:
            self.n_aborted += 1
            raise


class Sink(Collector):
    """Also says when the request has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if self.end is not None:
            self.ended.set()


class Door:
    """A lock that says when the model thread has to wait for it: it can take no command then."""

    def __init__(self, waits: threading.Event) -> None:
        self._lock, self._waits = threading.Lock(), waits

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=0.001):
            if threading.current_thread().name == "uad-model":
                self._waits.set()  # again and again: the lock may have another holder by now

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Late:
    """A runtime whose model thread takes a command before the interruption that comes with it, each time: the worst
    order of two threads.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n_slots: int) -> None:
        self.target = Counting(TARGET_VOCAB, n_seq=n_slots, n_ctx=60_000)
        engine = make_engine(self.target)
        parts = parts_on(engine)
        monkeypatch.setattr(runtime, "build", lambda *_: parts)
        self.taken, self.interrupted = threading.Event(), threading.Event()
        self._lock = threading.Lock()  # around both events
        self.interrupted.set()
        self._wrap(monkeypatch, engine, parts.turns)
        self.runtime = Runtime.open(Config(target=None))
        self.runtime._commands.lock = Door(self.taken)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, engine: object, turns: AdapterTurns) -> None:
        for owner, name in ((turns, "submit"), (turns, "cancel")):
            monkeypatch.setattr(owner, name, self._after(getattr(owner, name), self.taken))
        interrupt, step = engine.interrupt, engine.step

        def late(wanted: bool = True) -> None:
            if wanted:
                assert self.taken.wait(WAIT_S)
            interrupt(wanted)
            if wanted:
                self.interrupted.set()

        def after(*_: object) -> None:
            with self._lock:
                interrupted = self.interrupted if self.taken.is_set() else None
            assert interrupted is None or interrupted.wait(WAIT_S)
            step()

        monkeypatch.setattr(engine, "interrupt", late)
        monkeypatch.setattr(engine, "step", after)

    @staticmethod
    def _after(call: Callable[..., None], event: threading.Event) -> Callable[..., None]:
        def called(*args: object) -> None:
            call(*args)
            event.set()

        return called

    def expect(self) -> None:
        with self._lock:
            self.taken.clear()
            self.interrupted = threading.Event()

    def ask(self, one: Request) -> Sink:
        sink = Sink()
        self.expect()
        self.runtime.submit(one, sink)
        return sink

    def answer(self, one: Request) -> Sink:
        sink = self.ask(one)
        assert sink.ended.wait(WAIT_S)
        return sink


@contextmanager
def late_runtime(monkeypatch: pytest.MonkeyPatch, n_slots: int = 1) -> Iterator[Late]:
    late = Late(monkeypatch, n_slots)
    try:
        yield late
    finally:
        late.taken.set()
        late.interrupted.set()
        late.runtime.close()


@pytest.mark.parametrize("n_prompt", [2, 9, 40, 64, 200])
def test_the_same_prompt_takes_one_pass_each_time_that_it_comes(monkeypatch: pytest.MonkeyPatch, n_prompt: int) -> None:
    """The first time all of it is read, up to 64 rows in a pass; later ones find it in the slot."""
    with late_runtime(monkeypatch) as late:
        first = late.answer(request(n_prompt))
        for _ in range(20):
            before = late.target.n_begun
            again = late.answer(request(n_prompt))
            assert again.ids == first.ids
            assert late.target.n_begun == before + 1
        assert late.target.n_aborted == 0


def test_a_prompt_that_is_cached_in_part_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with late_runtime(monkeypatch) as late:
        for n in range(10, 60, 5):
            before = late.target.n_begun
            late.answer(request(n))
            assert late.target.n_begun == before + 1
        assert late.target.n_aborted == 0


def test_prompts_of_several_slots_take_one_pass_each(monkeypatch: pytest.MonkeyPatch) -> None:
    with late_runtime(monkeypatch, n_slots=3) as late:
        for n in range(12):
            before = late.target.n_begun
            late.answer(request(20, begin=30 * (n % 3)))
            assert late.target.n_begun == before + 1
        assert late.target.n_aborted == 0


def test_a_cancel_does_not_interrupt_the_pass_of_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with late_runtime(monkeypatch) as late:
        for _ in range(5):
            late.answer(request(40))
            late.expect()
            late.runtime.cancel(999)
        assert late.target.n_aborted == 0


def test_a_short_prompt_beside_a_running_answer_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with late_runtime(monkeypatch, n_slots=2) as late:
        running = late.ask(request(30, n_tokens=50_000))  # longer than the test
        for _ in range(5):
            late.answer(request(20, begin=50))
            assert not running.ended.is_set()
        assert late.target.n_aborted == 0


# --- what is interrupted for good reason


def interrupted_engine(n_prompt: int) -> tuple[Counting, Callable[[], None]]:
    """An engine on which somebody always waits, with a prompt to read."""
    target = Counting(TARGET_VOCAB, n_ctx=1024)
    engine = make_engine(target)
    engine.submit(1, request(n_prompt), Collector())
    target.interrupt()
    return target, engine.step


@pytest.mark.parametrize("n_prompt", [2, 3, 9, 16])
def test_what_is_no_longer_than_the_shortest_piece_is_not_interrupted(n_prompt: int) -> None:
    target, step = interrupted_engine(n_prompt)
    step()
    assert (target.n_begun, target.n_aborted) == (1, 0)


def test_a_round_ends_with_the_pass_that_was_interrupted() -> None:
    """Those who interrupted it wait for the end of the round. It did not come back to them for 0.4 s."""
    target, step = interrupted_engine(200)
    step()
    assert (target.n_begun, target.n_aborted) == (1, 1)


def test_a_prompt_is_read_though_others_come_without_end() -> None:
    """Nothing is known of the machine's speed, and each pass is interrupted as soon as it may be. The clock goes on by
    half a second each time that it is read.
    """
    seconds = iter(range(10**6))
    target = Counting(TARGET_VOCAB, n_ctx=1024)
    engine = make_engine(target, clock=lambda: 0.5 * next(seconds))
    sink = Collector()
    engine.submit(1, request(300), sink)
    target.interrupt()
    for _ in range(60):
        engine.step()
    assert sink.ids == run(make_engine(Counting(TARGET_VOCAB, n_ctx=1024)), [request(300)])[0].ids
    assert 0 < target.n_aborted < 5


def test_what_interrupts_the_preparation_of_a_decode_ends_that_decode_alone() -> None:
    """It decodes too, where many ids are to be read again."""

    class Preparing(Counting):
        def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
            if not self.n_aborted:
                self.n_aborted += 1
                raise AbortedError("interrupted")
            return super().prepare(rows)

    expected = run(make_engine(ScriptedModel(TARGET_VOCAB)), [request(20, 5)])[0].ids
    target = Preparing(TARGET_VOCAB)
    assert run(make_engine(target), [request(20, 5)])[0].ids == expected
    assert target.n_aborted == 1
