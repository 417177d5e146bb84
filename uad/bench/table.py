"""The report in a terminal: cells with colours, what they come to, and on demand every prompt. Measures and
decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from rich.console import Console
from rich.table import Table
from rich.text import Text

from uad.bench.measure import Answer, Sample
from uad.bench.report import PEER, Cell, GroupResult, Labels, Standing, same_text, share, summarize
from uad.common.origins import COLOURS, WORDS, kind_of
from uad.common.sequences import common_prefix

SLOWER, FASTER = 0.98, 1.05
"""Ratios outside of which a cell is slower or faster than plain, and not only noise."""


def print_table(console: Console, cells: Sequence[Cell]) -> None:
    """One row per cell, then what they come to."""
    table = Table(title="plain against drafted, tokens per second of decoding")
    for name in ("target", "draft", "workload", "policy"):
        table.add_column(name, overflow="fold")
    for name in ("seq", "temp", "plain tok/s", "tok/s", "ratio", "of prompts", "accepted", "tok/decode", "same text"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        labels = cell.labels
        head = (
            labels.target,
            labels.draft or "-",
            labels.workload,
            labels.policy,
            str(labels.sequences),
            f"{labels.temperature:g}",
        )
        table.add_row(*head, *_numbers(cell))
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
        found = [coloured(ratios[name]) if name in ratios else Text("-") for name in workloads]
        table.add_row(*head, *found, coloured(geometric_mean(ratios.values())))
    return table


def coloured(ratio: float) -> Text:
    """Red where slower than plain, green where faster."""
    return Text(f"{ratio:.2f}", "red" if ratio < SLOWER else "green" if ratio > FASTER else "")


def totals(cells: Sequence[Cell]) -> list[Text]:
    """A line for each policy, worst cell and geometric mean; then the automatic one against the best fixed one."""
    total = summarize(cells)
    lines = [_line(one) for one in total.standings]
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
        for one in (one for run in runs for answer in run.answers for one in answer.by):
            drafted, accepted = counts[kind_of(one.origin)]
            counts[kind_of(one.origin)] = (drafted + one.n_drafted, accepted + one.n_accepted)
        parts = [_guesses(kind, *count) for kind, count in counts.items() if count[0]]
        if parts:
            lines.append(Text(f"{policy}, guesses accepted: ").append_text(Text(", ").join(parts)))
    return lines


def _guesses(kind: str, n_drafted: int, n_accepted: int) -> Text:
    style = f"underline color({COLOURS[kind]})"
    return Text.assemble((WORDS[kind], style), f" {n_accepted} of {n_drafted} ({n_accepted / n_drafted:.0%})")


def _line(one: Standing) -> Text:
    worst = one.worst.labels
    where = (
        f" ({worst.target}, {worst.draft}, {worst.workload}, {worst.sequences} at once, temperature "
        f"{worst.temperature:g})"
    )
    n_cells = f" over {one.n_cells} cells, " if one.n_cells > 1 else ", "
    return Text.assemble(
        f"{one.policy}: geometric mean ",
        coloured(one.geomean),
        n_cells,
        "worst ",
        coloured(one.worst.ratio),
        where if one.n_cells > 1 else "",
    )


def _numbers(cell: Cell) -> tuple[str | Text, ...]:
    return (
        f"{cell.plain_tps:.1f}",
        f"{cell.tps:.1f}",
        coloured(cell.ratio),
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
    rates = [one.tps for one in samples]
    return f"{min(rates):.1f}-{max(rates):.1f}"


def _difference(group: GroupResult, labels: Labels) -> str:
    same = same_text(labels, [group])
    if same is None or same:
        return "-" if same is None else "yes"
    if labels.policy == PEER:
        return "NO"
    first = [_first_difference(group.plain[0].answers, one.answers) for one in group.plain + group.arm]
    return f"NO, at token {min(i for i in first if i is not None)}"


def _first_difference(ours: Sequence[Answer], theirs: Sequence[Answer]) -> int | None:
    """Smallest index at which two runs of a group differ; None if they do not."""
    starts = [common_prefix(a.ids, b.ids) for a, b in zip(ours, theirs, strict=True) if a.ids != b.ids]
    return min(starts, default=None)
