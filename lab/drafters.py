"""The cost of drafting without a model per round, by length of history; and the policy (`policy.py`): `python
lab/drafters.py`.

A scripted target writes a text that is known beforehand, in rounds: propose, accept what agrees and one id more,
observe. The same rounds run several times and each counts with its fastest time, so that what other programs do at the
same time does not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, product
from time import perf_counter

import policy
from rich.table import Table

from uad.base.config import LookupConfig
from uad.base.config.argv import Parser, typed
from uad.base.config.drafter_types import LOOKUP_TYPES
from uad.base.config.kinds import integer
from uad.base.console import Bar, console_on
from uad.base.errors import ConfigError
from uad.base.types import N_MAX_AUTO, Ask, Commit, Origin
from uad.drafts.lookup.lookup_drafter import LookupDrafter
from uad.tools.cli import run

HISTORIES = (1024, 8192, 32768, 131072)
TYPES = tuple(str(one.origin) for one in LOOKUP_TYPES if not one.by_request)
_N_VOCAB = 32000
_EDIT_EVERY = 97
_LEAST_HISTORY = 256
DESCRIPTION = """Measure what the drafters without a model cost per round, by length of history, and how much memory
they take.

A scripted target repeats its history with edits (copy), writes words by their frequency (zipf), or repeats nothing
(random). No model is needed. The last line is JSON."""

Make = Callable[[], LookupDrafter]
Text = Callable[[random.Random, int, int], list[int]]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line. Raises ConfigError."""
    parser = Parser("lab/drafters.py", DESCRIPTION)
    add, whole = parser.add_argument, typed(integer(1))
    add(
        "--types",
        metavar="NAMES",
        default=",".join(TYPES),
        help="comma list of drafters (default: all without a model)",
    )
    add(
        "--history",
        metavar="N,N",
        default=",".join(map(str, HISTORIES)),
        help="lengths of history in tokens (default: %(default)s)",
    )
    add("--rounds", metavar="N", type=whole, default=300, help="rounds per cell (default: %(default)s)")
    add("--repeats", metavar="N", type=whole, default=5, help="runs of the same rounds (default: %(default)s)")
    most = "most tokens per draft (default: %(default)s, as the automatic policy asks)"
    add("--n-max", metavar="N", type=whole, default=N_MAX_AUTO, help=most)
    return parser.parse(argv)


@dataclass(frozen=True, slots=True)
class Cell:
    """One drafter on one workload after one length of history (tokens). Times are microseconds per round of one
    sequence, memory MB.

    `begin_ms` is what reading the history took, `n_ids` the mean number of ids that a round committed.
    """

    type: str
    workload: str
    n_history: int
    us_per_round: float
    worst_us: float
    memory_mb: float
    begin_ms: float
    n_ids: float


def main(argv: Sequence[str]) -> int:
    """Measure and print; the last line on stdout is JSON. Raises ConfigError."""
    from uad.drafts.lookup.build import build_one

    args = parse(argv)
    types, histories = _types(args.types), _histories(args.history)
    cells = []
    policy_cells = []
    with Bar(sys.stderr, len(types) * len(histories) * len(WORKLOADS) + len(policy.N_SEQS) * len(policy.N_IDS)) as bar:
        for origin in types:
            for workload in WORKLOADS:
                for n_history in histories:
                    bar.at(f"{origin} on {workload} after {n_history} tokens")
                    cells.append(measure(partial(build_one, origin, LookupConfig(), "", 1), workload, n_history, args))
                    bar.step()
        for n_seq, n_ids in product(policy.N_SEQS, policy.N_IDS):
            bar.at(f"automatic policy, {n_seq} x {n_ids} ids")
            policy_cells.append(policy.measure(n_seq, n_ids, args.rounds, args.repeats))
            bar.step()
    console = console_on(width=140)
    console.print(table(cells, histories))
    console.print(policy.table(policy_cells))
    print(
        json.dumps({"types": [_rounded(cell) for cell in cells], "policy": [_rounded(cell) for cell in policy_cells]}),
        flush=True,
    )
    return 0


def measure(make: Make, workload: str, n_history: int, args: argparse.Namespace) -> Cell:
    """One cell: every run has a new drafter."""
    text = WORKLOADS[workload](random.Random(n_history), n_history, args.rounds * (args.n_max + 1))
    runs = []
    for _ in range(args.repeats):
        drafter = make()
        began = perf_counter()
        _read(drafter, text[:n_history])
        begin_ms = 1e3 * (perf_counter() - began)
        runs.append((list(rounds(drafter, text, n_history, args.rounds, args.n_max)), begin_ms, drafter.memory))
    best = [min(times) for times in zip(*([us for us, _ in run] for run, _, _ in runs), strict=True)]
    n_ids = sum(n for _, n in runs[0][0]) / len(best)
    began_ms = min(begin_ms for _, begin_ms, _ in runs)
    return Cell(
        str(drafter.origin), workload, n_history, sum(best) / len(best), max(best), runs[0][2] / 1e6, began_ms, n_ids
    )


def _read(drafter: LookupDrafter, prompt: Sequence[int]) -> None:
    """Begin, and let the drafter read along until it knows the whole prompt: some take it in pieces."""
    drafter.begin(0, prompt)
    for _ in range(0, len(prompt) + 1, _LEAST_HISTORY):
        drafter.propose([Ask(0, 0)])


def rounds(
    drafter: LookupDrafter, text: Sequence[int], start: int, n_rounds: int, n_max: int
) -> Iterator[tuple[float, int]]:
    """Microseconds of propose and observe, and how many ids were committed, round by round."""
    asks, at = [Ask(0, n_max)], start
    for _ in range(n_rounds):
        began = perf_counter()
        (draft,) = drafter.propose(asks)
        proposed = perf_counter()
        n = next((i for i, id_ in enumerate(draft.ids) if id_ != text[at + i]), len(draft.ids))
        commit = Commit(0, tuple(text[at : at + n + 1]), n_drafted=len(draft.ids), n_accepted=n)
        observing = perf_counter()
        drafter.observe(commit)
        yield 1e6 * (perf_counter() - observing + proposed - began), n + 1
        at += n + 1


def _copy(rng: random.Random, n_history: int, n_answer: int) -> list[int]:
    """An answer that repeats its history, with a new id now and then: an edit."""
    history = [rng.randrange(_N_VOCAB) for _ in range(n_history)]
    answer = [history[i % n_history] for i in range(n_answer)]
    answer[_EDIT_EVERY::_EDIT_EVERY] = [rng.randrange(_N_VOCAB) for _ in answer[_EDIT_EVERY::_EDIT_EVERY]]
    return history + answer


def _zipf(rng: random.Random, n_history: int, n_answer: int) -> list[int]:
    """Ids as frequent as words are: short n-grams occur often, and what follows them is open."""
    weights = list(accumulate(1 / rank for rank in range(1, _N_VOCAB + 1)))
    return rng.choices(range(_N_VOCAB), cum_weights=weights, k=n_history + n_answer)


def _random(rng: random.Random, n_history: int, n_answer: int) -> list[int]:
    """Ids that repeat nothing."""
    return [rng.randrange(_N_VOCAB) for _ in range(n_history + n_answer)]


WORKLOADS: dict[str, Text] = {"copy": _copy, "zipf": _zipf, "random": _random}


def table(cells: Sequence[Cell], histories: Sequence[int]) -> Table:
    """A row per type and workload, a column per length of history."""
    heads = [f"{n:,} tokens" for n in histories]
    result = Table("type", "workload", *heads, "longest / shortest", "ids per round", "MB", "reading, ms")
    result.title = (
        f"µs per round (propose and observe), by length of history; memory and reading at {histories[-1]:,} tokens"
    )
    by_row: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        by_row.setdefault((cell.type, cell.workload), []).append(cell)
    for (name, workload), row in by_row.items():
        last = row[-1]
        numbers = (f"{cell.us_per_round:.1f}" for cell in row)
        flat = f"{last.us_per_round / row[0].us_per_round:.2f}"
        result.add_row(
            name, workload, *numbers, flat, f"{last.n_ids:.1f}", f"{last.memory_mb:.1f}", f"{last.begin_ms:.1f}"
        )
    return result


def _rounded(cell: Cell | policy.PolicyCell) -> dict[str, object]:
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(cell).items()}


def _types(given: str) -> list[Origin]:
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in TYPES:
            raise ConfigError(f"--types: {name!r} is not one of {', '.join(TYPES)}")
    return [Origin(name) for name in dict.fromkeys(names)]


def _histories(given: str) -> list[int]:
    try:
        histories = sorted({int(word) for word in given.split(",")})
    except ValueError:
        raise ConfigError(f"--history {given!r}: write whole numbers with commas between them") from None
    if histories[0] < _LEAST_HISTORY:
        raise ConfigError(f"--history {given!r}: a history has at least {_LEAST_HISTORY} tokens")
    return histories


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
