"""Drafts that are chosen: `--draft auto` of one target, and the table of all pairs of a folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.base.config import Config, VisionConfig, load_config
from uad.base.config.drafter_types import MODEL_TYPE
from uad.base.config.kinds import AUTO
from uad.base.console import note
from uad.base.errors import ConfigError, UadError
from uad.base.model_files import check_file, wrong_files
from uad.tools.cli import cost_plot

if TYPE_CHECKING:
    from uad.pairs.choose import PairView


LOOKUP = "--spec-type suffix drafts from the text itself"
PLAIN = f"nothing drafts: --draft auto chooses a smaller model beside a target, or name one with --draft; {LOOKUP}"


def with_helps(config: Config, tell: Callable[[str], object], has_hints: bool = False) -> Config:
    """The configuration with the draft that `--draft auto` chooses in the target's folder, or without one where none
    pays, and with the projector that `--mmproj auto` finds there. `tell` gets lines about it; nothing that goes wrong
    beside the target ends the command. Raises ConfigError for a target of a hub, ModelLoadError for a missing one.
    """
    wants_draft = config.draft is not None and config.draft.path == AUTO
    if config.draft_from and not wants_draft:
        raise ConfigError("--draft-from names drafts for --draft auto; add that, or give one draft with --draft FILE")
    drafting = config.drafting
    if has_hints and config.draft is None and drafting.types == (MODEL_TYPE,) and drafting.defaults.enabled:
        tell(PLAIN)
    wants_projector = config.vision.path == AUTO
    if not (wants_draft or wants_projector):
        return config
    if config.target.hub is not None and not config.draft_from:
        raise ConfigError("--draft auto looks in the folder of the target's file; name one with --target FILE")
    target = config.target.path.absolute()
    if config.target.hub is None:
        check_file(target, "target")
    if wants_projector:
        config = replace(config, vision=_with_projector(config.vision, target, tell))
    return _with_draft(config, target, tell) if wants_draft else config


def _with_projector(vision: VisionConfig, target: Path, tell: Callable[[str], object]) -> VisionConfig:
    from uad.pairs.files import beside

    try:
        projector = beside(target).projector
    except Exception as error:
        tell(f"--mmproj auto: no projector is looked for ({reason(error)})")
        projector = None
    return replace(vision, path=projector if vision.auto else None, is_found=True)


def _with_draft(config: Config, target: Path, tell: Callable[[str], object]) -> Config:
    from uad.pairs.choose import best, choices, recorded
    from uad.pairs.conditions import conditions
    from uad.pairs.files import beside, find_models

    assert config.draft is not None
    if not (files := config.draft_from):
        try:
            head = beside(target).head
            pairs = best(target, (file.path for file in find_models(target.parent).values()))
            chosen = choices(recorded(target, pairs, conditions(config)))
        except Exception as error:
            tell(f"--draft auto: no draft can be chosen ({reason(error)})")
            return replace(config, draft=None)
        files = tuple(pair.draft for pair in chosen)
        if head is not None:
            files = head, *files
            tell(f"--draft auto: {head.name}, a head beside {target.name}")
        elif chosen:
            tell(f"--draft auto: {files[0].name}, {gain_text(chosen[0])}")
        else:
            tell(f"--draft auto: none of the smaller models beside {target.name} is expected to pay; {LOOKUP}")
            return replace(config, draft=None)
    return replace(config, draft=replace(config.draft, path=files[0]), draft_from=files)


def reason(error: Exception) -> str:
    """An exception in a few words."""
    return str(error) if isinstance(error, UadError) else f"{type(error).__name__}: {error}"


def gain_text(pair: PairView) -> str:
    """The gain of a pair, measured or expected, in words."""
    if pair.measured is None:
        return f"{pair.prediction.gain:.2f} times expected"
    return f"{pair.measured:.2f} times measured"


# --- uad inspect --all


Matrix = dict[str, list["PairView"]]
"""By the target's name, its candidates, the best by prediction first."""


def matrix_of(folder: Path) -> Matrix:
    """All pairs of the models of a folder. Raises ConfigError where it has none."""
    from uad.pairs.choose import recorded, views
    from uad.pairs.conditions import conditions
    from uad.pairs.files import find_models

    files = {name: file.path for name, file in find_models(folder).items()}
    if not files:
        raise ConfigError(f"--all: there is no GGUF file in {folder}")
    configs = {name: load_config([f"-m={path}", f"-md={AUTO}"], {}) for name, path in files.items()}
    for name, config in configs.items():
        for error in wrong_files(config):
            note(f"{error}; it is left out")
            files.pop(name, None)
    return {
        name: recorded(path, views(path, files.values()), conditions(configs[name])) for name, path in files.items()
    }


def short_names(names: Collection[str], width: int) -> dict[str, str]:
    """The names in `width` columns: cut where they agree, at their beginning or end, so that they differ as before.

    Of qwen2.5-coder-1.5b-instruct-q8_0 and qwen2.5-coder-7b-instruct-q8_0 fourteen columns leave …-1.5b-instr… and
    …-7b-instruct….
    """
    ordered = sorted(names)
    shown = {}
    for i, name in enumerate(ordered):
        beside = [other for other in ordered[max(i - 1, 0) : i + 2] if other != name]
        # neighbours in order share the longest beginnings
        same = max((_n_same(name, other) for other in beside), default=0)
        shown[name] = _cut(name, same, width)
    if len(set(shown.values())) < len(shown) and width < max(map(len, ordered)):
        return short_names(names, width + 1)
    return shown


def _n_same(a: str, b: str) -> int:
    """Letters with which both begin."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _cut(name: str, same: int, width: int) -> str:
    """A name whose first `same` letters others have, too."""
    if len(name) <= width:
        return name
    begin = min(max(same - 2, 0), len(name) - width + 1)
    if begin < 2:
        return f"{name[: width - 1]}…"
    end = begin + width - 1
    return f"…{name[begin:]}" if end >= len(name) else f"…{name[begin : end - 1]}…"


def print_matrix(matrix: Matrix, console: Console) -> None:
    """One row for each pair; the one that `--draft auto` takes has a mark."""
    from uad.pairs.choose import choose

    columns = ("target", "draft", "expected", "measured", "accepted", "vocabulary", "step")
    table = Table(*columns[:2], box=None, padding=(0, 1, 0, 0))
    for column in columns[2:]:
        table.add_column(column, justify="right", no_wrap=True)
    room = console.width - sum(len(column) + 1 for column in columns[2:]) - 4  # a mark, and what is between columns
    names = short_names({*matrix, *(pair.draft.stem for pairs in matrix.values() for pair in pairs)}, max(room // 2, 8))
    for target, pairs in matrix.items():
        chosen = choose(pairs)
        for pair in pairs:
            name = f"{names[pair.draft.stem]}{' *' if pair is chosen else ''}"
            table.add_row(Text(names[target]), *map(Text, (name, *_row(pair))))
        if not pairs:
            table.add_row(Text(names[target]), Text("no draft", style="dim"))
    console.print(table)
    console.print(
        "expected and measured: speed, in that of the target alone; accepted: of drafted tokens, as expected; "
        "vocabulary: of the draft's tokens those that the target has; step: of the draft, in decodes of the target; "
        "*: --draft auto",
        style="dim",
    )


def _row(pair: PairView) -> Sequence[str]:
    guess = pair.prediction
    return (
        f"{guess.gain:.2f}",
        "" if pair.measured is None else f"{pair.measured:.2f}",
        f"{guess.acceptance:.2f}",
        f"{100 * guess.coverage:.0f} %",
        f"{guess.cost:.2f}",
    )


def draw_matrix(matrix: Matrix, path: Path) -> None:
    """A square for each pair, as dark as it gains, with the measured gain where there is one; hatched where there is no
    such pair. Raises ConfigError without matplotlib, or where the file cannot be written.
    """
    drafts = sorted({pair.draft.stem for pairs in matrix.values() for pair in pairs})
    gains = [[_gain(pairs, draft) for draft in drafts] for pairs in matrix.values()]
    names = short_names({*drafts, *matrix}, 28)
    figure, axes = cost_plot.pyplot().subplots(
        figsize=(3.5 + 1.1 * len(drafts), 2.5 + 0.5 * len(matrix)), layout="constrained"
    )
    shades = [[math.nan if gain is None else gain for gain, _ in row] for row in gains]
    axes.patch.set(facecolor="white", hatch="///", edgecolor="#bbbbbb")  # seen where nothing is drawn
    image = axes.imshow(shades, cmap="Greens", vmin=_LIGHT, vmax=_DARK, aspect="auto")
    axes.set_xticks(range(len(drafts)), [names[draft] for draft in drafts], rotation=30, ha="right")
    axes.set_yticks(range(len(matrix)), [names[target] for target in matrix])
    title = "speed, in that of the target alone (bold: measured, hatched: not considered)"
    axes.set(xlabel="draft", ylabel="target", title=title)
    for y, row in enumerate(gains):
        for x, (gain, is_measured) in enumerate(row):
            if gain is not None:
                look = {"weight": "bold" if is_measured else "normal", "color": text_colour(gain)}
                axes.text(x, y, f"{gain:.2f}", ha="center", va="center", **look)
    figure.colorbar(image, ax=axes)
    cost_plot.save(figure, path)


_LIGHT, _DARK = 1.0, 2.0
"""Gains of the lightest and of the darkest square."""


def text_colour(gain: float) -> str:
    """Black on light squares, white on dark ones."""
    return "white" if gain > (_LIGHT + _DARK) / 2 else "black"


def _gain(pairs: Sequence[PairView], draft: str) -> tuple[float | None, bool]:
    """The gain of the pair with this draft, and whether it was measured; None where there is no such pair."""
    pair = next((view for view in pairs if view.draft.stem == draft), None)
    return (None, False) if pair is None else (pair.expected, pair.measured is not None)
