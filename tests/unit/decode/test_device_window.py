"""Where logits are computed later, as on GPUs, text goes to the clients between a decode and its logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from kit.toys import TARGET_VOCAB, ScriptedModel, SimulatedClock, make_engine

from uad.base.events import Delta, Done, Event, Failed
from uad.base.types import GREEDY, Request, Rows

PROMPT = tuple(TARGET_VOCAB.tokenize(b"The quick brown"))
SECONDS = 0.003  # of a pass


class Device(ScriptedModel):
    """Its decode returns at once, and its logits are there later. calls: what was asked of it, in order."""

    def __init__(self, computes_later: bool, n_seq: int = 1) -> None:
        super().__init__(TARGET_VOCAB, n_seq)
        self.computes_later = computes_later
        self.calls: list[str] = []
        self.clock = SimulatedClock()
        self._are_there = True

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        assert self._are_there or not any(row.n_logits for row in rows), "logits were not read"
        super().decode(rows, may_stop)
        self.calls.append("decode")
        self._are_there = False

    def rows(self) -> np.ndarray:
        self.calls.append("rows")
        self.clock.seconds += SECONDS
        self._are_there = True
        return super().rows()


def answered(device: Device, n: int, n_requests: int = 1, fails: int = -1) -> list[list[Event]]:
    """The events of requests for n ids each. fails: the sink of this one does, at its second text."""
    engine = make_engine(device, clock=device.clock)
    told: list[list[Event]] = [[] for _ in range(n_requests)]

    def sink(number: int, event: Event) -> None:
        device.calls.append(f"text {number}" if isinstance(event, Delta) else type(event).__name__)
        if number == fails and isinstance(event, Delta) and told[number]:
            raise RuntimeError("a sink broke")
        told[number].append(event)

    for number in range(n_requests):
        engine.submit(number, Request(PROMPT, GREEDY, max_tokens=n), lambda event, number=number: sink(number, event))
    for _ in range(1000):
        if engine.is_idle:
            return told
        engine.step(lambda: True)
    raise AssertionError("it does not end")


def test_text_is_passed_on_while_the_device_computes() -> None:
    device = Device(computes_later=True)
    answered(device, 4)
    begun = ["decode", "rows", "text 0", "decode", "rows"]
    assert device.calls == [
        *begun,
        *("decode", "text 0", "rows"),
        *("decode", "text 0", "rows"),
        *("text 0", "Done"),
    ]


def test_elsewhere_text_is_passed_on_before_the_next_decode() -> None:
    device = Device(computes_later=False)
    answered(device, 4)
    assert device.calls == [*("decode", "rows", "text 0") * 4, "Done"]


@pytest.mark.parametrize("n_requests", [1, 4])
def test_the_text_is_the_same(n_requests: int) -> None:
    def texts(computes_later: bool) -> list[list[int]]:
        told = answered(Device(computes_later, n_requests), 40, n_requests)
        assert all(isinstance(events[-1], Done) for events in told)
        return [[id_ for event in events if isinstance(event, Delta) for id_ in event.ids] for events in told]

    assert texts(True) == texts(False)
    assert all(len(ids) == 40 for ids in texts(True))


@pytest.mark.parametrize("computes_later", [True, False])
def test_a_sink_that_fails_then_ends_its_own_request_only(computes_later: bool) -> None:
    device = Device(computes_later, 2)
    first, second = answered(device, 12, 2, fails=0)
    assert isinstance(first[-1], Failed)
    assert isinstance(second[-1], Done)
    assert sum(len(event.ids) for event in second if isinstance(event, Delta)) == 12


def test_the_loop_comes_back_now_and_then() -> None:
    device = Device(computes_later=True)
    engine = make_engine(device, clock=device.clock)
    engine.submit(1, Request(PROMPT, GREEDY, max_tokens=200), lambda event: None)
    n_steps = 0
    while not engine.is_idle:
        before = device.n_decodes
        engine.step(lambda: True)
        n_steps += 1
        assert device.n_decodes - before <= 33, "one for the end of the prompt"
    assert n_steps > 5
