"""`uad check`: whether the promises of the same text hold for a target on this machine."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from uad.base.common.files import path_of, read_text
from uad.base.config.argv import Parser, typed
from uad.base.config.flags import CONTEXT, DRAFT, DRAFTING, GENERAL, LOOKUP, MODEL, TEMPLATES, TOKENIZERS
from uad.base.config.kinds import number
from uad.base.console import console_on, progress
from uad.tools.cli.models import parse
from uad.tools.hub import fetched

if TYPE_CHECKING:
    from uad.runtime.check import Checked, CheckedWay
    from uad.runtime.check_rows import PromptCompared, RowsCompared

_DESCRIPTION = """Check on this machine that a target computes the same bits, and writes the same text, drafted or not.

The logits of passes of every width are compared to those of single rows, in one slot and in several (-np, two at
least). Then prompts read at once, in pieces and from cache, and texts with drafts and without. All that is done without
--exact, and with it where it could change anything. Without a draft model, look-ups draft. Quick by default; what was
compared is said in numbers of tokens.

Exit code 0: what is promised holds. 1: it does not. 2: wrong usage."""
_EPILOG = """examples: uad check TARGET.gguf DRAFT.gguf -np 4
          uad check TARGET.gguf --full --json"""
_GROUPS = (MODEL, CONTEXT, DRAFT, DRAFTING, LOOKUP, TOKENIZERS, TEMPLATES, GENERAL)
_TEXTS = Path(__file__).parents[1] / "bench" / "texts"
_SECONDS = number(1.0, 1e6)
_NAMES = {False: "without --exact", True: "with --exact"}


def main(argv: Sequence[str]) -> int:
    """Compare, print, and say by the exit code whether all promises hold. Raises UadError."""
    parser = _parser()
    args, config = parse(parser, argv, _GROUPS, ("target", "draft"), logging.WARNING)
    text = read_text(path_of(args.text)) if args.text else bundled_text()

    from uad.runtime.check import FULL, QUICK, check

    plan = FULL if args.full else QUICK
    if args.seconds is not None:
        plan = replace(plan, seconds=args.seconds)
    with progress(sys.stderr) as report:
        checked = check(fetched(config, report), text, plan, report)
    if args.json:
        print(json.dumps(checked.as_json()))
    else:
        show(checked)
    return 1 if checked.broken else 0


def _parser() -> Parser:
    parser = Parser("uad check", _DESCRIPTION, _EPILOG, "[TARGET [DRAFT]]")
    parser.add_argument(
        "--full",
        action="store_true",
        help="compare 1,000 tokens of every width up to 49, after up to 2,048, and texts of 400 (may take hours)",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=typed(_SECONDS),
        help="about how long to compare, in seconds, without loading (default: 60, no limit with --full)",
    )
    parser.add_argument("--text", metavar="FILE", help="compare on this text (default: one of prose and code)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of tables")
    return parser


def bundled_text() -> str:
    """Prose and code that come with the package."""
    return "\n".join(read_text(path) for path in sorted(_TEXTS.glob("*.txt")))


def show(checked: Checked) -> None:
    """Tables and verdict, on stdout."""
    console = console_on()
    weights = ", ".join(f"{n} {kind}" for kind, n in checked.weights.items())
    console.print(Text(f"target: {checked.target} (matrices: {weights})", "bold"), soft_wrap=True)
    console.print(Text(f"drafts: {checked.draft or 'look-ups'}"), soft_wrap=True)
    ran = ", ".join(f"{n:,} {what}" for what, n in checked.operations.items() if n)
    console.print(Text(f"{checked.kernels}{f' (ran: {ran})' if ran else ''}"), "", soft_wrap=True)
    console.print(_rows(checked), "")
    console.print(_prompts(checked), "")
    console.print(_texts(checked), "")
    for line in _summary(checked):
        console.print(line, soft_wrap=True)


def _rows(checked: Checked) -> Table:
    """Neighbouring widths with the same verdict share a line."""
    table = _table("rows of a pass, compared to single rows alone", "rows")
    shapes = [(way, n) for way in checked.ways for n in (1, checked.n_slots)]
    for way, n in shapes:
        table.add_column(f"{_NAMES[way.exact]}, {n} slot{'s' * (n > 1)}", justify="right")
    by_shape = [{row.width: row for row in way.rows if row.n_slots == n} for way, n in shapes]
    widths = sorted({row.width for way in checked.ways for row in way.rows})

    def alike(width: int) -> tuple[object, ...]:
        cells = [rows.get(width) for rows in by_shape]
        return tuple(None if cell is None or not cell.n_ids else cell.n_other > 0 for cell in cells)

    for _, group in groupby(widths, alike):
        some = list(group)
        name = str(some[0]) if len(some) == 1 else f"{some[0]}-{some[-1]}"
        cells = [
            _cell([rows[width] for width in some if width in rows], way.promised)
            for (way, _), rows in zip(shapes, by_shape, strict=True)
        ]
        table.add_row(Text(name), *cells)
    return table


def _prompts(checked: Checked) -> Table:
    table = _table("prompts, compared to one read alone and at once", "read")
    for way in checked.ways:
        table.add_column(_NAMES[way.exact], justify="right")
    for compared in zip(*(way.prompts for way in checked.ways), strict=True):
        cells = [
            _cell([prompts], way.promised and (way.any_batch or not prompts.is_small))
            for way, prompts in zip(checked.ways, compared, strict=True)
        ]
        table.add_row(Text(compared[0].how), *cells)
    return table


def _texts(checked: Checked) -> Table:
    table = _table("drafted texts, compared to the same without drafts", "temperature")
    for name in ("slots", "tokens"):
        table.add_column(name, justify="right")
    for way in checked.ways:
        table.add_column(_NAMES[way.exact], justify="right")
        table.add_column("drafted, accepted", justify="right")
    for compared in zip(*(way.texts for way in checked.ways), strict=True):
        row = [
            Text(f"{compared[0].temperature:g}"),
            Text(str(compared[0].n_slots)),
            Text(str(min(text.n_ids for text in compared))),
        ]
        for way, text in zip(checked.ways, compared, strict=True):
            where = "" if text.first_difference is None else f", differs after {text.first_difference}"
            is_same = text.n_same == text.n_texts
            row.append(Text(f"{text.n_same} of {text.n_texts} same{where}", _style(is_same, way.promised)))
            row.append(Text(f"{text.n_drafted}, {text.n_accepted}"))
        table.add_row(*row)
    return table


def _table(title: str, first: str) -> Table:
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column(first, style="cyan", justify="right")
    return table


def _cell(rows: Sequence[RowsCompared | PromptCompared], is_promised: bool) -> Text:
    n, n_other = sum(row.n_ids for row in rows), sum(row.n_other for row in rows)
    if not n:
        return Text("not reached", "dim")
    if not n_other:
        return Text(f"{n:,} equal", "green")
    most = max(row.most for row in rows)
    return Text(f"{n_other:,} of {n:,} differ, by {most:.2g}", _style(False, is_promised))


def _style(is_same: bool, is_promised: bool) -> str:
    return "green" if is_same else "red" if is_promised else "yellow"


def _summary(checked: Checked) -> Iterator[Text]:
    """Lines about what is promised, and whether it holds."""
    for way in checked.ways:
        yield Text(f"{_NAMES[way.exact]}: {_promise(way)}")
        for line in way.notes:
            yield Text(f"  {line}")
    if len(checked.ways) == 1:
        yield Text("--exact changes nothing where uad's kernels compute all")
    if any(not row.n_ids for way in checked.ways for row in way.rows):
        yield Text("not all widths were reached; --seconds N gives it more time, --full all it needs", "yellow")
    for line in checked.broken:
        yield Text(f"broken: {line}", "bold red")
    if not checked.broken:
        yield Text("what is promised holds", "bold green")


def _promise(way: CheckedWay) -> str:
    if way.promised:
        return "rows and texts are promised to be the same"
    return "nothing is promised for these weights here; what differs is shown, and no failure"
