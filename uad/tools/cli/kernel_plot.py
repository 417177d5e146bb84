"""Measurements of `uad kernels`, and their plot: rates of each type of weights. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uad.tools.cli.cost_plot import pyplot, save

GIGA = 1e9
OWN, THEIRS = "uad", "llama.cpp"
_OWN_COLOUR, _THEIRS_COLOUR, _GREY = "#0072b2", "#e69f00", "#666666"
_WIDTH = 0.38


@dataclass(frozen=True, slots=True)
class Timed:
    """A pass of n columns over some matrices: seconds of uad's kernels and of llama.cpp's."""

    n: int
    n_matrices: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TypeSpeed:
    """One type of weights. place: where llama.cpp has them; n_bytes, n_weights: of one matrix; timed: passes, those of
    fewer columns first.
    """

    name: str
    place: str
    n_bytes: int
    n_weights: int
    timed: tuple[Timed, ...]

    def bytes_per_s(self, speed: Timed, side: str) -> float:
        """Bytes of weights over time."""
        return self.n_bytes * speed.n_matrices / speed.seconds[side]

    def products_per_s(self, speed: Timed, side: str) -> float:
        """Multiplications, each with its addition, over time."""
        return self.n_weights * speed.n * speed.n_matrices / speed.seconds[side]

    def ratio(self, speed: Timed, side: str) -> float:
        """T(n)/T(1), each over the matrices of its pass."""
        single = self.timed[0]
        return speed.seconds[side] / speed.n_matrices * single.n_matrices / single.seconds[side]


@dataclass(frozen=True, slots=True)
class KernelSpeeds:
    """Measured speeds. kind: of processor that ran; kinds: those that this machine can run; size: rows and columns of
    a matrix; cache: bytes of the last caches; memory: bytes per second of a plain read; left: why types were left out.
    """

    kind: str
    kinds: tuple[str, ...]
    version: str
    n_threads: int
    size: tuple[int, int]
    cache: int
    memory: float
    types: tuple[TypeSpeed, ...]
    left: Mapping[str, str]

    @property
    def threads(self) -> str:
        """How many there are, in words."""
        return f"{self.n_threads} thread{'s' * (self.n_threads > 1)}"

    @property
    def most_products(self) -> float:
        """The largest rate of products, whoever reached it."""
        return max(
            speed.products_per_s(timed, side) for speed in self.types for timed in speed.timed for side in (OWN, THEIRS)
        )


def draw(speeds: KernelSpeeds, path: Path) -> None:
    """A panel for each number of columns. Raises ConfigError without matplotlib, or where it cannot be written."""
    passes = speeds.types[0].timed
    width = 1.0 + max(3.4, 1.0 + 0.55 * len(speeds.types)) * len(passes)
    figure, panels = pyplot().subplots(1, len(passes), figsize=(width, 4.8), layout="constrained", squeeze=False)
    for i, axes in enumerate(panels[0]):
        _panel(axes, speeds, i)
    figure.suptitle(f"uad's kernels ({speeds.kind}) and llama.cpp's, {speeds.threads}")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=len(labels), loc="outside lower center")
    save(figure, path)


def _panel(axes: Any, speeds: KernelSpeeds, i: int) -> None:
    """Bars of a pass: bytes while memory is the limit, products where arithmetic is."""
    is_last = i == len(speeds.types[0].timed) - 1
    for side, colour, shift in ((OWN, _OWN_COLOUR, -0.5), (THEIRS, _THEIRS_COLOUR, 0.5)):
        rates = [
            (speed.products_per_s if is_last else speed.bytes_per_s)(speed.timed[i], side) for speed in speeds.types
        ]
        places = [at + shift * _WIDTH for at in range(len(rates))]
        axes.bar(places, [rate / GIGA for rate in rates], _WIDTH, color=colour, label=side)
    limit = speeds.most_products if is_last else speeds.memory
    name = "largest rate seen" if is_last else "plain read of memory"
    axes.axhline(limit / GIGA, color=_GREY, ls="--", lw=1)
    axes.annotate(
        name,
        (0, limit / GIGA),
        xycoords=("axes fraction", "data"),
        xytext=(3, 4),
        textcoords="offset points",
        fontsize=8,
    )
    n = speeds.types[0].timed[i].n
    axes.set(
        title=f"{n} column{'s' * (n > 1)}",
        ylabel="billion products per second" if is_last else "GB of weights per second",
        xticks=range(len(speeds.types)),
    )
    axes.set_xticklabels([speed.name for speed in speeds.types], rotation=0 if len(speeds.types) < 6 else 60)
    axes.set_ylim(0, 1.1 * max(limit / GIGA, axes.get_ylim()[1] / 1.05))
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
