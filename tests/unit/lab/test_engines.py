"""Engines in this process, with known times: rounds in turns, requests, and what fails."""

import pytest
from bench_options import PLAIN
from engines import EngineArm, make_job
from kit.bench_kit import FakeEngine, job

from uad.base.errors import DecodeError, InvalidRequestError, UadError
from uad.base.events import Delta, Done, Failed
from uad.base.stats import DraftStats, Timings, Usage
from uad.base.types import Finish, Origin, SpecPolicy, SpeculativeParams, StopKind
from uad.tools.bench.workloads import WorkloadPrompt


class Steady(FakeEngine):
    """Each round takes the same time; `sizes` says how many ids come of it."""

    def __init__(self, name, steps, sizes, ms):
        super().__init__()
        self.name, self.steps, self.sizes, self.ms = name, steps, sizes, ms

    def script(self, number, request):
        done = Done(
            number,
            Finish.STOP,
            StopKind.EOS,
            Usage(1, 0, sum(self.sizes)),
            Timings(1.0, 1.0, 1, 0, sum(self.sizes), DraftStats()),
        )
        rounds = [(self.ms, [Delta(number, (1,) * n, (Origin.TARGET,) * n, "a" * n)]) for n in self.sizes]
        rounds[-1][1].append(done)
        return rounds


@pytest.mark.parametrize("first", [True, False])
def test_plain_decoding_runs_beside_each_policy_round_by_round(first):
    """Who is behind makes the next round, and only its own rounds are its time."""
    steps = []
    drafted, alone = Steady("drafted", steps, (1, 4, 1), 30.0), Steady("alone", steps, (1,) * 6, 10.0)
    arm, plain = EngineArm("auto", drafted, SpeculativeParams()), EngineArm("plain", alone, PLAIN.speculative)
    pair = arm.beside(plain, [job()], first)
    start = ["drafted", "alone", "drafted"] if first else ["alone", "drafted", "alone", "drafted"]
    assert steps[: len(start)] == start
    assert sorted(steps[len(start) :]) == ["alone"] * (9 - len(start) - 1) + ["drafted"]
    assert (pair.plain.tps, pair.arm.tps) == (pytest.approx(100), pytest.approx(5 / 0.06))
    assert pair.ratio == pytest.approx(5 / 6)


def test_several_sequences_share_the_time_from_the_start():
    result = EngineArm("plain", FakeEngine(), PLAIN.speculative).run([job("a"), job("b")])
    assert result.tps == pytest.approx(10 / 0.041)
    assert [answer.n_predicted for answer in result.answers] == [5, 5]


def test_prompts_go_through_the_template_only_if_chat():
    engine = FakeEngine()
    assert make_job(engine, WorkloadPrompt("a", "ab", True), 0.0, 1, 8).ids == (0, 97, 98, 1)
    assert make_job(engine, WorkloadPrompt("a", "ab", False), 0.0, 1, 8).ids == (97, 98)


def test_a_failed_request_ends_the_run_and_cancels_the_others():
    engine = FakeEngine()
    engine.script = lambda number, request: [
        (1.0, [Failed(1, DecodeError("no")) if number == 1 else Delta(number, (1,), (Origin.TARGET,), "a")])
    ]
    with pytest.raises(DecodeError):
        EngineArm("plain", engine, PLAIN.speculative).run([job("a"), job("b")])
    assert engine.cancelled == [2]


def test_a_request_that_cannot_be_submitted_cancels_the_others():
    drafted, alone = FakeEngine(), FakeEngine()
    alone.submit = lambda request, sink: (_ for _ in ()).throw(InvalidRequestError("no"))
    with pytest.raises(InvalidRequestError):
        EngineArm("auto", drafted, SpeculativeParams()).beside(
            EngineArm("plain", alone, PLAIN.speculative), [job()], first=True
        )
    assert drafted.cancelled == [1]


def test_a_request_without_an_end_is_noticed():
    engine = FakeEngine()
    engine.script = lambda number, request: [(1.0, [Delta(number, (1,), (Origin.TARGET,), "a")])]
    with pytest.raises(UadError, match="lost"):
        EngineArm("plain", engine, PLAIN.speculative).run([job()])


def test_requests_carry_policy_seed_and_slot():
    fixed = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=8, p_min=0.25, types=(Origin.MODEL,))
    engine = FakeEngine()
    (request,) = [EngineArm("fixed", engine, fixed).request(job())]
    assert (request.speculative, request.prompt) == (fixed, (9,))
    assert (request.sampling.seed, request.sampling.temperature, request.slot, request.max_tokens) == (1, 0.0, 0, 160)
