"""The report in a folder: report.md with the numbers, plots beside it. Knows cells and facts, measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import plots
from bench_cells import LABELS, NUMBERS, PEER, is_auto, row, summarize, totals
from bounded import Bounded, bounds
from facts import PairFacts

from uad.base.errors import ConfigError
from uad.tools.bench.ratios import FASTER, SLOWER

T = TypeVar("T")


def write_report(folder: Path, cells: Sequence[Bounded], pairs: Sequence[PairFacts], notes: Sequence[str]) -> None:
    """Write report.md and its plots into an existing folder; overwrites. Raises ConfigError where that fails."""
    parts = ["# Draft lengths against plain decoding", _summary(cells), *_pictures(folder, cells, pairs), _cells(cells)]
    if notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in notes))
    path = folder / "report.md"
    try:
        path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--report: cannot write {path}: {error.strerror or error}") from None


def _summary(cells: Sequence[Bounded]) -> str:
    rows = [
        (one.policy, str(one.n_cells), _ratio(one.geomean), _ratio(one.worst.ratio), one.worst.labels.line)
        for one in summarize(cells).standings
    ]
    lines = [*[line.plain for line in totals(cells)][len(rows) :], *bounds(cells)]
    head = (
        "Ratios are tokens per second of decoding over plain decoding, measured beside it, round by round, in one "
        "process."
    )
    legend = f"Bold: more than {FASTER:g}. With (!): less than {SLOWER:g}."
    table = _table(("policy", "cells", "geometric mean", "worst", "worst cell"), rows)
    return "\n\n".join(
        [f"{head} {legend}", *([table] if rows else []), *(f"{line[0].upper()}{line[1:]}." for line in lines)]
    )


def _pictures(folder: Path, cells: Sequence[Bounded], pairs: Sequence[PairFacts]) -> list[str]:
    """Every plot that there are numbers for; a sentence for each that there are none for."""
    costs = [pair for pair in pairs if pair.costs]
    accepted = [pair for pair in pairs if pair.accepted]
    bins = [pair for pair in pairs if pair.bins]
    own = [cell for cell in cells if cell.labels.policy != PEER]
    return [
        _picture(folder, "Speed-up", "speed-up.png", plots.draw_speed_up, own, "only the peer was measured"),
        _picture(
            folder,
            "Cost of a pass and lengths chosen",
            "costs.png",
            plots.draw_costs,
            costs,
            "nothing drafts, so there are no costs",
        ),
        _picture(
            folder,
            "Accepted lengths",
            "accepted.png",
            plots.draw_accepted,
            accepted,
            "nothing was recorded for the oracle",
        ),
        _picture(
            folder,
            "Reliability",
            "reliability.png",
            plots.draw_reliability,
            bins,
            "nothing was drafted, so there is no calibration",
        ),
    ]


def _picture(
    folder: Path, title: str, name: str, draw: Callable[[Sequence[T], Path], None], data: Sequence[T], why_not: str
) -> str:
    if not data:
        return f"## {title}\n\nNo plot: {why_not}."
    draw(data, folder / name)
    return f"## {title}\n\n![{title}]({name})"


def _cells(cells: Sequence[Bounded]) -> str:
    rows = [(*row(cell, _ratio(cell.ratio), unknown=""), _oracle_share(cell)) for cell in cells]
    return "## Cells\n\n" + _table((*LABELS, *NUMBERS, "of oracle"), rows)


def _oracle_share(cell: Bounded) -> str:
    share = cell.oracle_share if is_auto(cell.labels.policy) else None
    return "" if share is None else f"{share:.0%}"


def _ratio(ratio: float) -> str:
    return f"**{ratio:.2f}**" if ratio > FASTER else f"{ratio:.2f} (!)" if ratio < SLOWER else f"{ratio:.2f}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
