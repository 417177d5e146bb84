"""Measurements of `uad profile` of a model, and their plot: what n rows cost in one pass, in single rows, for every
depth. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uad.base.common.files import is_folder, why_not_writable
from uad.base.common.numbers import rounded
from uad.base.errors import ConfigError

if TYPE_CHECKING:
    from uad.engine.policy.cost import CostSample

_SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's, which colour-blind people can distinguish too
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_MARKERS = "os^Dv*"
_GREY = "#666666"


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """One model's curve: a sample for each size and depth, the file that keeps it, how much single decodes differed
    (uad.runtime.costs.profile.spread), and why it was not stored ("": it was)."""

    role: str
    model: str
    samples: tuple[CostSample, ...]
    file: Path
    spread: float
    why_not: str = ""


def check(path: Path) -> None:
    """Raise ConfigError for a --plot that could not be drawn later: before minutes of measuring, not after."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"--plot {path}: the name must end in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}")
    if not is_folder(path.absolute().parent):
        raise ConfigError(f"--plot {path}: there is no directory {path.parent}")
    if why := why_not_writable(path):
        raise ConfigError(f"--plot {path}: cannot be written ({why})")
    pyplot()


def pyplot() -> Any:
    """matplotlib.pyplot without a display, imported now. Raises ConfigError where matplotlib is missing or broken."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'uad[lab]'") from None
    except Exception as error:  # built for another numpy, no folder for its cache
        raise ConfigError(f"plots need matplotlib, which cannot be loaded ({error}); leave out --plot") from None
    return plt


def save(figure: Any, path: Path) -> None:
    """Write the figure, in the format that the name says, and close it. Raises ConfigError where it cannot be
    written.
    """
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {path}: cannot be written ({error})") from None
    finally:
        pyplot().close(figure)


def draw(curves: Sequence[MeasuredCurve], path: Path) -> None:
    """One panel for each model's curve. Raises ConfigError without matplotlib, or where the file cannot be written."""
    figure, panels = pyplot().subplots(
        1, len(curves), figsize=(1.0 + 5.5 * len(curves), 5.6), layout="constrained", squeeze=False
    )
    for axes, curve in zip(panels[0], curves, strict=True):
        _panel(axes, curve)
    panels[0][0].set_ylabel("T(n) / T(1)")
    save(figure, path)


def _panel(axes: Any, measured: MeasuredCurve) -> None:
    samples = measured.samples
    depths = sorted({sample.depth for sample in samples})
    most = max(sample.n for sample in samples)
    highest = 1.0
    for i, depth in enumerate(depths):
        curve = {sample.n: sample.ms for sample in samples if sample.depth == depth}
        single = curve[min(curve)]
        ratios = [curve[n] / single for n in sorted(curve)]
        highest = max(highest, *ratios)
        look = {"color": _COLOURS[i % len(_COLOURS)], "marker": _MARKERS[i % len(_MARKERS)], "ms": 4, "lw": 1.5}
        axes.plot(sorted(curve), ratios, label=f"{depth:,} tokens before, T(1) = {rounded(single, 3)} ms", **look)
    axes.plot(
        [1, most], [1, most], color=_GREY, ls="--", lw=1, label="break-even: n rows cost as much as n single tokens"
    )
    axes.axhline(1, color=_GREY, ls=":", lw=1, label="n tokens for the price of one")
    axes.set(
        title=f"{measured.role}: {measured.model}".replace("$", r"\$"),
        xlabel="n, rows in one pass",
        xlim=(0.5, most + 0.5),
        ylim=(0, 1.05 * max(min(highest, 1.2 * most), 2)),
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13))
