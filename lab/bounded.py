"""Cells with what could have been gained at best: their table, their lines, and what they add to the JSON line.
Measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bench_cells import PEER, Cell, is_auto
from bench_cells import summary as measured
from rich.console import Console
from rich.table import Table

from uad.tools.bench.ratios import coloured, rounded


@dataclass(frozen=True, slots=True)
class Bounded(Cell):
    """`oracle` is the ratio of the oracle over the same prompts, `foresight` that of a policy that knows how often
    beliefs are right; None if it was not measured.
    """

    oracle: float | None = None
    foresight: float | None = None

    @property
    def oracle_share(self) -> float | None:
        """Speed as a share of the oracle's."""
        return None if self.oracle is None else self.ratio / self.oracle

    @property
    def foresight_share(self) -> float | None:
        """Speed as a share of what beliefs allow."""
        return None if self.foresight is None else self.ratio / self.foresight


def mean_of_all(ratios: Sequence[float | None]) -> float | None:
    """The geometric mean; None where one is missing."""
    known = [one for one in ratios if one is not None]
    return geometric_mean(known) if known and len(known) == len(ratios) else None


def _autos(cells: Sequence[Bounded]) -> list[Bounded]:
    return [cell for cell in cells if is_auto(cell.labels.policy) and cell.labels.policy != PEER]


def _mean_of_known(ratios: Sequence[float | None]) -> float | None:
    return mean_of_all([one for one in ratios if one is not None])


def _shares(cells: Sequence[Bounded]) -> tuple[float | None, float | None]:
    """Of the oracle and of foresight: geometric means over the cells of automatic policies."""
    autos = _autos(cells)
    return _mean_of_known([one.oracle_share for one in autos]), _mean_of_known([one.foresight_share for one in autos])


def bounds(cells: Sequence[Bounded]) -> list[str]:
    """A line for each bound."""
    of_oracle, of_foresight = _shares(cells)
    lines = []
    if of_oracle is not None:
        lines.append(f"automatic lengths reach {of_oracle:.0%} of the oracle's speed")
    if of_foresight is not None:
        lines.append(
            f"one sequence: {of_foresight:.0%} of what the beliefs of these drafts allow, whoever goes by them"
        )
    return lines


def print_bounds(console: Console, cells: Sequence[Bounded]) -> None:
    """A row for each cell of an automatic policy that has a bound, then the lines."""
    table = Table("cell", title="automatic lengths against what could have been gained at best")
    for name in ("ratio", "oracle", "of oracle", "foresight", "of foresight"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in _autos(cells):
        if cell.oracle is not None:
            numbers = (
                _ratio(cell.oracle),
                _share(cell.oracle_share),
                _ratio(cell.foresight),
                _share(cell.foresight_share),
            )
            table.add_row(cell.labels.line, coloured(cell.ratio), *numbers)
    if table.row_count:
        console.print(table)
    for line in bounds(cells):
        console.print(line, highlight=False, soft_wrap=True)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def summary(cells: Sequence[Bounded]) -> dict[str, object]:
    """The JSON line: that of `bench_servers.py`, with the bounds."""
    line = measured(cells)
    found = line["cells"]
    assert isinstance(found, list)
    for cell, value in zip(cells, found, strict=True):
        if is_auto(cell.labels.policy):
            value |= {"oracle_ratio": rounded(cell.oracle), "oracle_share": rounded(cell.oracle_share)}
            value |= {"foresight_ratio": rounded(cell.foresight), "foresight_share": rounded(cell.foresight_share)}
    of_oracle, of_foresight = _shares(cells)
    return line | {"oracle_share": rounded(of_oracle), "foresight_share": rounded(of_foresight)}
