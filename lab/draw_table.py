"""Draws README's chart of what `make table` measured, from the documents in lab/speed: `python lab/draw_table.py`.

Tokens per second over llama-server's without drafts, for each processor, type of weights and number of requests at
once: of ik_llama.cpp where it was measured, of uad without a draft, and of uad with it. A line spans uad's categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot
from speed_cells import IK, PLAIN, SERVER, UAD, Document, read
from speed_text import lines, short

ROOT = Path(__file__).parents[1]
CHART = ROOT / "docs" / "images" / "speed-table.png"
COLOURS = {IK: "#9a9a9a", PLAIN: "#56b4e9", UAD: "#0072b2"}


def draw(documents: Sequence[Document], path: Path) -> None:
    """A panel for each document, a group of bars for each of its lines."""
    pyplot.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
    found = [(document, lines(document)) for document in documents]
    rows = [len(some) for _, some in found]
    figure, panels = pyplot.subplots(
        len(found), 1, sharex=True, figsize=(7.4, 0.6 + 0.62 * sum(rows)), height_ratios=rows, layout="constrained"
    )
    title = ""
    for axes, (document, some) in zip([panels] if len(found) == 1 else panels, found, strict=True):
        names = [name for name in COLOURS if name in document.servers()]
        height = 0.8 / len(names)
        for row, line in enumerate(some):
            for i, name in enumerate(names):
                y, ratio = row + height * (i - (len(names) - 1) / 2), line.tps[name] / line.tps[SERVER]
                axes.barh(y, ratio, height, color=COLOURS[name], label=name if row == 0 else None)
                axes.text(0.03, y, f"{ratio:.2f}", va="center", color="white", size=8.5, weight="bold")
            y = row + height * (len(names) - 1) / 2
            least, most = min(line.categories.values()), max(line.categories.values())
            axes.plot((least, most), (y, y), color="#222222", lw=1, marker="|", ms=6)
        axes.axvline(1, color="#222222", lw=0.9)
        axes.set_yticks(range(len(some)), [f"{line.weights}, {_requests(line.slots)}" for line in some])
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        if short(document.machine) != title:  # else a panel of the same processor goes on
            title = short(document.machine)
            axes.set_title(title, loc="left", size=9.5)
        axes.set_xlim(left=0)
    figure.suptitle("Tokens per second over llama-server's; lines: worst to best category", x=0.01, ha="left")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _requests(n: int) -> str:
    return "1 request" if n == 1 else f"{n} at once"


if __name__ == "__main__":
    draw(read(list((ROOT / "lab" / "speed").glob("*.json"))), CHART)
