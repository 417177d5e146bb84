"""From samples to cells: medians, ratios, the JSON line for programs, tables and notes for people. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean, median
from typing import TypeVar

from bench_measure import ArmPair, Measured, Sample
from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.base.common.sequences import common_prefix
from uad.base.config.drafter_types import LOOKUP_TYPES
from uad.base.console import COLOURS, WORDS, kind_of
from uad.tools.bench.ratios import coloured, rounded, share

T = TypeVar("T")
PEER = "peer"
_REMEMBERING = tuple(kind.origin for kind in LOOKUP_TYPES if kind.remembers)
"""Drafters that keep what was said in earlier answers."""


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
    """One group of prompts under one arm, each run with a plain one beside it."""

    names: tuple[str, ...]
    runs: tuple[ArmPair, ...]

    @property
    def plain(self) -> list[Sample]:
        """The plain half of every run."""
        return [run.plain for run in self.runs]

    @property
    def arm(self) -> list[Sample]:
        """The arm's half of every run, in the order of `plain`."""
        return [run.arm for run in self.runs]

    @property
    def plain_tps(self) -> float:
        """Tokens per second of plain decoding, the median over the runs."""
        return median(run.tps for run in self.plain)

    @property
    def tps(self) -> float:
        """Tokens per second under the arm, the median over the runs."""
        return median(run.tps for run in self.arm)

    @property
    def timed(self) -> bool:
        """False if an answer was too short to have a speed."""
        return all(run.plain.tps > 0 and run.arm.tps > 0 for run in self.runs)

    @property
    def ratio(self) -> float:
        """Median of the runs' own ratios: what the machine did to one of a pair it did to the other."""
        return median(run.ratio for run in self.runs)

    @property
    def same_text(self) -> bool:
        """True if every run, plain or not, gave the same text, and the same ids where these are known."""
        return len({tuple((answer.text, answer.ids) for answer in run.answers) for run in self.plain + self.arm}) == 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One row. Rates and the ratio are geometric means over the prompts of medians over the runs.

    `accept_rate` is None if nothing was drafted, `tokens_per_decode` if unknown, `same_text` if it cannot be compared.
    `low` and `high` are the smallest and the largest ratio of a prompt; `n_untimed` counts groups too short to have
    one.
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
    groups = tuple(GroupResult(group.names, group.runs[arm]) for group in measured)
    timed = [group for group in groups if group.timed]
    if not timed:
        return None
    ratios = [group.ratio for group in timed]
    answers = [answer for group in groups for run in group.arm for answer in run.answers]
    return Cell(
        labels=labels,
        plain_tps=geometric_mean(group.plain_tps for group in timed),
        tps=geometric_mean(group.tps for group in timed),
        ratio=geometric_mean(ratios),
        accept_rate=share(sum(answer.n_accepted for answer in answers), sum(answer.n_drafted for answer in answers)),
        tokens_per_decode=share(
            sum(answer.n_predicted for answer in answers), sum(answer.n_rounds for answer in answers)
        ),
        same_text=same_text(labels, groups),
        low=min(ratios),
        high=max(ratios),
        n_untimed=len(groups) - len(timed),
        groups=groups,
    )


def same_text(labels: Labels, groups: Sequence[GroupResult]) -> bool | None:
    """A peer's random draws are its own: of its texts only the greedy ones can be compared."""
    if labels.policy == PEER and labels.temperature > 0:
        return None
    return all(group.same_text for group in groups)


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy over all its cells: the worst and the geometric mean of the ratios."""

    policy: str
    worst: Cell
    geomean: float
    n_cells: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole run, without the peer. `worst` and `geomean` are over all cells whatever their policy.

    `best_fixed` is the fixed policy with the largest geometric mean over the whole matrix, and `auto_over_best_fixed`
    the automatic one's in relation to it.
    """

    standings: tuple[Standing, ...]
    worst: float | None
    geomean: float | None
    best_fixed: Standing | None
    auto: Standing | None

    @property
    def auto_over_best_fixed(self) -> float | None:
        """Quotient of the two geometric means of ratios; None where either policy is missing."""
        return self.auto.geomean / self.best_fixed.geomean if self.auto and self.best_fixed else None


def is_auto(policy: str) -> bool:
    """True for the names of automatic policies."""
    return policy.split(":")[0] == "auto"


def summarize(cells: Sequence[Cell]) -> Summary:
    """Sum up a run."""
    own = [cell for cell in cells if cell.labels.policy != PEER]
    standings = tuple(_standing(policy, own) for policy in dict.fromkeys(cell.labels.policy for cell in own))
    fixed = [standing for standing in standings if standing.policy.split(":")[0] == "fixed"]
    ratios = [cell.ratio for cell in own]
    return Summary(
        standings=standings,
        worst=min(ratios, default=None),
        geomean=geometric_mean(ratios) if ratios else None,
        best_fixed=max(fixed, key=lambda standing: standing.geomean, default=None),
        auto=next((standing for standing in standings if is_auto(standing.policy)), None),
    )


def _standing(policy: str, cells: Sequence[Cell]) -> Standing:
    own = [cell for cell in cells if cell.labels.policy == policy]
    return Standing(policy, min(own, key=lambda cell: cell.ratio), geometric_mean(cell.ratio for cell in own), len(own))


def summary(cells: Sequence[Cell]) -> dict[str, object]:
    """The JSON line; what could not be measured is null."""
    total = summarize(cells)
    policies = {
        standing.policy: {"worst": rounded(standing.worst.ratio), "geomean": rounded(standing.geomean)}
        for standing in total.standings
    }
    return {
        "cells": [_cell_json(cell) for cell in cells],
        "worst": rounded(total.worst),
        "geomean": rounded(total.geomean),
        "policies": policies,
        "best_fixed": total.best_fixed.policy if total.best_fixed else None,
        "auto_over_best_fixed": rounded(total.auto_over_best_fixed),
    }


def _cell_json(cell: Cell) -> dict[str, object]:
    return asdict(cell.labels) | {
        "plain_tps": rounded(cell.plain_tps),
        "tps": rounded(cell.tps),
        "ratio": rounded(cell.ratio),
        "accept_rate": rounded(cell.accept_rate),
        "tokens_per_decode": rounded(cell.tokens_per_decode),
        "same_text": cell.same_text,
    }


def notes(cells: Sequence[Cell], shares: bool) -> list[str]:
    """What a reader must know besides the numbers of the table, one line each. shares: whether drafters may remember
    earlier answers.
    """
    lines: list[str] = []
    for cell in cells:
        where = cell.labels.line
        if cell.n_untimed:
            lines.append(
                f"{where}: {cell.n_untimed} of {len(cell.groups)} answers were too short to be timed and are left out "
                "of the ratio"
            )
        if shares and (remembered := _remembered(cell)):
            lines.append(
                f"{where}: {remembered:.0%} of the accepted ids came from a drafter that remembers earlier answers; "
                "the same prompts ran "
                "before in this process, so the ratio is better than new prompts would get"
            )
        if cell.same_text is False and cell.labels.policy != PEER:
            lines.append(
                f"{where}: the text is not the plain one in every run; --verbose shows where, --exact rules it out on "
                "BF16 and F16"
            )
    return lines


def _remembered(cell: Cell) -> float:
    """Share of the accepted ids that a drafter proposed which may have seen the same answer in another run."""
    stats = [stats for group in cell.groups for run in group.arm for answer in run.answers for stats in answer.by]
    accepted = sum(stat.n_accepted for stat in stats)
    return sum(stat.n_accepted for stat in stats if stat.origin in _REMEMBERING) / accepted if accepted else 0.0


# --- for people


def print_table(console: Console, cells: Sequence[Cell]) -> None:
    """One row per cell, then what they come to."""
    table = Table(title="plain against drafted, tokens per second of decoding")
    for name in LABELS:
        table.add_column(name, overflow="fold")
    for name in NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        table.add_row(*row(cell, coloured(cell.ratio)))
    console.print(table)
    if len({cell.labels.draft for cell in cells}) > 1 and len({cell.labels.workload for cell in cells}) > 1:
        console.print(_grid(cells))
    for line in (*totals(cells), *guessed(cells)):
        console.print(line, highlight=False, soft_wrap=True)


def _grid(cells: Sequence[Cell]) -> Table:
    """What drafts, by workload: one ratio each, and their geometric mean."""
    workloads = list(dict.fromkeys(cell.labels.workload for cell in cells))
    rows: dict[tuple[str, str, str, str, str], dict[str, float]] = {}
    for cell in cells:
        labels = cell.labels
        head = (labels.target, labels.draft or "-", labels.policy, str(labels.sequences), f"{labels.temperature:g}")
        rows.setdefault(head, {})[labels.workload] = cell.ratio
    table = Table(title="speed-up over plain decoding")
    for name in ("target", "draft", "policy", "seq", "temp"):
        table.add_column(name, overflow="fold")
    for name in (*workloads, "geometric mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for head, ratios in rows.items():
        texts = [coloured(ratios[name]) if name in ratios else Text("-") for name in workloads]
        table.add_row(*head, *texts, coloured(geometric_mean(ratios.values())))
    return table


def totals(cells: Sequence[Cell]) -> list[Text]:
    """A line for each policy, worst cell and geometric mean; then the automatic one against the best fixed one."""
    total = summarize(cells)
    lines = [_line(standing) for standing in total.standings]
    if total.auto and total.best_fixed and total.auto_over_best_fixed:
        lines.append(
            Text(
                f"{total.auto.policy} is {total.auto_over_best_fixed:.2f} times the best fixed policy, "
                f"{total.best_fixed.policy}"
            )
        )
    return lines


def guessed(cells: Sequence[Cell]) -> list[Text]:
    """A line for each policy that drafted: whose guesses were accepted, with the words and colours of the page."""
    lines = []
    for policy in dict.fromkeys(cell.labels.policy for cell in cells):
        runs = [run for cell in cells if cell.labels.policy == policy for group in cell.groups for run in group.arm]
        counts = dict.fromkeys(COLOURS, (0, 0))
        for stats in (stats for run in runs for answer in run.answers for stats in answer.by):
            drafted, accepted = counts[kind_of(stats.origin)]
            counts[kind_of(stats.origin)] = (drafted + stats.n_drafted, accepted + stats.n_accepted)
        parts = [_guesses(kind, *count) for kind, count in counts.items() if count[0]]
        if parts:
            lines.append(Text(f"{policy}, guesses accepted: ").append_text(Text(", ").join(parts)))
    return lines


def _guesses(kind: str, n_drafted: int, n_accepted: int) -> Text:
    style = f"underline color({COLOURS[kind]})"
    return Text.assemble((WORDS[kind], style), f" {n_accepted} of {n_drafted} ({n_accepted / n_drafted:.0%})")


def _line(standing: Standing) -> Text:
    worst = standing.worst.labels
    where = (
        f" ({worst.target}, {worst.draft}, {worst.workload}, {worst.sequences} at once, temperature "
        f"{worst.temperature:g})"
    )
    n_cells = f" over {standing.n_cells} cells, " if standing.n_cells > 1 else ", "
    return Text.assemble(
        f"{standing.policy}: geometric mean ",
        coloured(standing.geomean),
        n_cells,
        "worst ",
        coloured(standing.worst.ratio),
        where if standing.n_cells > 1 else "",
    )


LABELS = ("target", "draft", "workload", "policy")
NUMBERS = ("at once", "temp.", "plain tok/s", "tok/s", "ratio", "of prompts", "accepted", "tok/decode", "same text")


def row(cell: Cell, ratio: T, unknown: str = "-") -> tuple[str | T, ...]:
    """What stands under LABELS and NUMBERS for a cell. ratio: its ratio as shown; unknown: what was not measured."""
    labels = cell.labels
    return (
        labels.target,
        labels.draft or unknown,
        labels.workload,
        labels.policy,
        str(labels.sequences),
        f"{labels.temperature:g}",
        f"{cell.plain_tps:.1f}",
        f"{cell.tps:.1f}",
        ratio,
        f"{cell.low:.2f}–{cell.high:.2f}",
        unknown if cell.accept_rate is None else f"{cell.accept_rate:.0%}",
        unknown if cell.tokens_per_decode is None else f"{cell.tokens_per_decode:.2f}",
        unknown if cell.same_text is None else ("yes" if cell.same_text else "NO"),
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
    answers = [answer for run in group.arm for answer in run.answers]
    accepted = share(sum(answer.n_accepted for answer in answers), sum(answer.n_drafted for answer in answers))
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
    rates = [sample.tps for sample in samples]
    return f"{min(rates):.1f}-{max(rates):.1f}"


def _difference(group: GroupResult, labels: Labels) -> str:
    same = same_text(labels, [group])
    if same is None or same:
        return "-" if same is None else "yes"
    if labels.policy == PEER:
        return "NO"
    runs = group.plain + group.arm
    pairs = [pair for run in runs for pair in zip(group.plain[0].answers, run.answers, strict=True)]
    if by_id := [common_prefix(a.ids, b.ids) for a, b in pairs if a.ids != b.ids]:
        return f"NO, at token {min(by_id)}"
    return f"NO, at character {min(common_prefix(a.text, b.text) for a, b in pairs if a.text != b.text)}"
