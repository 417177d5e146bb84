"""The plot of `translate.py`: cost of a round against context, ours beside the naive method's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crossing import Curve

from uad.tools.cli.cost_plot import pyplot, save

_OURS, _NAIVE = "#1e8449", "#c0392b"


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Write the plot; the kind of file follows its name. ConfigError without matplotlib or a place to write to."""
    figure, axes = pyplot().subplots(figsize=(7.5, 4.5), layout="constrained")
    for i, curve in enumerate(curves):
        contexts = [cost.n_ctx for cost in curve.costs]
        first = i == 0
        axes.plot(
            contexts,
            [cost.naive_us for cost in curve.costs],
            color=_NAIVE,
            alpha=0.7,
            marker="o",
            label="re-encode everything" if first else None,
        )
        axes.plot(
            contexts,
            [cost.cold_us for cost in curve.costs],
            color=_OURS,
            ls=":",
            label="uad, caches emptied before every round" if first else None,
        )
        axes.plot(
            contexts,
            [cost.us for cost in curve.costs],
            color=_OURS,
            marker="o",
            label="uad, new text" if first else None,
        )
        axes.plot(
            contexts,
            [cost.warm_us for cost in curve.costs],
            color=_OURS,
            ls="--",
            label="uad, words seen before" if first else None,
        )
    axes.set(xscale="log", yscale="log", xlabel="context, draft tokens", ylabel="mirror and translation, µs per round")
    axes.set_xticks(contexts, [f"{n // 1024}k" if n >= 1024 else str(n) for n in contexts])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, path)
