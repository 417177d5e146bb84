"""`uad profile`: measure what decodes cost on this machine, store it for `uad serve`, show it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from uad.cli import cost_plot
from uad.cli.models import parse
from uad.common.files import path_of
from uad.config.argv import Parser, typed
from uad.config.flags import CONTEXT, DRAFT, DRAFTING, GENERAL, MODEL
from uad.config.kinds import integer, several
from uad.console import console_on, note, progress
from uad.hub import fetched

if TYPE_CHECKING:
    from uad.commands.profiling import MeasuredCurve

_DESCRIPTION = """Measure what a pass of n rows costs with these models on this machine, behind texts of several
lengths.

The curves go to the user's cache directory ($UAD_CACHE_DIR if set), where `uad serve` with the same settings finds
them. Without them it measures for two seconds at start. Let the machine rest meanwhile: a busy one gives the curve of a
busy one."""
_EPILOG = "example: uad profile TARGET.gguf DRAFT.gguf -c 4096 --plot cost.png"
_ROWS, _DEPTHS = integer(1, 512), several(integer(0, 10_000_000))
_CHEAP, _HALF = 0.35, 0.7


def main(argv: Sequence[str]) -> int:
    """Measure, store and print. Raises UadError."""
    parser = _parser()
    groups = (MODEL, CONTEXT, DRAFT, DRAFTING, GENERAL)
    args, config = parse(parser, argv, groups, ("target", "draft"), logging.WARNING)
    plot = None if args.plot is None else path_of(args.plot)

    from uad.commands.profiling import measure_profiles
    from uad.costs.profile import BUSY
    from uad.costs.profile_store import check_folder

    check_folder()
    if plot is not None:
        cost_plot.check(plot)
    with progress(sys.stderr) as report:
        found = measure_profiles(fetched(config, report), args.n_max, args.depths, report)
    if plot is not None:
        cost_plot.draw(found, plot)
    for one in found:
        if one.spread > BUSY:
            note(
                f"the machine is busy: decodes of the {one.role} differ by a factor of {one.spread:.1f}; measure "
                "again when it rests"
            )
    if args.json:
        print(json.dumps({"profiles": [_values(one) for one in found], "plot": args.plot}))
    else:
        _show(found, plot)
    return 0


def _parser() -> Parser:
    parser = Parser("uad profile", _DESCRIPTION, _EPILOG, "[TARGET [DRAFT]]")
    parser.add_argument("target", metavar="TARGET", nargs="?", help="GGUF file of the target model")
    parser.add_argument("draft", metavar="DRAFT", nargs="?", help="GGUF file of the draft model")
    parser.add_argument(
        "--n-max",
        metavar="N",
        type=typed(_ROWS),
        default=24,
        help="measure passes of 1 to N rows (default: %(default)s)",
    )
    parser.add_argument(
        "--depths",
        metavar="N,N,…",
        type=typed(_DEPTHS),
        help="how many tokens come before (default: 0,512,2048,8192, as far as the context goes)",
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the curves: a .png, .svg or .pdf file")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of tables")
    return parser


def _values(one: MeasuredCurve) -> dict[str, object]:
    return {
        "role": one.role,
        "model": one.model,
        "file": str(one.file),
        "spread": round(one.spread, 3),
        "samples": [{"n": sample.n, "depth": sample.depth, "ms": round(sample.ms, 4)} for sample in one.samples],
    }


def _show(found: Sequence[MeasuredCurve], plot: Path | None) -> None:
    console = console_on()
    for one in found:
        console.print(Text(f"{one.role}: {one.model}", "bold"), soft_wrap=True)
        console.print(_table(one), "")
    legend = (f"at most {_CHEAP:g}", "green"), ", ", (f"at most {_HALF:g}", "yellow"), ", ", ("more", "red")
    console.print(Text.assemble("a row costs, of a single one: ", *legend))
    if plot is not None:
        console.print(Text(f"plot: {plot}"), soft_wrap=True)
    console.print(Text(f"stored: {', '.join(str(one.file) for one in found)}"), soft_wrap=True)


def _table(one: MeasuredCurve) -> Table:
    depths = sorted({sample.depth for sample in one.samples})
    ms = {(sample.n, sample.depth): sample.ms for sample in one.samples}
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("n", justify="right", style="cyan")
    for depth in depths:
        table.add_column(f"ms behind {depth:,}", justify="right")
        table.add_column("T(n)/T(1)", justify="right")
    for n in sorted({sample.n for sample in one.samples}):
        row = [Text(str(n))]
        for depth in depths:
            ratio = ms[n, depth] / ms[1, depth]
            row += [Text(f"{ms[n, depth]:.3g}"), Text(f"{ratio:.2f}", _style(ratio / n))]
        table.add_row(*row)
    return table


def _style(share: float) -> str:
    return "green" if share <= _CHEAP else "yellow" if share <= _HALF else "red"
