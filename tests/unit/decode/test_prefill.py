"""Readers take turns: how long a first token takes beside long prompts, in seconds of a simulated machine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.toys import SCRIPT, TARGET_VOCAB, Collector, ScriptedModel, SimulatedClock, TimedModel, make_engine, run

from uad.base.events import Delta
from uad.base.types import Request, SamplingParams, SpeculativeParams
from uad.engine.decode.layout import passes
from uad.engine.decode.prefill import Prefill

LONG, SHORT = 12_000, 6
IDS = tuple(TARGET_VOCAB.tokenize(SCRIPT * 220))
Pass = Callable[[int, int], float]
MACHINES: dict[str, tuple[Pass, int]] = {
    "large model on two cores": (lambda n, depth: 0.12 + 0.02 * n + 1e-6 * n * depth, 60),
    "small model on two cores": (lambda n, depth: 0.02 + 0.0012 * n + 2e-7 * n * depth, 60),
    "without flash attention": (lambda n, depth: 0.05 + 0.0045 * n + 1e-8 * n * depth, 128),
    "passes of a second and more": (lambda n, depth: 0.05 + 0.005 * n, 512),
    "many cores": (lambda n, depth: 0.01 + 0.0004 * n, 512),
    "a GPU": (lambda n, depth: 0.004 + 0.00005 * n, 512),
}


class Timed(Collector):
    """Remembers when the first token came and when the last."""

    def __init__(self, clock: SimulatedClock, began: float) -> None:
        super().__init__()
        self.clock, self.began, self.first, self.last = clock, began, 0.0, 0.0

    def __call__(self, event) -> None:
        super().__call__(event)
        if isinstance(event, Delta):
            self.first = self.first or self.clock() - self.began
            self.last = self.clock() - self.began


class Machine:
    """An engine on a simulated machine; requests arrive at given seconds, between rounds, as in the runtime."""

    def __init__(self, name: str, n_slots: int = 4, n_batch: int = 2048) -> None:
        seconds, n_ubatch = MACHINES[name]
        self.clock = SimulatedClock()
        self.target = TimedModel(TARGET_VOCAB, self.clock, seconds, n_seq=n_slots, n_ctx=14_000, n_batch=n_batch)
        self.target.n_ubatch = n_ubatch
        self.engine = make_engine(self.target, clock=self.clock)
        self.target.arrived = self.engine.interrupt
        self.numbers = itertools.count(1)

    def warm(self) -> Machine:
        """The machine has read a prompt, so that its rate is known."""
        self.play([(0.0, 500, 1)])
        return self

    def play(self, arrivals: list[tuple[float, int, int]]) -> list[Timed]:
        """(when, ids of the prompt, tokens to write) of each request, in any order; the sinks in the same order."""
        start = self.clock()
        sinks = [Timed(self.clock, start + when) for when, _, _ in arrivals]
        waiting = sorted(range(len(arrivals)), key=lambda i: arrivals[i][0])
        self.target.arrival = lambda: start + arrivals[waiting[0]][0] if waiting and self.engine.has_room else math.inf
        while waiting or not self.engine.is_idle:
            self.engine.interrupt(False)
            if self.engine.is_idle:
                self.clock.seconds = max(self.clock.seconds, start + arrivals[waiting[0]][0])
            while waiting and start + arrivals[waiting[0]][0] <= self.clock():
                i = waiting.pop(0)
                _, n_prompt, n_tokens = arrivals[i]
                request = Request(
                    IDS[i : i + n_prompt],
                    SamplingParams(temperature=0),
                    SpeculativeParams(enabled=False),
                    n_tokens,
                    cache_prompt=False,
                )
                self.engine.submit(next(self.numbers), request, sinks[i])
            self.engine.step()
        return sinks


def alone(name: str, n_prompt: int, n_tokens: int = 1) -> Timed:
    return Machine(name).warm().play([(0.0, n_prompt, n_tokens)])[0]


ALONE = {(name, n): alone(name, n) for name in MACHINES for n in (SHORT, LONG)}


@pytest.mark.parametrize("arrival", [-0.01, 0.0, 0.01, 0.26, 0.9, 1.7, 7.03])
@pytest.mark.parametrize("name", MACHINES)
def test_a_short_prompt_waits_no_second_for_a_long_one_and_costs_it_nothing(name: str, arrival: float) -> None:
    long, short = Machine(name).warm().play([(max(-arrival, 0.0), LONG, 1), (max(arrival, 0.0), SHORT, 1)])
    assert short.first <= ALONE[name, SHORT].first + 1.0
    assert long.first <= 1.05 * ALONE[name, LONG].first + ALONE[name, SHORT].first


@pytest.mark.parametrize("name", MACHINES)
def test_short_prompts_wait_no_second_each_though_they_come_again_and_again(name: str) -> None:
    """The long one pays for what the others read, and gets half of the time at least."""
    pause = max(0.37, 3 * ALONE[name, SHORT].first)
    every = [(0.0, LONG, 1), *((0.4 + pause * i, SHORT, 1) for i in range(40))]
    long, *shorts = Machine(name).warm().play(every)
    assert max(one.first for one in shorts) <= ALONE[name, SHORT].first + 1.0
    spent = sum(ALONE[name, SHORT].first for _ in shorts)
    assert long.first <= min(1.05 * ALONE[name, LONG].first + 1.05 * spent, 2.1 * ALONE[name, LONG].first + 1.0)


@pytest.mark.parametrize("order", [*itertools.permutations([LONG, 5_000, SHORT])])
def test_a_short_prompt_waits_for_two_long_ones_no_longer_than_for_one(order: tuple[int, ...]) -> None:
    for name in MACHINES:
        sinks = Machine(name).warm().play([(0.003 * i, n, 1) for i, n in enumerate(order)])
        by = dict(zip(order, sinks, strict=True))
        assert by[SHORT].first <= ALONE[name, SHORT].first + 1.0
        assert by[5_000].first < by[LONG].first
        assert by[LONG].first <= 1.05 * (ALONE[name, LONG].first + alone(name, 5_000).first) + 1.0


@pytest.mark.parametrize("name", MACHINES)
def test_nobody_starves_though_shorter_prompts_never_end(name: str) -> None:
    """Three slots are always full of prompts that are read before the long one would be."""
    first = ALONE[name, LONG].first
    middle = [(0.1 + first / 30 * i, 1_000, 1) for i in range(60)]
    long, *others = Machine(name).warm().play([(0.0, LONG, 1), *middle])
    assert long.first <= 2.15 * first + 2.0
    assert all(one.done for one in others)


@pytest.mark.parametrize("name", MACHINES)
def test_equal_prompts_are_finished_one_after_the_other(name: str) -> None:
    """Whoever came first is first; sharing every round evenly would make all of them as late as the last."""
    one, two, three = Machine(name).warm().play([(0.0, 3_000, 1), (0.01, 3_000, 1), (0.02, 3_000, 1)])
    alone_s = alone(name, 3_000).first
    assert one.first <= 1.1 * alone_s + 1.0
    assert one.first < two.first < three.first <= 3.15 * alone_s + 1.0


@pytest.mark.parametrize("name", MACHINES)
def test_prompts_that_come_together_take_little_longer_than_if_they_were_read_before_anything_is_written(
    name: str,
) -> None:
    """Small pieces beside those that write already are slow, and who writes alone shares no pass with others."""
    lengths, n_tokens = (60, 150, 250, 400), 64
    done = Machine(name).warm().play([(0.001 * i, n, n_tokens) for i, n in enumerate(lengths)])
    seconds, n_ubatch = MACHINES[name]
    reading = sum(seconds(n, 0) for length in lengths for _, n in passes({0: length}, n_ubatch))
    writing = (n_tokens - 1) * seconds(len(lengths), 0)
    assert max(one.began + one.last for one in done) - done[0].began <= 1.3 * (reading + writing)


@pytest.mark.parametrize("name", MACHINES)
def test_a_writer_is_kept_waiting_a_second_at_most_and_a_short_prompt_no_longer_than_without_it(name: str) -> None:
    machine = Machine(name).warm()
    pauses: list[float] = []

    class Writer(Timed):
        def __call__(self, event) -> None:
            before = self.began + self.last
            super().__call__(event)
            pauses.append(self.clock() - before)

    writer = Writer(machine.clock, machine.clock())
    request = Request(IDS[:20], SamplingParams(temperature=0), SpeculativeParams(enabled=False), 300)
    machine.engine.submit(next(machine.numbers), request, writer)
    machine.engine.step()
    machine.engine.step()
    del pauses[:]
    _, short, again = machine.play([(0.0, LONG, 1), (0.3, SHORT, 1), (1.1, SHORT, 1)])
    limit = max(1.0, 2 * MACHINES[name][0](16, LONG) + 0.25)
    assert max(pauses) <= limit
    for one in (short, again):
        assert one.first <= ALONE[name, SHORT].first + 1.0


def test_who_waits_for_a_slot_gets_one_in_the_order_of_arrival() -> None:
    """A slot is free when the first short prompt is read; the next in line takes it, though the last one is the
    shortest.
    """
    machine = Machine("many cores", n_slots=2).warm()
    _, *others = machine.play([(0.0, LONG, 1), (0.01, 300, 1), (0.02, 2_000, 1), (0.03, SHORT, 1)])
    second, third, fourth = (one.began + one.first for one in others)
    assert second < third < fourth


@pytest.mark.parametrize("neighbours", [0, 1, 3])
@pytest.mark.parametrize("name", ["small model on two cores", "many cores", "a GPU"])
def test_a_prompt_is_cut_into_the_same_passes_beside_any_neighbours(name: str, neighbours: int) -> None:
    """As long as a pass fits into half a round; other passes may have other last bits."""
    machine = Machine(name)
    machine.play([(0.0, LONG, 1), *((0.2 + i, (SHORT, 700, 2_000)[i], 1) for i in range(neighbours))])
    mine = [n for batch in machine.target.batches if 0 in batch for _, n in passes(batch, machine.target.n_ubatch)]
    n_ubatch = machine.target.n_ubatch
    assert mine[: LONG // n_ubatch] == [n_ubatch] * (LONG // n_ubatch)


@pytest.mark.parametrize("n_batch", [64, 65, 256])
def test_no_pass_of_a_prompt_has_a_single_row_whoever_reads_beside_it(n_batch: int) -> None:
    target = ScriptedModel(TARGET_VOCAB, n_seq=3, n_ctx=2048, n_batch=n_batch)
    clock = SimulatedClock()
    engine = make_engine(target, clock=clock)
    for n in (2, 3, 16, 17, 63, 64, 65, 66, 127, 128, 129, 193, 257):
        asked = [
            Request(IDS[k : k + n + k], SamplingParams(temperature=0), SpeculativeParams(enabled=False), 1)
            for k in range(3)
        ]
        run(engine, asked + asked)
    assert min(n for batch in target.batches for _, n in passes(batch, target.n_ubatch)) == 2


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("after", [0.0, 0.3, 1.1, 2.9, 5.0])
def test_one_who_reads_alone_can_be_cancelled_within_a_second(name: str, after: float) -> None:
    machine = Machine(name).warm()
    request = Request(IDS[:LONG], SamplingParams(temperature=0), SpeculativeParams(enabled=False), 1)
    machine.engine.submit(number := next(machine.numbers), request, Collector())
    left = machine.clock() + after
    machine.target.arrival = lambda: left
    while not machine.engine.is_idle and machine.clock() < left:
        machine.engine.step()
    machine.engine.cancel(number)
    assert machine.engine.is_idle
    assert machine.clock() <= left + 1.0


@pytest.mark.parametrize(
    ("rate", "expected"), [(40.0, 36), (60.0, 54), (72.0, 64), (92.0, 64), (200.0, 64), (1000.0, 192)]
)
def test_a_piece_beside_running_streams_is_large_enough_not_to_be_slow(rate: float, expected: int) -> None:
    """64 rows, as long as they keep the streams waiting for no more than 0.9 s; on fast machines 0.25 s of reading."""
    one = SimpleNamespace(rate=rate, number=1, n_unread=LONG)
    prefill = Prefill(512, 2048, lambda: 0.0)
    ((_, n),) = prefill.pieces(lambda: [one], others_write=True, can_stop=True)
    assert n == expected


@given(st.integers(1, 3000), st.lists(st.floats(10, 20_000), min_size=1, max_size=9), st.sampled_from([128, 256, 512]))
def test_a_prompt_is_read_by_the_kernel_for_prompts_at_any_speed(
    n_prompt: int, rates: list[float], n_ubatch: int
) -> None:
    """No pass of a prompt that one reads alone has fewer rows than that needs, unless the prompt has."""
    one = SimpleNamespace(rate=0.0, number=1, n_unread=n_prompt)
    prefill, sizes = Prefill(n_ubatch, 2048, lambda: 0.0), []
    for rate in itertools.cycle(rates):
        one.rate = rate
        ((_, n),) = prefill.pieces(lambda: [one], others_write=False, can_stop=True)
        sizes += [n_ubatch] * (n // n_ubatch) + [n % n_ubatch] * (n % n_ubatch > 0)
        one.n_unread -= n
        if not one.n_unread:
            break
    assert sum(sizes) == n_prompt
    assert min(sizes) >= min(64, n_prompt)


def test_a_prompt_is_interrupted_no_more_once_too_much_was_lost() -> None:
    """Until so much was read that the loss is a tenth of it again."""
    reader = SimpleNamespace(rate=0.0, number=1, n_unread=4096)
    prefill = Prefill(512, 4096, SimulatedClock())
    prefill.took(reader, 100, 1.0)
    assert prefill.may_stop(reader, 512), "it takes five seconds, and nothing was lost yet"
    assert not prefill.may_stop(reader, 64), "it is over soon"
    prefill.lost(0.9)
    assert not prefill.may_stop(reader, 512)
    prefill.took(reader, 800, 8.0)
    assert prefill.may_stop(reader, 512)
