"""Draws lab/speed.png, and prints the table of lab/toys.md, from lab/speed.jsonl: JSON lines of `lab/bench.py`, one for
each run.

    .venv/bin/python lab/draw_speed.py

A cell that was measured more than once shows the median of all its runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

HERE = Path(__file__).parent
GREEDY = ("chat", "code", "copy-edit", "story")
ROWS = (*((name, 0.0) for name in GREEDY), ("chat", 1.0))
TARGETS = {"big-bf16": "1B BF16", "big-q8_0": "1B Q8_0", "big-q4_0": "1B Q4_0"}
DRAFTS = {"draft-zephyr": ("zephyr", "#0072b2"), "draft-gemma": ("gemma", "#e69f00"), "liar": ("liar", "#555555")}
SLOWER = 0.98


class Labels(NamedTuple):
    """What a cell is of."""

    target: str
    draft: str
    sequences: int
    workload: str
    temperature: float


class Cell(NamedTuple):
    """What was measured under one set of labels: medians of all its runs, and the ratio of each run."""

    ratio: float
    oracle_ratio: float | None
    oracle_share: float | None
    same_text: bool
    runs: tuple[float, ...]


Cells = dict[Labels, Cell]


def read(path: Path) -> Cells:
    """The cells of automatic policies, each over all lines that have it: no run is left out."""
    found: dict[Labels, list[dict[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        for one in json.loads(line)["cells"]:
            if one["policy"] == "auto":
                labels = Labels(one["target"], one["draft"], one["sequences"], one["workload"], one["temperature"])
                found.setdefault(labels, []).append(one)
    return {labels: combined(runs) for labels, runs in found.items()}


def combined(runs: Sequence[dict[str, Any]]) -> Cell:
    """One cell of all its runs."""
    return Cell(
        ratio=median(run["ratio"] for run in runs),
        oracle_ratio=_median(run["oracle_ratio"] for run in runs),
        oracle_share=_median(run["oracle_share"] for run in runs),
        same_text=all(run["same_text"] for run in runs),
        runs=tuple(run["ratio"] for run in runs),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def table(cells: Cells) -> str:
    """Markdown: a row for each target, draft and number of sequences."""
    lines = [
        (
            "| target | draft | sequences | auto | chat | code | copy-edit | story | chat, temperature 1 | least | of "
            "the oracle |"
        ),
        "|" + "---|" * 11,
    ]
    for target, about in TARGETS.items():
        for draft, (name, _) in DRAFTS.items():
            for n in (1, 4):
                row = [cells.get(Labels(target, draft, n, *one)) for one in ROWS]
                found = [cell for cell in row if cell is not None]
                if not found:
                    continue
                greedy = [cell.ratio for cell in row[: len(GREEDY)] if cell is not None]
                shares = [cell.oracle_share for cell in found if cell.oracle_share is not None]
                ratios = [f"{cell.ratio:.2f}" if cell is not None else "" for cell in row]
                ends = [f"{min(cell.ratio for cell in found):.3f}", f"{geometric_mean(shares):.2f}" if shares else ""]
                lines.append(
                    " | ".join([f"| {about}", name, str(n), f"**{geometric_mean(greedy):.2f}**", *ratios, *ends]) + " |"
                )
    return "\n".join(lines)


def summary(chosen: Sequence[Cell], about: str) -> str:
    """One line on these cells."""
    shares = [cell.oracle_share for cell in chosen if cell.oracle_share is not None]
    least = ", ".join(f"{ratio:.3f}" for ratio in sorted(cell.ratio for cell in chosen)[:4])
    n_again = sum(len(cell.runs) > 1 for cell in chosen)
    run = min(ratio for cell in chosen for ratio in cell.runs)
    oracle = f"; {geometric_mean(shares):.3f} of the oracle over {len(shares)}" if shares else ""
    same = sum(cell.same_text for cell in chosen)
    return (
        f"{about}: {len(chosen)} cells, least {least}; {n_again} run twice, least run {run:.3f}; same text in "
        f"{same}{oracle}"
    )


def draw(cells: Cells, path: Path) -> None:
    """A panel for each target: the ratio of every cell, and what the oracle reaches with the same drafts."""
    targets = [target for target in TARGETS if any(labels.target == target for labels in cells)]
    plt.rcParams.update(
        {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}
    )
    figure, panels = plt.subplots(
        1, len(targets), sharey=True, figsize=(3.4 * len(targets), 4.4), layout="constrained", squeeze=False
    )
    for axes, target in zip(panels[0], targets, strict=True):
        _panel(axes, [(labels, cell) for labels, cell in cells.items() if labels.target == target])
        axes.set_title(TARGETS[target])
    least = min(cell.ratio for cell in cells.values())
    figure.suptitle(
        f"Speed in plain decodings, by the clock: of {len(cells)} cells the least is {least:.3f}",
        x=0.01,
        ha="left",
        weight="bold",
    )
    figure.legend(
        handles=_keys(), loc="outside lower center", ncols=6, frameon=False, handlelength=1.2, columnspacing=1.4
    )
    figure.savefig(path, dpi=130)


def _panel(axes: Axes, cells: Sequence[tuple[Labels, Cell]]) -> None:
    for labels, cell in cells:
        colour, four = DRAFTS[labels.draft][1], labels.sequences > 1
        y = ROWS.index(labels[3:]) + (0.2 if four else -0.2) + 0.09 * (list(DRAFTS).index(labels.draft) - 1)
        if cell.oracle_ratio is not None:
            axes.plot(cell.oracle_ratio, y, "|", color=colour, ms=7, mew=1.2)
        axes.plot(cell.ratio, y, "s" if four else "o", color=colour, ms=5, mec="white", mew=0.4, zorder=3)
    axes.axvline(1, color="#222222", lw=0.9)
    axes.axvspan(0, SLOWER, color="#f7e3da", lw=0, zorder=0)
    axes.set_xscale("log")
    ticks = (1, 1.5, 2, 3, 4)
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks], minor=False)
    axes.set_xticks([], minor=True)
    axes.set(xlim=(0.9, 4.6), ylim=(len(ROWS) - 0.5, -0.5))
    axes.set_yticks(
        range(len(ROWS)), [f"{workload}{', temperature 1' if temperature else ''}" for workload, temperature in ROWS]
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_axisbelow(True)


def _keys() -> list[Line2D]:
    shapes: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("o", "one sequence", {}),
        ("s", "four", {}),
        ("|", "the oracle with the same drafts", {"ms": 8, "mew": 1.2}),
    )
    drafts = [Line2D([], [], color=colour, lw=5, label=name) for name, colour in DRAFTS.values()]
    return drafts + [
        Line2D([], [], color="#222222", ls="", marker=marker, label=label, **more) for marker, label, more in shapes
    ]


def main() -> None:
    """Draw, and print the table."""
    cells = read(HERE / "speed.jsonl")
    draw(cells, HERE / "speed.png")
    print(table(cells))
    print()
    for name, chosen in (("all", tuple(DRAFTS)), ("real drafts", ("draft-zephyr", "draft-gemma")), ("liar", ("liar",))):
        print(summary([cell for labels, cell in cells.items() if labels.draft in chosen], name))


if __name__ == "__main__":
    main()
