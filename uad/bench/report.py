"""From samples to cells: medians, ratios, the table for people and the JSON line for programs. Runs nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from rich.console import Console
from rich.table import Table

from uad.bench.measure import Answer, Measured, Sample

PEER = "peer"


@dataclass(frozen=True, slots=True)
class Labels:
    """What a cell is about; `draft` is None without one."""

    target: str
    draft: str | None
    workload: str
    policy: str
    sequences: int
    temperature: float

    @property
    def line(self) -> str:
        """The labels on one line."""
        pair = f"{self.target} + {self.draft}" if self.draft else self.target
        return f"{pair}, {self.workload}, {self.policy}, {self.sequences} at once, temperature {self.temperature:g}"


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group of prompts under one arm, beside plain in the same interleaved runs."""

    names: tuple[str, ...]
    plain: tuple[Sample, ...]
    arm: tuple[Sample, ...]

    @property
    def plain_tps(self) -> float:
        return median(one.tps for one in self.plain)

    @property
    def tps(self) -> float:
        return median(one.tps for one in self.arm)

    @property
    def timed(self) -> bool:
        """False if an answer was too short to have a speed."""
        return self.plain_tps > 0 and self.tps > 0

    @property
    def ratio(self) -> float:
        return self.tps / self.plain_tps

    @property
    def same_ids(self) -> bool:
        """True if every run, plain or not, gave the same ids."""
        return len({tuple(answer.ids for answer in one.answers) for one in self.plain + self.arm}) == 1

    @property
    def same_text(self) -> bool:
        """True if every run, plain or not, gave the same text."""
        return len({tuple(answer.text for answer in one.answers) for one in self.plain + self.arm}) == 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One row. Rates are geometric means over the prompts of medians over the runs, so that ratio = tps / plain_tps.

    `accept_rate` is None if nothing was drafted, `tokens_per_decode` if unknown, `same_text` if it cannot be compared.
    `low` and `high` are the smallest and the largest ratio of a prompt; `n_untimed` counts groups too short to have one.
    """

    labels: Labels
    plain_tps: float
    tps: float
    ratio: float
    accept_rate: float | None
    tokens_per_decode: float | None
    same_text: bool | None
    low: float
    high: float
    n_untimed: int
    groups: tuple[GroupResult, ...]


def make_cell(labels: Labels, measured: Sequence[Measured], arm: int) -> Cell | None:
    """Sum up one arm over the groups of a workload; None if no answer was long enough to be timed."""
    groups = tuple(GroupResult(one.names, one.samples[0], one.samples[arm]) for one in measured)
    timed = [group for group in groups if group.timed]
    if not timed:
        return None
    ratios = [group.ratio for group in timed]
    answers = [answer for group in groups for one in group.arm for answer in one.answers]
    return Cell(
        labels=labels,
        plain_tps=geometric_mean(group.plain_tps for group in timed),
        tps=geometric_mean(group.tps for group in timed),
        ratio=geometric_mean(ratios),
        accept_rate=_share(sum(answer.n_accepted for answer in answers), sum(answer.n_drafted for answer in answers)),
        tokens_per_decode=_share(sum(answer.n_predicted for answer in answers), sum(answer.n_rounds for answer in answers)),
        same_text=_same(labels, groups),
        low=min(ratios),
        high=max(ratios),
        n_untimed=len(groups) - len(timed),
        groups=groups,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _same(labels: Labels, groups: Sequence[GroupResult]) -> bool | None:
    """A peer's ids are unknown and its random draws are its own: only greedy text can be compared."""
    if labels.policy != PEER:
        return all(group.same_ids for group in groups)
    return all(group.same_text for group in groups) if labels.temperature <= 0 else None


def json_line(cells: Sequence[Cell]) -> str:
    """The last line of the output; `worst` and `geomean` are over our own cells, without the peer's."""
    ratios = [cell.ratio for cell in cells if cell.labels.policy != PEER]
    worst = min(ratios) if ratios else None
    geomean = geometric_mean(ratios) if ratios else None
    return json.dumps({"cells": [_cell_json(cell) for cell in cells], "worst": _round(worst), "geomean": _round(geomean)})


def _cell_json(cell: Cell) -> dict[str, object]:
    labels = cell.labels
    return {
        "target": labels.target,
        "draft": labels.draft,
        "workload": labels.workload,
        "policy": labels.policy,
        "sequences": labels.sequences,
        "temperature": labels.temperature,
        "plain_tps": _round(cell.plain_tps),
        "tps": _round(cell.tps),
        "ratio": _round(cell.ratio),
        "accept_rate": _round(cell.accept_rate),
        "tokens_per_decode": _round(cell.tokens_per_decode),
        "same_text": cell.same_text,
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def print_table(console: Console, cells: Sequence[Cell]) -> None:
    """One row per cell."""
    table = Table(title="plain against drafted, tokens per second of decoding")
    for name in ("target", "draft", "workload", "policy"):
        table.add_column(name, overflow="fold")
    for name in ("seq", "temp", "plain tok/s", "tok/s", "ratio", "of prompts", "accepted", "tok/decode", "same text"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        labels = cell.labels
        head = (labels.target, labels.draft or "-", labels.workload, labels.policy, str(labels.sequences), f"{labels.temperature:g}")
        table.add_row(*head, *_numbers(cell))
    console.print(table)


def _numbers(cell: Cell) -> tuple[str, ...]:
    return (
        f"{cell.plain_tps:.1f}",
        f"{cell.tps:.1f}",
        f"{cell.ratio:.2f}",
        f"{cell.low:.2f}-{cell.high:.2f}",
        "-" if cell.accept_rate is None else f"{cell.accept_rate:.0%}",
        "-" if cell.tokens_per_decode is None else f"{cell.tokens_per_decode:.2f}",
        "-" if cell.same_text is None else ("yes" if cell.same_text else "NO"),
    )


def print_prompts(console: Console, cell: Cell) -> None:
    """The groups of one cell: medians with the spread of the runs, and where a text first differs."""
    table = Table(title=cell.labels.line)
    table.add_column("prompts", overflow="fold")
    for name in ("tokens", "plain tok/s", "runs", "tok/s", "runs", "ratio", "accepted", "same text"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in cell.groups:
        table.add_row(*_group_row(group, cell.labels))
    console.print(table)


def _group_row(group: GroupResult, labels: Labels) -> tuple[str, ...]:
    answers = [answer for one in group.arm for answer in one.answers]
    accepted = _share(sum(answer.n_accepted for answer in answers), sum(answer.n_drafted for answer in answers))
    return (
        ", ".join(group.names),
        str(sum(answer.n_predicted for answer in group.plain[0].answers)),
        f"{group.plain_tps:.1f}",
        _spread(group.plain),
        f"{group.tps:.1f}",
        _spread(group.arm),
        f"{group.ratio:.2f}" if group.timed else "too short",
        "-" if accepted is None else f"{accepted:.0%}",
        _difference(group, labels),
    )


def _spread(samples: Sequence[Sample]) -> str:
    rates = [one.tps for one in samples]
    return f"{min(rates):.1f}-{max(rates):.1f}"


def _difference(group: GroupResult, labels: Labels) -> str:
    same = _same(labels, [group])
    if same is None or same:
        return "-" if same is None else "yes"
    if labels.policy == PEER:
        return "NO"
    first = [_first_difference(group.plain[0].answers, one.answers) for one in group.plain + group.arm]
    return f"NO, at token {min(i for i in first if i is not None)}"


def _first_difference(ours: Sequence[Answer], theirs: Sequence[Answer]) -> int | None:
    """Smallest index at which two runs of a group differ; None if they do not."""
    starts = [_common(a.ids, b.ids) for a, b in zip(ours, theirs, strict=True) if a.ids != b.ids]
    return min(starts, default=None)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def notes(cells: Sequence[Cell]) -> list[str]:
    """What a reader must know besides the numbers of the table, one line each."""
    lines: list[str] = []
    for cell in cells:
        where = cell.labels.line
        if cell.n_untimed:
            lines.append(
                f"{where}: {cell.n_untimed} of {len(cell.groups)} answers were too short to be timed and are left out of the ratio"
            )
        if cell.same_text is False and cell.labels.policy != PEER:
            lines.append(
                f"{where}: the text is not the plain one in every run; --verbose shows where, --exact rules it out on BF16 and F16"
            )
    return lines
