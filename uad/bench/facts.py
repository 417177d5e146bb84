"""What plots need to know of a pair besides its cells: costs, lengths chosen and accepted, calibration. Reads the engine, runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from uad.bench.measure import Engine, Measured, Round, Sample
from uad.bench.oracle import HasCosts

_ROWS = 33  # of the cost curve


@runtime_checkable
class HasCalibration(Protocol):
    """An engine that knows how often drafts of some confidence were right."""

    def calibration(self) -> Sequence[tuple[str, float, float, int]]:
        """(kind of draft, mean predicted probability, observed share of accepted ids, number of ids), one per bin."""
        ...


@dataclass(frozen=True, slots=True)
class Bin:
    """Drafted ids of one kind and about one predicted probability: the share of them that was accepted."""

    kind: str
    predicted: float
    observed: float
    n: int


@dataclass(frozen=True, slots=True)
class Run:
    """One group: `autos` are its runs under automatic policies, as places in `measured.runs`."""

    workload: str
    autos: tuple[int, ...]
    measured: Measured

    def rounds(self, arm: int) -> Iterator[Round]:
        """All rounds of the counted runs of one arm, without the prompts'."""
        for pair in self.measured.runs[arm]:
            yield from _rounds(pair.arm)

    @property
    def recorded(self) -> Iterator[Round]:
        """The rounds of the recording, none if nothing was recorded."""
        return _rounds(self.measured.recorded) if self.measured.recorded else iter(())


@dataclass(frozen=True, slots=True)
class PairFacts:
    """costs: (rows, milliseconds of a pass); chosen: rounds by drafted ids, of automatic policies; accepted: per workload, rounds by
    accepted ids, where N_MAX_AUTO were drafted; bins: None where the engine does not tell. What was not measured is empty."""

    target: str
    draft: str
    costs: tuple[tuple[int, float], ...]
    chosen: tuple[tuple[int, int], ...]
    accepted: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    bins: tuple[Bin, ...] | None

    @property
    def name(self) -> str:
        return f"{self.target} + {self.draft}"


def collect(target: str, draft: str, types: Collection[str], engine: Engine, runs: Sequence[Run]) -> PairFacts:
    """The facts of a pair that was measured; call it while the engine is open. Of its bins those of these drafters: what the engine learned
    of one is shared by all lists in which it is."""
    autos = (one for run in runs for arm in run.autos for one in run.rounds(arm))
    workloads = dict.fromkeys(run.workload for run in runs)
    recorded = {name: [one for run in runs if run.workload == name for one in run.recorded] for name in workloads}
    return PairFacts(
        target=target,
        draft=draft,
        costs=_costs(engine),
        chosen=_count(one.n_drafted for one in autos),
        accepted=tuple((name, _count(one.n_accepted for one in rounds)) for name, rounds in recorded.items() if rounds),
        bins=_bins(engine, types),
    )


def _bins(engine: Engine, types: Collection[str]) -> tuple[Bin, ...] | None:
    if not isinstance(engine, HasCalibration):
        return None
    return tuple(one for row in engine.calibration() if (one := Bin(*row)).kind.partition("/")[0] in types)


def _costs(engine: Engine) -> tuple[tuple[int, float], ...]:
    costs = engine.costs() if isinstance(engine, HasCosts) else None
    return tuple((n, costs.target_ms(n, 0)) for n in range(1, _ROWS + 1)) if costs else ()


def _count(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(Counter(numbers).items()))


def _rounds(sample: Sample) -> Iterator[Round]:
    for answer in sample.answers:
        yield from answer.rounds[1:]
