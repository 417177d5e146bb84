"""Records what the oracle and foresight must know, once for each group of prompts, and asks them. Knows no
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from bench_measure import BenchJob, Sample
from engines import n_prompt
from foresight import hindsight_of
from foresight import speed_up as foreseen
from jobs import KnownEngine, LabArm, told
from oracle import Costs, Round, speed_up

from uad.base.types import N_MAX_AUTO, Origin, SpecPolicy, SpeculativeParams

RECORDING = SpeculativeParams(policy=SpecPolicy.FIXED, n_max=N_MAX_AUTO, p_min=0.0, types=(Origin.MODEL,))
"""What the oracle knows: how many of the most ids that an automatic policy drafts would have been accepted in each
round.
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A group of prompts: the same texts again, with drafts of a fixed length, whatever their probability.

    rounds: of each prompt, the first is its decode. plain_tps: of plain decoding. `oracle` is the speed-up over plain
    of a policy that had known how many ids are right. `foresight` is that of one that had known how often each belief
    is right (of a single prompt); None if it is not known.
    """

    rounds: tuple[tuple[Round, ...], ...] = ()
    plain_tps: float = 0.0
    oracle: float | None = None
    foresight: float | None = None


class Recorder:
    """Lets the draft model draft along texts that were written, on an engine whose target computes nothing."""

    def __init__(self, engine: KnownEngine, recital: KnownEngine) -> None:
        """engine: whose costs count."""
        self._engine = engine
        self._recital = recital
        self._arm = LabArm("recording", recital, RECORDING)

    def record(self, jobs: Sequence[BenchJob], plain: Sequence[Sample]) -> Recorded:
        """A group that was decoded plainly: its rounds, and the oracle's speed-up."""
        costs = self._engine.costs()
        again = [told(job, answer.ids) for job, answer in zip(jobs, plain[0].answers, strict=True) if answer.ids]
        if costs is None or not again:
            return Recorded()
        self._arm.run(again)
        rounds = tuple(tuple(self._recital.rounds[job.slot]) for job in again)
        tps = median(one.tps for one in plain)
        return Recorded(rounds, tps, _oracle(again, rounds, tps, costs))

    def foresee(self, groups: Sequence[Sequence[BenchJob]], recorded: Sequence[Recorded]) -> list[Recorded]:
        """Recorded groups of one workload with the speed-up that beliefs allow, where each is of a single prompt."""
        costs = self._engine.costs()
        rounds = [
            one.rounds[0][1:] if len(jobs) == len(one.rounds) == 1 else ()
            for jobs, one in zip(groups, recorded, strict=True)
        ]
        known = hindsight_of([round_ for each in rounds for round_ in each])
        out = []
        for jobs, its_rounds, one in zip(groups, rounds, recorded, strict=True):
            if costs is not None and its_rounds and one.plain_tps > 0:
                plain_ms = 1e3 * sum(round_.n_ids for round_ in its_rounds) / one.plain_tps
                one = replace(one, foresight=foreseen(its_rounds, n_prompt(jobs[0]), costs, plain_ms, known))
            out.append(one)
        return out


def _oracle(jobs: Sequence[BenchJob], rounds: Sequence[Sequence[Round]], tps: float, costs: Costs) -> float | None:
    # the rate of a single answer is counted from its first id on, that of several from the start
    first = 1 if len(jobs) == 1 else 0
    runs = [[one.n_ids for one in each[first:]] for each in rounds]
    n_ids = sum(map(sum, runs))
    if tps <= 0 or not n_ids:
        return None
    return speed_up(runs, round(mean(map(n_prompt, jobs))), costs, 1e3 * n_ids / tps)
