"""Drafts that are chosen: `--draft auto` of one target, and the table of all pairs of a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.base.config import Config
from uad.base.config.kinds import AUTO
from uad.base.errors import ConfigError
from uad.base.model_files import check_file
from uad.tools.cli import cost_plot

if TYPE_CHECKING:
    from uad.pairs.choose import PairView


def with_draft(config: Config, tell: Callable[[str], object]) -> Config:
    """The configuration with the draft that `--draft auto` chooses in the target's folder, or without one where none
    pays. `tell` gets a line about it. Raises ConfigError for a target of a hub, ModelLoadError for one that is missing.
    """
    if config.draft is None or config.draft.path != AUTO:
        return config
    if config.target.hub is not None:
        raise ConfigError("--draft auto looks in the folder of the target's file; name one with --target FILE")
    from uad.pairs.choose import choose, views
    from uad.pairs.files import find_models

    target = config.target.path.absolute()
    check_file(target, "target")
    pairs = views(target, (file.path for file in find_models(target.parent).values()))
    chosen = choose(pairs)
    if chosen is None:
        tell(f"--draft auto: none of {len(pairs)} smaller models beside {target.name} is expected to pay")
        return replace(config, draft=None)
    tell(f"--draft auto: {chosen.draft.name}, {gain_text(chosen)}; of {len(pairs)} smaller models beside {target.name}")
    return replace(config, draft=replace(config.draft, path=chosen.draft))


def gain_text(pair: PairView) -> str:
    """What is known of a pair, in words."""
    measured = pair.record.gain
    return f"{pair.prediction.gain:.2f} times expected" if measured is None else f"{measured:.2f} times measured"


# --- uad inspect --all


Matrix = dict[str, list["PairView"]]
"""By the target's name, its candidates, the best by prediction first."""


def matrix_of(folder: Path) -> Matrix:
    """All pairs of the models of a folder. Raises ConfigError where it has none."""
    from uad.pairs.choose import views
    from uad.pairs.files import find_models

    files = {name: file.path for name, file in find_models(folder).items()}
    if not files:
        raise ConfigError(f"--all: there is no GGUF file in {folder}")
    return {name: views(path, files.values()) for name, path in files.items()}


def print_matrix(matrix: Matrix, console: Console) -> None:
    """One row for each pair; the one that `--draft auto` takes has a mark."""
    from uad.pairs.choose import choose

    table = Table("target", "draft", "expected", "measured", "acceptance", "vocabulary", "step", box=None)
    for target, pairs in matrix.items():
        chosen = choose(pairs)
        for pair in pairs:
            table.add_row(Text(target), *map(Text, _row(pair, pair is chosen)))
        if not pairs:
            table.add_row(Text(target), Text("no smaller model", style="dim"))
    console.print(table)
    console.print(
        "expected and measured: speed, in that of the target alone; acceptance: expected of one token; vocabulary: of "
        "the draft's tokens those that the target has; step: of the draft, in decodes of the target; *: --draft auto",
        style="dim",
    )


def _row(pair: PairView, is_chosen: bool) -> Sequence[str]:
    guess, measured = pair.prediction, pair.record.gain
    return (
        f"{pair.draft.name}{' *' if is_chosen else ''}",
        f"{guess.gain:.2f}",
        "" if measured is None else f"{measured:.2f}",
        f"{guess.acceptance:.2f}",
        f"{100 * guess.coverage:.0f} %",
        f"{guess.cost:.2f}",
    )


def draw_matrix(matrix: Matrix, path: Path) -> None:
    """A square for each pair, as dark as it gains, with the measured gain where there is one. Raises ConfigError
    without matplotlib, or where the file cannot be written.
    """
    drafts = sorted({pair.draft.name for pairs in matrix.values() for pair in pairs})
    gains = [[_gain(pairs, draft) for draft in drafts] for pairs in matrix.values()]
    figure, axes = cost_plot.pyplot().subplots(
        figsize=(3.5 + 1.1 * len(drafts), 2.5 + 0.5 * len(matrix)), layout="constrained"
    )
    image = axes.imshow([[gain for gain, _ in row] for row in gains], cmap="Greens", vmin=1.0, vmax=2.0, aspect="auto")
    axes.set_xticks(range(len(drafts)), drafts, rotation=30, ha="right")
    axes.set_yticks(range(len(matrix)), matrix)
    axes.set(xlabel="draft", ylabel="target", title="speed, in that of the target alone (bold: measured)")
    for y, row in enumerate(gains):
        for x, (gain, is_measured) in enumerate(row):
            if gain > 0:
                weight = "bold" if is_measured else "normal"
                axes.text(x, y, f"{gain:.2f}", ha="center", va="center", weight=weight)
    figure.colorbar(image, ax=axes)
    cost_plot.save(figure, path)


def _gain(pairs: Sequence[PairView], draft: str) -> tuple[float, bool]:
    """The gain of the pair with this draft, and whether it was measured; 0 where there is no such pair."""
    pair = next((view for view in pairs if view.draft.name == draft), None)
    return (0.0, False) if pair is None else (pair.expected, pair.record.gain is not None)
