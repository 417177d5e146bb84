"""Failures stay where they happen: answers show nothing of a drafter's or the policy's, neighbours nothing of a
request's or a decode's.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan

import pytest
from kit.pairs import pairs
from kit.toys import (
    DRAFT_VOCAB,
    SCRIPT,
    TARGET_VOCAB,
    Collector,
    RandomDrafter,
    ScriptedModel,
    SimulatedClock,
    TimedModel,
    ToyRules,
    failures,
    make_engine,
    run,
)

from uad.base.config import LookupConfig
from uad.base.config.drafter_types import LOOKUP_TYPES, NgramConfig, NgramModConfig
from uad.base.errors import DecodeError, NoKvRoomError, UadError
from uad.base.types import Draft, Origin, Request, SamplingParams, SpecPolicy, SpeculativeParams
from uad.drafts.lookup.build import build_one
from uad.drafts.model.model_drafter import ModelDrafter
from uad.engine.decode.drafting import Drafting
from uad.engine.decode.engine import Engine
from uad.engine.policy.auto import AutoPolicy
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.machine import Machine
from uad.text.vocab.encode import Encoder

TYPES = tuple(str(one.origin) for one in LOOKUP_TYPES if not one.by_request)
START = TARGET_VOCAB.specials["<|im_start|>"]
SHORT = NgramConfig(2, 8, 1)
LOOKUP = LookupConfig(SHORT, SHORT, SHORT, NgramModConfig(3, 1, 12))
FIXED = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=6, p_min=0.2)
OFF = SpeculativeParams(enabled=False)
EVERY = (Origin.MODEL, *map(Origin, TYPES), Origin.PREDICTION)


class Fault:
    """Raises when it is reached for the n-th time, or from then on for so many times."""

    def __init__(self, at: int, times: int = 1, error: type[Exception] = DecodeError) -> None:
        self.at, self.times, self.error, self.n = at, times, error, 0

    def __call__(self) -> None:
        self.n += 1
        if self.at <= self.n < self.at + self.times:
            raise self.error("injected")


class Faulty:
    """Anything, of which some methods meet a fault before they do their work."""

    def __init__(self, inner: object, **faults: Callable[[], None]) -> None:
        self._inner, self._faults = inner, faults

    def __getattr__(self, name: str):
        value = getattr(self._inner, name)
        if name not in self._faults:
            return value

        def method(*args, **kwargs):
            self._faults[name]()
            return value(*args, **kwargs)

        return method


def ticking(step: float = 0.02) -> Callable[[], float]:
    """A clock that goes on whenever it is asked."""
    ticks = itertools.count()
    return lambda: next(ticks) * step


def requests(speculative: SpeculativeParams, temperature: float = 0.0, n: int = 4) -> list[Request]:
    ids = TARGET_VOCAB.tokenize(SCRIPT + SCRIPT)
    params = SamplingParams(temperature=temperature, seed=3)
    return [
        Request((START, *ids[:k]), params, speculative, max_tokens=60, prediction=SCRIPT) for k in (5, 40, 70, 12)[:n]
    ]


PLAIN = {
    temperature: [one.ids for one in run(make_engine(ScriptedModel(TARGET_VOCAB, 2)), requests(OFF, temperature))]
    for temperature in (0.0, 0.8)
}


def make(origin: Origin, context: object = None, rules: object = None, encoder: Encoder | None = None):
    if origin is not Origin.MODEL:
        return build_one(origin, LOOKUP, "", 2, Encoder(TARGET_VOCAB))
    return ModelDrafter(context or ScriptedModel(DRAFT_VOCAB, 2), encoder or Encoder(TARGET_VOCAB), rules or ToyRules())


def engine_with(drafter: object, **options) -> Engine:
    return make_engine(ScriptedModel(TARGET_VOCAB, 2), drafter, clock=ticking(), **options)


def comes_back(
    engine: Engine, n_failures: int, speculative: SpeculativeParams = FIXED, temperature: float = 0.0
) -> None:
    """Rounds of requests have the plain text, fail so often, and are drafted again at the end."""
    for _ in range(3):
        results = run(engine, requests(speculative, temperature), may_fail=True)
        assert [one.ids for one in results] == PLAIN[temperature]
        assert all(one.done.finish == "length" for one in results)
    accepted = sum(one.n_accepted for one in engine.drafters())
    last = run(engine, requests(speculative, temperature), may_fail=True)
    assert [one.ids for one in last] == PLAIN[temperature]
    assert failures(engine) == n_failures
    assert not any(one.is_off for one in engine.drafters())
    assert sum(one.n_accepted for one in engine.drafters()) > accepted, "nothing is accepted any more"


# --- drafters


CALLS = [*itertools.product(["begin", "propose", "observe", "end"], [1, 4])]


@pytest.mark.parametrize(
    ("origin", "method", "call"),
    [
        *((Origin.MODEL, *one) for one in CALLS),
        *((origin, *one) for origin, one in zip(EVERY[1:], CALLS, strict=False)),
    ],
)
def test_a_drafter_that_fails_costs_no_text_and_comes_back(origin: Origin, method: str, call: int) -> None:
    engine = engine_with(Faulty(make(origin), **{method: Fault(call)}))
    comes_back(engine, 1)


@pytest.mark.parametrize("error", [MemoryError, KeyError, AssertionError])
def test_whatever_is_raised_is_the_drafters(error: type[Exception]) -> None:
    comes_back(engine_with(Faulty(make(Origin.MODEL), propose=Fault(3, error=error))), 1, temperature=0.8)


@pytest.mark.parametrize("origin", EVERY)
def test_a_drafter_that_fails_again_when_it_comes_back_is_tried_later(origin: Origin) -> None:
    comes_back(engine_with(Faulty(make(origin), propose=Fault(3), reset=Fault(1))), 2)


@pytest.mark.parametrize("call", [1, 7])
@pytest.mark.parametrize("method", ["decode", "logits", "take_back"])
def test_a_draft_context_that_fails_is_cleared_and_used_again(method: str, call: int) -> None:
    """The scripted draft checks that its KV is what the drafter says it is."""
    context = ScriptedModel(DRAFT_VOCAB, 2)
    real = getattr(context, method)
    fault = Fault(call)

    def failing(*args):
        if method == "decode" and fault.n + 1 == fault.at:
            real(*args)  # a decode that fails may leave rows behind
        fault()
        return real(*args)

    setattr(context, method, failing)
    comes_back(engine_with(make(Origin.MODEL, context)), 1)


def test_a_draft_context_that_cannot_be_cleared_stays_off_until_it_can() -> None:
    context = ScriptedModel(DRAFT_VOCAB, 2)
    context.decode = Faulty(context, decode=Fault(5)).decode  # type: ignore[method-assign]
    context.clear = Faulty(context, clear=Fault(1)).clear  # type: ignore[method-assign]
    comes_back(engine_with(make(Origin.MODEL, context)), 2)


class FaultyRules(ToyRules):
    """Translation between the chat formats fails while a text is fed."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def stream(self):
        return Faulty(super().stream(), feed=self.fault)


class FaultyEncoder(Encoder):
    """Translation into the target's vocabulary fails."""

    fault = Fault(0)

    def encode(self, data: bytes) -> list[int]:
        self.fault()
        return super().encode(data)


@pytest.mark.parametrize("call", [1, 6])
def test_translation_that_fails_is_the_drafters(call: int) -> None:
    comes_back(engine_with(make(Origin.MODEL, rules=FaultyRules(Fault(call)))), 1)
    encoder = FaultyEncoder(TARGET_VOCAB)
    drafter = make(Origin.MODEL, encoder=encoder)
    encoder.fault = Fault(call)
    comes_back(engine_with(drafter), 1)
    fault = Fault(10**9)

    def tokenize(data: bytes) -> list[int]:
        fault()
        return DRAFT_VOCAB.tokenize(data)

    drafter = make(Origin.MODEL, ScriptedModel(replace(DRAFT_VOCAB, tokenize=tokenize), 2))
    fault.n, fault.at = 0, call
    comes_back(engine_with(drafter), 1)


class Wrong(RandomDrafter):
    """Answers what no drafter may, now and then."""

    def __init__(self, wrong: Callable[[list[Draft]], list[Draft]]) -> None:
        super().__init__({0: PLAIN[0.0][0], 1: PLAIN[0.0][1]})
        self.wrong, self.n = wrong, 0

    def propose(self, asks, pace=None):
        self.n += 1
        drafts = super().propose(asks, pace)
        return self.wrong(drafts) if self.n == 5 else drafts


@pytest.mark.parametrize(
    "wrong",
    [
        lambda drafts: [Draft((TARGET_VOCAB.n_vocab,), (0.5,))] * len(drafts),
        lambda drafts: [Draft((-1,), (0.5,))] * len(drafts),
        lambda drafts: [Draft((1,) * 99, (0.5,) * 99)] * len(drafts),
        lambda drafts: [Draft((1, 2), (0.5,))] * len(drafts),
        lambda drafts: [Draft((1,), (nan,))] * len(drafts),
        lambda drafts: [*drafts, Draft()],
        lambda drafts: [],
        lambda drafts: None,
    ],
    ids=["no such id", "negative id", "too long", "beliefs missing", "no probability", "too many", "too few", "none"],
)
def test_a_draft_that_the_target_cannot_be_given_is_a_failure_of_the_drafter(wrong) -> None:
    engine = engine_with(Wrong(wrong))
    results = run(engine, requests(FIXED, n=2), may_fail=True)
    assert [one.ids for one in results] == PLAIN[0.0][:2]
    assert failures(engine) == 1


def test_a_drafter_that_fails_leaves_the_others_at_work() -> None:
    clock = ticking()
    broken = Faulty(RandomDrafter(), propose=Fault(1, times=10**9))
    drafting = Drafting([broken, make(Origin.SUFFIX)], AutoPolicy, TARGET_VOCAB.n_vocab, TARGET_VOCAB.eog, clock)
    engine = make_engine(ScriptedModel(TARGET_VOCAB, 2), clock=clock)
    engine._drafting = engine.requests._drafting = engine._rounds._drafting = drafting
    results = run(engine, requests(FIXED), may_fail=True)
    assert [one.ids for one in results] == PLAIN[0.0]
    by = {one.origin: one for one in engine.drafters()}
    assert by[Origin.MODEL].n_failures > 1
    assert by[Origin.SUFFIX].n_failures == 0
    assert by[Origin.SUFFIX].n_accepted > 0


def test_each_failure_is_one_line_that_names_the_drafter_and_the_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "uad.draft"):
        run(
            engine_with(Faulty(make(Origin.SUFFIX), propose=Fault(2, error=ZeroDivisionError))),
            requests(FIXED),
            may_fail=True,
        )
    failed, back = [record.getMessage() for record in caplog.records if record.name == "uad.draft"]
    assert failed.startswith("suffix failed (ZeroDivisionError: injected, test_faults.py:")
    assert "left alone for 1 s; answers go on without it" in failed
    assert back == "suffix is asked again"


# --- the policy


def machine() -> Machine:
    flat = [CostSample(n, 0, 30.0 + 0.5 * n) for n in range(1, 65)]
    return Machine(
        CostCurve(flat), {Origin.MODEL: CostCurve([CostSample(n, 0, 0.1) for n in range(1, 9)])}, n_ubatch=64
    )


@pytest.mark.parametrize(
    ("auto", "method", "call"),
    pairs([False, True], ["begin", "plan", "asks", "more", "choose", "observe"], [1, 5]),
)
def test_a_policy_that_fails_costs_no_text_and_a_fresh_one_drafts_on(auto: bool, method: str, call: int) -> None:
    made = []

    def policies():
        made.append(AutoPolicy(machine()) if auto else AutoPolicy())
        return Faulty(made[-1], **{method: fault})

    fault, clock = Fault(call), SimulatedClock()
    target = TimedModel(TARGET_VOCAB, clock, lambda n, _: 0.03 + 0.0005 * n, n_seq=2)
    draft = TimedModel(DRAFT_VOCAB, clock, lambda n, _: 0.0001, n_seq=2)
    engine = make_engine(target, make(Origin.MODEL, draft), clock=clock, policies=policies)
    speculative = SpeculativeParams() if auto else FIXED
    comes_back(engine, 1, speculative, temperature=0.8)
    assert len(made) == 2
    assert engine.totals().n_policy_failures == 1
    assert all(one.n_failures == 0 for one in engine.drafters())


# --- one request


class Broken:
    """A sampler, or a sink, that breaks when it is used for the n-th time."""

    def __init__(self, inner, n: int, name: str) -> None:
        self._inner, self._fault, self._name = inner, Fault(n, error=ZeroDivisionError), name

    def __getattr__(self, name: str):
        return Faulty(self._inner, **{self._name: self._fault}).__getattr__(name)

    def __call__(self, event) -> None:
        self._fault()
        self._inner(event)


def both(engine: Engine, asked: Sequence[Request], sinks: Sequence) -> None:
    for number, (request, sink) in enumerate(zip(asked, sinks, strict=True), 1):
        engine.submit(number, request, sink)
    for _ in range(500):
        if engine.is_idle:
            return
        engine.step()
    raise AssertionError("the loop does not come to an end")


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("what", ["pick", "accept", "close", "start"])
def test_a_sampler_that_fails_ends_its_request_alone(what: str, n: int) -> None:
    engine = engine_with(make(Origin.MODEL))
    real = engine.requests._samplers

    def samplers(request: Request, seed: int):
        if request.stop != ("broken",):
            return real(request, seed)
        if what == "start":
            raise ZeroDivisionError("injected")
        return Broken(real(request, seed), n, what)

    engine.requests._samplers = samplers
    one, other = requests(FIXED, n=2)
    first, second, third = Collector(), Collector(), Collector()
    both(engine, [replace(one, stop=("broken",)), other, one], [first, second, third])
    if what == "close":
        assert len(first.ids) == 60
    else:
        assert "ZeroDivisionError: injected" in str(first.failed.error)
        assert isinstance(first.failed.error, UadError)
        assert engine.totals().n_failed == 1
    assert [second.ids, third.ids] == PLAIN[0.0][1::-1]
    assert failures(engine) == 0


@pytest.mark.parametrize("n", [1, 4])
def test_a_sink_that_fails_ends_its_request_alone(n: int) -> None:
    engine = engine_with(make(Origin.MODEL))
    one, other = requests(FIXED, n=2)
    broken, second, third = Collector(), Collector(), Collector()
    both(engine, [one, other, one], [Broken(broken, n, "-"), second, third])
    assert broken.failed
    assert [second.ids, third.ids] == PLAIN[0.0][1::-1]


def test_a_sink_that_always_fails_holds_nobody_up() -> None:
    def sink(event) -> None:
        raise ZeroDivisionError

    engine = engine_with(None)
    one, other = requests(OFF, n=2)
    second = Collector()
    both(engine, [one, other], [sink, second])
    assert second.ids == PLAIN[0.0][1]


# --- the target


@pytest.mark.parametrize("call", [1, 3, 9])
@pytest.mark.parametrize("error", [DecodeError, NoKvRoomError, OSError])
@pytest.mark.parametrize("method", ["decode", "logits"])
def test_a_decode_that_fails_ends_its_requests_and_no_others(method: str, error: type[Exception], call: int) -> None:
    target = ScriptedModel(TARGET_VOCAB, 2)
    engine = make_engine(target, make(Origin.MODEL), clock=ticking())
    setattr(target, method, getattr(Faulty(target, **{method: Fault(call, error=error)}), method))
    asked = requests(FIXED)
    sinks = [Collector() for _ in asked]
    both(engine, asked, sinks)
    ended = [one for one in sinks if not one.ids or len(one.ids) < 60]
    assert 0 < len(ended) <= 2
    assert all("injected" in str(one.failed.error) for one in ended)
    assert engine.totals().n_failed == len(ended)
    for sink, plain in zip(sinks, PLAIN[0.0], strict=True):
        assert sink in ended or sink.ids == plain
    assert [one.ids for one in run(engine, asked)] == PLAIN[0.0]


@pytest.mark.parametrize("n_good", [0, 5])
def test_a_target_that_fails_for_good_is_said_to_everyone_and_ends_the_engine(n_good: int) -> None:
    target = ScriptedModel(TARGET_VOCAB, 2)
    engine = make_engine(target, make(Origin.MODEL), clock=ticking())
    target.decode = Faulty(target, decode=Fault(n_good + 1, times=10**9)).decode  # type: ignore[method-assign]
    sinks = [Collector() for _ in range(2)]
    with pytest.raises(DecodeError, match="injected"):
        both(engine, requests(FIXED, n=2), sinks)
    engine.requests.fail_all(UadError("over"))
    assert all(str(one.failed.error) in ("injected", "over") for one in sinks)


def test_fail_all_tells_everyone_though_a_drafter_cannot_end() -> None:
    engine = engine_with(Faulty(RandomDrafter(), end=Fault(1, times=9)))
    sinks = [Collector(), Collector()]
    for number, sink in enumerate(sinks):
        engine.submit(number, requests(FIXED)[0], sink)
    engine.step()
    engine.requests.fail_all(UadError("down"))
    assert all(str(sink.failed.error) == "down" for sink in sinks)
    assert engine.is_idle


# --- at start


@pytest.mark.parametrize("owner", ["Running", "begin"])
def test_a_request_that_cannot_start_leaves_no_sampler_open(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where its text cannot be set up, nor where those that draft for it cannot be told of it."""
    engine = engine_with(make(Origin.MODEL))
    real, n_open = engine.requests._samplers, []

    def samplers(request: Request, seed: int):
        sampler = real(request, seed)
        close = sampler.close
        n_open.append(sampler)

        def closed() -> None:
            close()
            n_open.remove(sampler)

        sampler.close = closed
        return sampler

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("injected")

    engine.requests._samplers = samplers
    asked = requests(FIXED, n=2)
    with monkeypatch.context() as patched:
        if owner == "Running":
            patched.setattr("uad.engine.decode.scheduler.Running", broken)
        else:
            patched.setattr(engine._drafting, "begin", broken)
        for sink in run(engine, asked):
            assert "ZeroDivisionError" in str(sink.failed.error)
    assert not n_open
    assert not engine.requests._matchers
    assert [sink.ids for sink in run(engine, asked)] == PLAIN[0.0][:2]
    assert not n_open
