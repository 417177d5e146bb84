"""What each part of the policy earns on recorded rounds: `python lab/ablation.py [NAME ...]`.

A part is taken out, or made as simple as can be, and the recordings are replayed (`replay.py`): the geometric mean over
all recordings, costs, and 1 and 4 sequences, and the worst category of one sequence, against the whole policy. Curves
of `kernels.csv` (flat ones of uad's kernels, and llama.cpp's beside them) are counted apart from the others. Each part
is tried in a process of its own. A replay has a noise of 3 % in each decode and no disturbances: what is there for
those, `tests/unit/policy` shows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

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
TYPES = ("suffix", "draft-simple")


class Cell(NamedTuple):
    """Speed over plain decoding, and that of the worst category."""

    recording: str
    curve: str
    n_seq: int
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


_no = property(lambda self: False)
PARTS: dict[str, tuple[str, Callable[[], None]]] = {
    "whole": ("nothing is taken out", _put()),
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
    "few rounds": ("savings are learned fast at first", _put((drafter, "_FEW_ROUNDS", 1e9))),
    "first": ("an unknown drafter is expected to pay", _put((machine, "_USUALLY", 0.1))),
    "timed": ("dear calls are timed less often", _put((drafter, "_OFTEN", 256.0))),
    "around": ("what asking takes beside the call", _put((drafter.CallCost, "asked", lambda *_: None))),
    "read of plain": ("first guess of reading is bounded", _put((drafter, "_READ_OF_PLAIN", 1e9))),
    "at once": ("backlogs are read by their price", _put((drafter.CallCost, "read_at_once", lambda *_: 256))),
}


def measured(seeds: int, costs: Sequence[str]) -> list[Cell]:
    """The policy as it is now, on all recordings."""
    out = []
    for path in sorted(RECORDINGS.glob("*.json.gz")):
        recording = read(path)
        for curve in curves(recording, ()):
            for n in (1, 4) if not costs or curve.name in costs else ():
                params = SpeculativeParams()
                scores = [score(recording, curve, automatic, params, seed, n, TYPES) for seed in range(seeds)]
                by_category = [one.by_category() for one in scores]
                worst = min(geometric_mean([one[name] for one in by_category]) for name in by_category[0])
                out.append(Cell(path.name, curve.name, n, geometric_mean([one.mean for one in scores]), worst))
    return out


def line(name: str, cells: Sequence[Cell], whole: Sequence[Cell]) -> str:
    """A row of the table in lab/README.md: mean and worst category on older curves, and on those of `kernels.csv`."""
    new = {curve.name for curve in read_curves(KERNELS)}
    parts = []
    for is_new in (False, True):
        pairs = [pair for pair in zip(cells, whole, strict=True) if (pair[0].curve in new) is is_new]
        mean = geometric_mean([one.mean / other.mean for one, other in pairs])
        parts.append(
            f"{100 * (mean - 1):+.2f} % | {min(one.worst - other.worst for one, other in pairs if one.n_seq == 1):+.3f}"
        )
    return f"| {PARTS[name][0]} | {' | '.join(parts)} |"


def run(name: str, seeds: int, costs: Sequence[str]) -> list[Cell]:
    """The cells without this part, tried in a process of its own."""
    command = [sys.executable, __file__, "--cells", name, "--seeds", str(seeds), "--costs", *costs]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Cell(*cell) for cell in json.loads(done.stdout)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which (default: all)")
    parser.add_argument("--seeds", type=int, default=8, help="orders of the answers (default: 8)")
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
