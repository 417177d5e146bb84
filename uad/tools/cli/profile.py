"""`uad profile`: measure what decodes cost on this machine, store it for `uad serve`, show it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from uad.base.common.files import path_of
from uad.base.common.numbers import rounded
from uad.base.config import Config, ModelConfig
from uad.base.config.argv import Parser, typed
from uad.base.config.flags import CONTEXT, DRAFT, DRAFTING, GENERAL, MODEL
from uad.base.config.kinds import integer, several
from uad.base.console import Report, console_on, note, progress
from uad.base.errors import ConfigError
from uad.tools.cli import cost_plot
from uad.tools.cli.cost_plot import MeasuredCurve
from uad.tools.cli.models import parse
from uad.tools.hub import fetched

if TYPE_CHECKING:
    from uad.llama.context import Context
    from uad.runtime.plan import Plan

_DESCRIPTION = """Measure what a pass of n rows costs with these models on this machine, after texts of several
lengths.

The curves go to the user's cache directory ($UAD_CACHE_DIR if set), where `uad serve` with the same settings finds
them. Without them it measures for two seconds at start. Run nothing else meanwhile: other programs make the curve
worse, and a worse curve does not replace a better one."""
_EPILOG = "example: uad profile TARGET.gguf DRAFT.gguf -c 4096 --plot cost.png"
_ROWS, _DEPTHS = integer(1, 512), several(integer(0, 10_000_000))
_CHEAP, _HALF = 0.35, 0.7


def main(argv: Sequence[str]) -> int:
    """Measure, store and print. Raises UadError."""
    parser = _parser()
    groups = (MODEL, CONTEXT, DRAFT, DRAFTING, GENERAL)
    args, config = parse(parser, argv, groups, ("target", "draft"), logging.WARNING)
    plot = None if args.plot is None else path_of(args.plot)

    from uad.runtime.costs.profile import BUSY
    from uad.runtime.costs.profile_store import check_folder

    check_folder()
    if plot is not None:
        cost_plot.check(plot)
    with progress(sys.stderr) as report:
        curves = measure_profiles(fetched(config, report), args.n_max, args.depths, report)
    if plot is not None:
        cost_plot.draw(curves, plot)
    for curve in curves:
        if curve.why_not:
            note(f"{curve.role}: {curve.why_not}")
        elif curve.spread > BUSY:
            note(
                f"other programs use the machine: decodes of the {curve.role} differ by a factor of "
                f"{curve.spread:.1f}; measure again without them"
            )
    if args.json:
        print(json.dumps({"profiles": [_values(curve) for curve in curves], "plot": args.plot}))
    else:
        _show(curves, plot)
    return 0


def _parser() -> Parser:
    parser = Parser("uad profile", _DESCRIPTION, _EPILOG, "[TARGET [DRAFT]]")
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


def _values(curve: MeasuredCurve) -> dict[str, object]:
    return {
        "role": curve.role,
        "model": curve.model,
        "file": str(curve.file),
        "stored": not curve.why_not,
        "spread": round(curve.spread, 3),
        "samples": [{"n": sample.n, "depth": sample.depth, "ms": round(sample.ms, 4)} for sample in curve.samples],
    }


def _show(curves: Sequence[MeasuredCurve], plot: Path | None) -> None:
    console = console_on()
    for curve in curves:
        console.print(Text(f"{curve.role}: {curve.model}", "bold"), soft_wrap=True)
        console.print(_table(curve), "")
    legend = (f"at most {_CHEAP:g}", "green"), ", ", (f"at most {_HALF:g}", "yellow"), ", ", ("more", "red")
    console.print(Text.assemble("a row costs, of a single one: ", *legend))
    if plot is not None:
        console.print(Text(f"plot: {plot}"), soft_wrap=True)
    if stored := ", ".join(str(curve.file) for curve in curves if not curve.why_not):
        console.print(Text(f"stored: {stored}"), soft_wrap=True)


def _table(curve: MeasuredCurve) -> Table:
    depths = sorted({sample.depth for sample in curve.samples})
    ms = {(sample.n, sample.depth): sample.ms for sample in curve.samples}
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("n", justify="right", style="cyan")
    for depth in depths:
        table.add_column(f"ms after {depth:,}", justify="right")
        table.add_column("T(n)/T(1)", justify="right")
    for n in sorted({sample.n for sample in curve.samples}):
        row = [Text(str(n))]
        for depth in depths:
            ratio = ms[n, depth] / ms[1, depth]
            row += [Text(rounded(ms[n, depth], 3)), Text(f"{ratio:.2f}", _style(ratio / n))]
        table.add_row(*row)
    return table


def _style(share: float) -> str:
    return "green" if share <= _CHEAP else "yellow" if share <= _HALF else "red"


# --- the work


_HEAD_WINDOW = 1  # positions whose hidden rows are kept: none is read


@dataclass(frozen=True, slots=True)
class _Measuring:
    """Passes of 1 to n_max rows after each depth. depths: None for the usual ones, as far as a context goes; progress:
    called with what is being done and the share of it that is done.
    """

    n_max: int
    depths: Sequence[int] | None
    progress: Report

    def curve(
        self, context: Context, config: ModelConfig, role: str, name: str, depths: Sequence[int] | None
    ) -> MeasuredCurve:
        """Measure and store. Raises ConfigError."""
        from uad.runtime.costs import profile, profile_store

        if not context.can_take_back:
            raise ConfigError(
                f"{role} {name}: its memory cannot take drafts back: nothing can be drafted, and nothing measured"
            )
        at = profile.fitting_depths(context, self.n_max) if depths is None else depths
        every = profile.full(
            context, range(1, self.n_max + 1), at, lambda share: self.progress(f"measuring {role}", share)
        )
        samples = profile.medians(every)
        key = profile_store.key(config, role)
        if why_not := profile_store.why_worse(key, every):
            return MeasuredCurve(role, name, samples, profile_store.path(key), profile.spread(every), why_not)
        return MeasuredCurve(role, name, samples, profile_store.save(key, samples), profile.spread(every))

    def fitting(self, context: Context) -> Sequence[int] | None:
        """The depths after which this context has room: it may have less than the target's."""
        from uad.runtime.costs import profile

        return None if self.depths is None else profile.fitting_depths(context, self.n_max, self.depths)


def measure_profiles(
    config: Config, n_max: int, depths: Sequence[int] | None, progress: Report
) -> tuple[MeasuredCurve, ...]:
    """Measure passes of 1 to n_max rows after each depth (None: the usual ones, as far as the context goes) and store
    the curves: the target's, that of a head which is to draft, and after these, alone in memory, each draft model's.

    Raises ModelLoadError or ConfigError; what was measured before is stored.
    """
    from uad.runtime.plan import plan

    planned, measuring = plan(config), _Measuring(n_max, depths, progress)
    curves = _measure_target(planned, measuring)
    for draft in planned.config.drafts:
        curves.append(_measure_draft(replace(draft, n_ctx=draft.n_ctx // config.n_parallel), measuring))
    return tuple(curves)


def _measure_target(plan: Plan, measuring: _Measuring) -> list[MeasuredCurve]:
    """The curves of the target and of its head."""
    from uad.runtime.heads import open_context
    from uad.runtime.target import open_target

    with ExitStack() as stack:
        target = open_target(plan, stack, measuring.progress)
        name = target.model.info.desc
        curves = [measuring.curve(target.context, target.config, "target", name, measuring.depths)]
        if plan.head is not None:
            head, own = open_context(plan, stack, target, _HEAD_WINDOW, measuring.progress)
            curves.append(measuring.curve(head, own, "head", name, measuring.fitting(head)))
        return curves


def _measure_draft(own: ModelConfig, measuring: _Measuring) -> MeasuredCurve:
    """The draft's curve, with the threads and the context of one slot that a server would choose: it may have less room
    than the target, and then drafts from a window.
    """
    from uad.llama.context import Context
    from uad.llama.model import Model

    with (
        Model(own, "draft", lambda share: measuring.progress("loading draft", share)) as model,
        Context(model, own, 1, "draft") as context,
    ):
        context.choose_threads(own)
        return measuring.curve(context, own, "draft", model.info.desc, measuring.fitting(context))
