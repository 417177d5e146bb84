"""Records what the oracle and foresight must know, once for each group of prompts, and asks them. Knows the engine's front door and no
arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, median

from uad.bench.foresight import Hindsight
from uad.bench.foresight import speed_up as foreseen
from uad.bench.measure import Engine, EngineArm, Job, Measured, Sample
from uad.bench.options import RECORDING
from uad.bench.oracle import Costs, HasCosts, speed_up


class Recorder:
    """Lets the draft model draft along the texts that plain decoding wrote, on an engine whose target computes nothing."""

    def __init__(self, engine: HasCosts, recital: Engine) -> None:
        self._engine = engine
        self._arm = EngineArm(RECORDING.name, recital, RECORDING.speculative)

    @classmethod
    def of(cls, engine: Engine, recital: Engine) -> Recorder | None:
        """engine: whose costs the oracle has. None if it cannot tell them, without which an oracle has no time."""
        if not isinstance(engine, HasCosts) or engine.costs() is None:
            return None
        return cls(engine, recital)

    def add(self, jobs: Sequence[Job], measured: Measured) -> Measured:
        """The measured group with a recording and the oracle's speed-up."""
        costs = self._engine.costs()
        plain = [pair.plain for runs in measured.runs for pair in runs]
        told = [replace(job, answer=answer.ids) for job, answer in zip(jobs, plain[0].answers, strict=True) if answer.ids]
        if costs is None or not told:
            return measured
        recorded = self._arm.run(told)
        return replace(measured, recorded=recorded, oracle=_speed_up(told, recorded, plain, costs))

    def foresee(self, groups: Sequence[Sequence[Job]], measured: Sequence[Measured]) -> list[Measured]:
        """Recorded groups of one workload with the speed-up that beliefs allow, where each is of a single prompt."""
        costs = self._engine.costs()
        recorded = [one.recorded.answers[0].rounds[1:] if one.recorded is not None and len(one.names) == 1 else () for one in measured]
        known = Hindsight([round_ for rounds in recorded for round_ in rounds])
        out = []
        for jobs, rounds, one in zip(groups, recorded, measured, strict=True):
            tps = median(pair.plain.tps for runs in one.runs for pair in runs)
            if costs is not None and rounds and tps > 0:
                plain_ms = 1e3 * sum(round_.n_ids for round_ in rounds) / tps
                one = replace(one, foresight=foreseen(rounds, len(jobs[0].ids), costs, plain_ms, known))
            out.append(one)
        return out


def _speed_up(jobs: Sequence[Job], recorded: Sample, plain: Sequence[Sample], costs: Costs) -> float | None:
    tps = median(one.tps for one in plain)
    # the rate of a single answer is counted from its first id on, that of several from the start
    first = 1 if len(jobs) == 1 else 0
    runs = [[one.n_ids for one in answer.rounds[first:]] for answer in recorded.answers]
    n_ids = sum(map(sum, runs))
    if tps <= 0 or not n_ids:
        return None
    return speed_up(runs, round(mean(len(job.ids) for job in jobs)), costs, 1e3 * n_ids / tps)
