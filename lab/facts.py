"""What plots need to know of a pair besides its cells: costs, lengths chosen and accepted, calibration. Runs
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from oracle import Costs, Round

from uad.engine.policy.calibration import Calibration

_ROWS = 33  # of the cost curve


@dataclass(frozen=True, slots=True)
class Bin:
    """Drafted ids of one kind and about one predicted probability: the share of them that was accepted."""

    kind: str
    predicted: float
    observed: float
    n: float


def bins(kind: str, calibration: Calibration) -> list[Bin]:
    """The bins of one kind of draft that have seen something."""
    rows = zip(calibration.predicted, calibration.accepted, calibration.n, strict=True)
    return [Bin(kind, predicted / n, accepted / n, n) for predicted, accepted, n in rows if n > 0]


@dataclass(frozen=True, slots=True)
class Run:
    """What one cell shows of its pair: rounds under automatic policies, and those that were recorded for the oracle."""

    workload: str
    chosen: Sequence[Round]
    recorded: Sequence[Round]


@dataclass(frozen=True, slots=True)
class PairFacts:
    """costs: (rows, milliseconds of a pass); chosen: rounds by drafted ids, of automatic policies; accepted: per
    workload, rounds by accepted ids, where N_MAX_AUTO were drafted. What was not measured is empty.
    """

    target: str
    draft: str
    costs: tuple[tuple[int, float], ...]
    chosen: tuple[tuple[int, int], ...]
    accepted: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
    bins: tuple[Bin, ...]

    @property
    def name(self) -> str:
        return f"{self.target} + {self.draft}"


def collect(
    target: str,
    draft: str,
    types: Collection[str],
    costs: Costs | None,
    calibration: Iterable[Bin],
    runs: Sequence[Run],
) -> PairFacts:
    """The facts of a pair that was measured. Of the bins those of these drafters: what the engine learned of one is
    shared by all lists in which it is.
    """
    names = dict.fromkeys(run.workload for run in runs)
    recorded = {name: [one for run in runs if run.workload == name for one in run.recorded] for name in names}
    return PairFacts(
        target=target,
        draft=draft,
        costs=tuple((n, costs.target_ms(n, 0)) for n in range(1, _ROWS + 1)) if costs else (),
        chosen=_count(one.n_drafted for run in runs for one in run.chosen),
        accepted=tuple((name, _count(one.n_accepted for one in rounds)) for name, rounds in recorded.items() if rounds),
        bins=tuple(one for one in calibration if one.kind.partition("/")[0] in types),
    )


def _count(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(Counter(numbers).items()))
