"""The plots of `lab/bench.py --report`: costs and chosen lengths, speed-up, accepted lengths, reliability. Draws what
it is given.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_cells import is_auto, summarize
from bounded import Bounded
from facts import PairFacts

from uad.base.types import N_MAX_AUTO
from uad.tools.bench.ratios import SLOWER
from uad.tools.cli.cost_plot import pyplot, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# Okabe and Ito's colours, which stay apart for the colour-blind
_INK, _GREY, _AUTO, _SERIES = (
    "#222222",
    "#8c8c8c",
    "#d55e00",
    ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#555555"),
)
_FIXED = ("#b9d3e8", "#86b3d6", "#4f8fc0", "#20669c", "#0b3c62")  # light to dark: shorter to longer
_MARKERS = "osD^vP"
_COLUMNS = 3
_CHARS_PER_INCH = 8.5  # of the title
_STYLE: Any = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
}


def draw_costs(pairs: Sequence[PairFacts], path: Path) -> None:
    """T(n) / T(1) of every pair with costs, and beneath it how often the automatic policy submitted a pass of that many
    rows.
    """
    with _figure(path, len(pairs), 4.6, 4.2) as (figure, cells):
        dear = [pair.costs[-1][1] / pair.costs[0][1] for pair in pairs]
        n_rows = pairs[0].costs[-1][0]
        _title(figure, f"A pass of {n_rows} rows costs {_span(dear)} times a pass of one")
        for pair, cell in zip(pairs, cells, strict=True):
            _costs(cell, pair)


def _costs(cell: SubFigure, pair: PairFacts) -> None:
    top, bottom = cell.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    one = pair.costs[0][1]
    rows = [n for n, _ in pair.costs]
    top.plot(rows, [ms / one for _, ms in pair.costs], color=_SERIES[0], marker="o", ms=3, lw=1.4)
    top.axhline(1, color=_GREY, lw=0.8)
    top.set(title=f"{pair.name}\none row: {one:.2g} ms", ylabel="cost of a pass, T(n) / T(1)", ylim=(0, None))
    top.grid(axis="y")
    total = sum(n for _, n in pair.chosen)
    bottom.bar(
        [1 + length for length, _ in pair.chosen], [100 * n / total for _, n in pair.chosen], color=_AUTO, width=0.7
    )
    bottom.set(
        xlabel="rows of a sequence in the pass (1 + drafted ids)", ylabel="rounds of auto, %", xlim=(0, rows[-1] + 1)
    )
    bottom.grid(axis="y")
    if not total:
        bottom.text(0.5, 0.5, "no automatic policy was measured", transform=bottom.transAxes, ha="center", color=_GREY)


def draw_speed_up(cells: Sequence[Bounded], path: Path) -> None:
    """Ratio to plain of every cell, with the range over its prompts; one panel for each pair. The peer's cells are not
    among them.
    """
    pairs = list(dict.fromkeys((cell.labels.target, cell.labels.draft) for cell in cells))
    colours = _policy_colours(list(dict.fromkeys(cell.labels.policy for cell in cells)))
    n_lines = max(
        len({_row(cell) for cell in cells if (cell.labels.target, cell.labels.draft) == pair}) for pair in pairs
    )
    with _figure(path, len(pairs), 4.6, 1.6 + n_lines * (0.18 + 0.1 * len(colours))) as (figure, subfigures):
        _title(figure, _speed_finding(cells))
        for pair, subfigure in zip(pairs, subfigures, strict=True):
            chosen = [cell for cell in cells if (cell.labels.target, cell.labels.draft) == pair]
            axes = subfigure.subplots()
            _speed(axes, chosen, colours)
            axes.set_title(f"{pair[0]} + {pair[1]}")
        handles, labels = _handles(colours, any(cell.oracle for cell in cells))
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), handletextpad=0.3)


def _speed_finding(cells: Sequence[Bounded]) -> str:
    total = summarize(cells)
    one = total.auto or max(total.standings, key=lambda standing: standing.geomean)
    against = f", {total.auto_over_best_fixed:.2f}× the best fixed length" if total.auto_over_best_fixed else ""
    return f"{one.policy}: {one.geomean:.2f}× plain on average, {one.worst.ratio:.2f}× in the worst cell{against}"


def _row(cell: Bounded) -> str:
    labels = cell.labels
    more = [f"t={labels.temperature:g}"] * (labels.temperature > 0) + [f"{labels.sequences} at once"] * (
        labels.sequences > 1
    )
    return ", ".join([labels.workload, *more])


def _speed(axes: Axes, cells: Sequence[Bounded], colours: Mapping[str, str]) -> None:
    rows = list(dict.fromkeys(map(_row, cells)))
    step = 0.8 / max(len(colours), 1)
    for cell in cells:
        order = list(colours).index(cell.labels.policy)
        y = rows.index(_row(cell)) + (order - (len(colours) - 1) / 2) * step
        colour, auto = colours[cell.labels.policy], is_auto(cell.labels.policy)
        axes.plot((cell.low, cell.high), (y, y), color=colour, lw=1.2, alpha=0.7, solid_capstyle="butt")
        axes.plot(cell.ratio, y, "o", color=colour, ms=6 if auto else 4.5, mec="white", mew=0.5, zorder=3)
        if auto and cell.oracle is not None:
            axes.plot(cell.oracle, y, "D", mfc="none", mec=_INK, ms=5, mew=0.9, zorder=2)
    axes.axvline(1, color=_INK, lw=0.9)
    axes.axvspan(0, SLOWER, color="#f7e3da", lw=0, zorder=0)
    axes.set(
        xlabel="speed, times plain (line: range over the prompts)", ylim=(len(rows) - 0.5, -0.5), xlim=_limits(cells)
    )
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _limits(cells: Sequence[Bounded]) -> tuple[float, float]:
    ends = [
        x
        for cell in cells
        for x in (cell.low, cell.high, *((cell.oracle,) if cell.oracle and is_auto(cell.labels.policy) else ()))
    ]
    low, high = min(0.9, *ends), max(1.1, *ends)
    return max(low - 0.04 * (high - low), 0.0), high + 0.04 * (high - low)


def _policy_colours(policies: Sequence[str]) -> dict[str, str]:
    """Plain grey, fixed lengths from light to dark in their order, automatic ones in a colour of their own."""
    fixed = [policy for policy in policies if policy.startswith("fixed")]
    autos = [policy for policy in policies if is_auto(policy)]
    shades = {
        policy: _FIXED[min(i + max(len(_FIXED) - len(fixed), 0) // 2, len(_FIXED) - 1)]
        for i, policy in enumerate(fixed)
    }
    own = {policy: (_AUTO, *_SERIES[2:])[min(i, 4)] for i, policy in enumerate(autos)}
    return {policy: shades.get(policy) or own.get(policy) or _GREY for policy in policies}


def _handles(colours: Mapping[str, str], with_oracle: bool) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], ls="", marker="o", color=colour, ms=5) for colour in colours.values()]
    labels = list(colours)
    if with_oracle:
        handles.append(Line2D([], [], ls="", marker="D", mfc="none", mec=_INK, ms=5))
        labels.append("oracle")
    return handles, labels


def draw_accepted(pairs: Sequence[PairFacts], path: Path) -> None:
    """For each workload the share of rounds in which at least n drafted ids were accepted, where as many as possible
    were drafted.
    """
    with _figure(path, len(pairs), 4.4, 3.4) as (figure, cells):
        all_counts = [counts for pair in pairs for _, counts in pair.accepted]
        _title(
            figure,
            f"Of {N_MAX_AUTO} drafted ids {_span([_mean(counts) for counts in all_counts])} are accepted in a round "
            "on average",
        )
        for pair, cell in zip(pairs, cells, strict=True):
            axes = cell.subplots()
            for i, (workload, counts) in enumerate(pair.accepted):
                lengths, shares = _at_least(counts)
                style: dict[str, Any] = {
                    "color": _SERIES[i % len(_SERIES)],
                    "marker": _MARKERS[i % len(_MARKERS)],
                    "ms": 3.5,
                    "lw": 1.4,
                }
                axes.plot(lengths, shares, label=f"{workload} ({_mean(counts):.1f})", **style)
            axes.set(
                title=pair.name,
                xlabel="accepted ids n",
                ylabel="rounds with at least n accepted, %",
                ylim=(0, 102),
                xlim=(0, None),
            )
            axes.grid()
            axes.legend(title="workload (mean)", title_fontsize=9, fontsize=9, alignment="left")


def _at_least(counts: Sequence[tuple[int, int]]) -> tuple[list[int], list[float]]:
    total = sum(n for _, n in counts)
    lengths = list(range(max(length for length, _ in counts) + 1))
    return lengths, [100 * sum(n for length, n in counts if length >= at) / total for at in lengths]


def _mean(counts: Sequence[tuple[int, int]]) -> float:
    return sum(length * n for length, n in counts) / sum(n for _, n in counts)


def draw_reliability(pairs: Sequence[PairFacts], path: Path) -> None:
    """Predicted probability of acceptance against what was observed; points are bins, their area the number of drafted
    ids.
    """
    with _figure(path, len(pairs), 4.0, 3.9) as (figure, cells):
        bins = [one for pair in pairs for one in pair.bins]
        off = sum(one.n * abs(one.observed - one.predicted) for one in bins) / sum(one.n for one in bins)
        _title(figure, f"Predicted acceptance is off by {100 * off:.0f} points on average")
        for pair, cell in zip(pairs, cells, strict=True):
            _reliability(cell.subplots(), pair)


def _reliability(axes: Axes, pair: PairFacts) -> None:
    bins = pair.bins
    most = max((one.n for one in bins), default=1)
    axes.plot((0, 1), (0, 1), color=_GREY, lw=0.9)
    for i, kind in enumerate(dict.fromkeys(one.kind for one in bins)):
        own = sorted((one for one in bins if one.kind == kind), key=lambda one: one.predicted)
        x, y, size = (
            [one.predicted for one in own],
            [one.observed for one in own],
            [12 + 90 * one.n / most for one in own],
        )
        colour = _SERIES[i % len(_SERIES)]
        axes.plot(x, y, color=colour, lw=1, alpha=0.6)
        axes.scatter(
            x,
            y,
            s=size,
            color=colour,
            marker=_MARKERS[i % len(_MARKERS)],
            edgecolor="white",
            lw=0.5,
            label=kind,
            zorder=3,
        )
    axes.text(0.97, 0.06, "below the line:\ntoo confident", ha="right", color=_GREY, fontsize=8.5)
    axes.set(
        title=pair.name,
        xlabel="predicted acceptance",
        ylabel="observed acceptance",
        xlim=(0, 1.02),
        ylim=(0, 1.02),
        aspect="equal",
    )
    axes.grid()
    handles: list[Any] = axes.legend(loc="upper left", fontsize=8.5).legend_handles
    for handle in handles:
        handle.set_sizes([30])


def _title(figure: Figure, finding: str) -> None:
    """The finding above everything, in as many lines as it needs."""
    figure.suptitle(textwrap.fill(finding, int(_CHARS_PER_INCH * figure.get_figwidth())))


def _span(values: Sequence[float]) -> str:
    """The range of some numbers, or the only one."""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


@contextmanager
def _figure(path: Path, n: int, width: float, height: float) -> Iterator[tuple[Figure, list[SubFigure]]]:
    """A figure with n panels in rows of three, written to `path` at the end. width, height: inches of a panel. Raises
    ConfigError.
    """
    plt = pyplot()
    n_columns = 2 if n == 4 else min(n, _COLUMNS)
    n_rows = -(-n // n_columns)
    with plt.rc_context(_STYLE):
        figure = plt.figure(figsize=(max(width * n_columns, 6.4), height * n_rows + 0.6), layout="constrained")
        try:
            grid = figure.subfigures(n_rows, n_columns, squeeze=False)
            yield figure, [cell for row in grid for cell in row][:n]
            save(figure, path, "--report")
        finally:
            plt.close(figure)
