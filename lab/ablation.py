"""The gain of each part of the policy on recorded rounds: `python lab/ablation.py [NAME ...]`.

A part is taken out, or made as simple as can be, and the recordings are replayed (`replay.py`), against the whole
policy: with `suffix` and the draft model for 1 and 4 sequences, and with the model alone for one. A row has the change
of the geometric mean over all cells, then over parts of them. Curves of `kernels.csv` (flat ones of uad's kernels, and
llama.cpp's beside them) are counted apart from the others. "category" is the change of the worst category of a cell
with one sequence, on average and where it falls most. Each part is tried in a process of its own. Both sides have the
same luck: what a decode takes at a place of an answer is the same whoever decides. The row "noise" has the whole policy
with times that are taken for a thousandth longer: what a change of nothing looks like.

A replay has a noise of 3 % in each decode and no disturbances: what is there for those, `tests/unit/policy` shows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any, NamedTuple
from zlib import crc32

from curves import KERNELS, curves, read_curves
from replay import automatic, score
from rounds import read

from uad.base.types import SpeculativeParams
from uad.engine.policy import (
    calibration,
    choose,
    cost,
    drafter,
    knowledge,
    machine,
    members,
    writing,
)

RECORDINGS = Path(__file__).parent / "recordings"
MODEL_ALONE = ("draft-simple",)
WAYS = ((1, ("suffix", *MODEL_ALONE)), (4, ("suffix", *MODEL_ALONE)), (1, MODEL_ALONE))  # sequences, drafters


class Cell(NamedTuple):
    """Speed over plain decoding, and that of the worst category."""

    recording: str
    curve: str
    n_seq: int
    is_model_alone: bool
    mean: float
    worst: float


def _put(*changes: tuple[Any, str, Any]) -> Callable[[], None]:
    def work() -> None:
        for owner, name, value in changes:
            setattr(owner, name, value)

    return work


def _followed(self: Any, ratio: float) -> float:
    surprise = log(min(max(ratio, 1 / 1.5), 1.5))
    self._log_speed += 0.15 * surprise
    self.speed = exp(self._log_speed)
    return surprise


def _unscaled(self: Any, n: int) -> float:
    return 0.0 if self.steps is None else float(self.steps.ms(n))


def _plain_mean(known: float, ms: float) -> float:
    return known + 0.15 * (ms - known) if known else ms


_followed_as_it_is = cost.CostCurve._follow


def _a_little_wrong(self: Any, ratio: float) -> float:
    """A thousandth more than was measured: no policy should care, and all later decisions may differ by it."""
    return _followed_as_it_is(self, ratio * 1.001)


def _paid_in_full(self: Any, n: float) -> None:
    self.budget -= n


_no = property(lambda self: False)
PARTS: dict[str, tuple[str, Callable[[], None]]] = {
    "whole": ("nothing is taken out", _put()),
    "noise": ("noise: all times are taken for 0.1 % longer", _put((cost.CostCurve, "_follow", _a_little_wrong))),
    "lately": ("sizes wait for the machine's factors", _put((cost.CostCurve, "_follow", _followed))),
    "changes": ("what a change of rows costs", _put((cost._SizeChangeCost, "are_clear", _no))),
    "padding": ("drafts are padded to cheaper sizes", _put((machine, "_PADDING", 0))),
    "clear": ("drafts have to gain 3 %", _put((choose, "CLEAR", 1.0), (machine, "CLEAR", 1.0))),
    "sure": ("a sure look-up spares the model", _put((members.Automatic, "is_sure", _no))),
    "timing": ("calls that only show what they cost", _put((drafter.CallCost, "is_old", _no))),
    "next": ("how sure the next ids are", _put((calibration.Calibration, "next_chance", lambda self, i: 0.8))),
    "steps": ("steps of a call", _put((drafter.CallCost, "stepped", lambda *_: None))),
    "longer": ("rests grow", _put((drafter, "_LONGEST_REST", 2))),
    "for probes": ("savings pay for probes", _put((drafter, "_FOR_PROBES", 0.0))),
    "reading": ("reading has to be earned back", _put((knowledge.SequenceState, "is_worth_reading", lambda *_: True))),
    "scaled": ("step costs are scaled by the call", _put((drafter.CallCost, "step_ms", _unscaled))),
    "outliers": ("outliers of a call count little", _put((drafter, "learned", _plain_mean))),
    "sizes": ("sizes are learned", _put((cost._SizeTable, "learn", lambda self, n, ratio: None))),
    "look ahead": ("a draft looks four ids ahead, not one", _put((writing, "_LOOK_AHEAD", 1))),
    "line": (
        "the line of beliefs is fitted",
        _put((calibration, "_SLOPE_RATE", 0.0), (calibration, "_SHIFT_RATE", 0.0)),
    ),
    "speed": ("the machine's speed is followed", _put((cost, "SPEED_RATE", 0.0))),
    "few rounds": ("gains of those that write are learned fast at first", _put((drafter, "_FEW_ROUNDS", 1e9))),
    "first": ("an unknown drafter is expected to pay", _put((machine, "_USUALLY", 0.1))),
    "timed": ("dear calls are timed less often", _put((drafter, "_OFTEN", 256.0))),
    "around": ("what asking takes beside the call", _put((drafter.CallCost, "asked", lambda *_: None))),
    "forgetting": ("bins forget", _put((calibration, "_KEPT", 1.0))),
    "bins": ("bins beside the line", _put((calibration, "_PRIOR", 1e9))),
    "warm": ("sampled answers are a kind of their own", _put((knowledge, "_WARM", 1e9))),
    "own saving": ("each sequence's own savings", _put((drafter, "_SEQUENCE_RATE", 0.0))),
    "beyond": ("texts longer than measured ones", _put((cost._DepthSlope, "learn", lambda *_: 1.0))),
    "budget": ("budgets end at 20 decodes", _put((drafter, "_MOST_BUDGET", 1e9))),
    "debt": ("probes owe two decodes at most", _put((drafter.DrafterRecord, "pay", _paid_in_full))),
    "read of plain": ("first guess of reading is bounded", _put((drafter, "_READ_OF_PLAIN", 1e9))),
    "at once": ("backlogs are read by their price", _put((drafter.CallCost, "read_at_once", lambda *_: 256))),
}


def measured(seeds: Sequence[int], costs: Sequence[str]) -> list[Cell]:
    """The policy as it is now, on all recordings."""
    out = []
    for path in sorted(RECORDINGS.glob("*.json.gz")):
        recording = read(path)
        for curve in curves(recording, ()):
            for n, types in WAYS if not costs or curve.name in costs else ():
                params = SpeculativeParams()
                cell = f"{path.name} {curve.name} {n} {types}"  # each has times of its own: luck is not the same in all
                own = [crc32(f"{seed} {cell}".encode()) for seed in seeds]
                scores = [score(recording, curve, automatic, params, seed, n, types) for seed in own]
                by_category = [one.by_category() for one in scores]
                worst = min(geometric_mean([one[name] for one in by_category]) for name in by_category[0])
                speed = geometric_mean([one.mean for one in scores])
                out.append(Cell(path.name, curve.name, n, types == MODEL_ALONE, speed, worst))
    return out


def line(name: str, cells: Sequence[Cell], whole: Sequence[Cell]) -> str:
    """A row of the table in lab/README.md."""
    new = {curve.name for curve in read_curves(KERNELS)}
    pairs = list(zip(cells, whole, strict=True))
    both = [pair for pair in pairs if not pair[0].is_model_alone]
    changes = [
        _change(pairs),
        _change([pair for pair in both if pair[0].curve not in new]),
        _change([pair for pair in both if pair[0].curve in new]),
        _change([pair for pair in pairs if pair[0].is_model_alone]),
    ]
    falls = [one.worst - before.worst for one, before in pairs if one.n_seq == 1]
    return f"| {PARTS[name][0]} | {' | '.join(changes)} | {mean(falls):+.3f} | {min(falls):+.3f} |"


def _change(pairs: Sequence[tuple[Cell, Cell]]) -> str:
    """The change of the geometric mean; empty without cells."""
    return f"{100 * (geometric_mean([one.mean / before.mean for one, before in pairs]) - 1):+.2f} %" if pairs else ""


def run(name: str, seeds: Sequence[int], costs: Sequence[str]) -> list[Cell]:
    """The cells without this part, tried in a process of its own."""
    command = [sys.executable, __file__, "--cells", name, "--seeds", *map(str, seeds), "--costs", *costs]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Cell(*cell) for cell in json.loads(done.stdout)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which (default: all)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=range(8), help="orders of the answers (default: 0 to 7)"
    )
    parser.add_argument("--costs", nargs="*", default=[], help="names of curves (default: all that fit)")
    parser.add_argument("--keep", type=Path, help="write the whole policy's cells to this file, or compare with them")
    parser.add_argument("--cells", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cells:
        PARTS[args.cells][1]()
        print(json.dumps(measured(args.seeds, args.costs)))
        return 0
    if args.keep and args.keep.exists():
        whole = [Cell(*cell) for cell in json.loads(args.keep.read_text())]
        print(line("whole", run("whole", args.seeds, args.costs), whole), flush=True)
    else:
        whole = run("whole", args.seeds, args.costs)
    if args.keep and not args.keep.exists():
        args.keep.write_text(json.dumps(whole))
    for name in args.parts or [one for one in PARTS if one != "whole"]:
        print(line(name, run(name, args.seeds, args.costs), whole), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
