"""`uad kernels`: how fast uad's kernels for CPUs are on this machine, beside llama.cpp's own and what memory gives."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from uad.base.common.cores import usable_cores
from uad.base.common.files import path_of, size_text
from uad.base.common.names import did_you_mean
from uad.base.config.argv import Parser, typed
from uad.base.config.kinds import THREADS, Kind, integer
from uad.base.console import Report, console_on, progress, set_up_logging
from uad.base.errors import ConfigError, UadError
from uad.tools.cli import cost_plot, kernel_plot
from uad.tools.cli.kernel_plot import GIGA, OWN, THEIRS, KernelSpeeds, Timed, TypeSpeed

if TYPE_CHECKING:
    from uad.llama.kernels.graphs import CpuBackend
    from uad.llama.kernels.library import Library
    from uad.llama.kernels.speed import MemoryRead
    from uad.llama.kernels.use import Kernels

_DESCRIPTION = """Measure uad's kernels for CPUs on this machine, for each type of weights, beside llama.cpp's own.

Both compute the same passes in turns: many matrices times 1 and 8 columns, as when tokens are written or verified, and
one matrix times 512, as when prompts are read. Bytes of weights per second are compared to a plain read of memory by
all threads, products per second to the largest rate of all. Let the machine rest meanwhile."""
_EPILOG = """examples: uad kernels
          uad kernels --types q4_K q8_0 --plot kernels.png"""
_ALL = "all"
_USUAL = ("q4_K", "q6_K", "q8_0", "bf16", "f16")
_FEW, _MANY = (1, 8), 512  # columns of a pass
_CACHES = 4  # how many times the last cache the weights of a pass fill
_LEAST_BYTES = 64 << 20
_SHARE = 10  # of the memory that is left, this part is the most for a pass: there are two of them, and the read's
_MOST_SIDE, _MOST_MATRICES, _FLOAT = 1 << 20, 4096, 4
_ROUNDS, _MOST_ROUNDS, _SECONDS = 5, 25, 6.0
_SAME = 0.98


def _size(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"(\d+)[x×](\d+)", text.strip().lower())):
        raise ValueError
    rows, columns = (integer(1, _MOST_SIDE).parse(group) for group in match.groups())
    return rows, columns


_SIZE = Kind("rows and columns of a matrix, such as 4096x4096", _size)


def main(argv: Sequence[str]) -> int:
    """Measure and print. Raises UadError."""
    args = _parser().parse(argv)
    set_up_logging(logging.WARNING)
    plot = None if args.plot is None else path_of(args.plot)
    if plot is not None:
        cost_plot.check(plot)
    kernels, library = _used()
    names = _chosen(args.types, kernels)
    with progress(sys.stderr) as report:
        speeds = measure(kernels, library, names, args.size, args.threads, report)
    if plot is not None:
        kernel_plot.draw(speeds, plot)
    if args.json:
        print(json.dumps(_values(speeds) | {"plot": args.plot}))
    else:
        _show(speeds, plot)
    return 0


def _parser() -> Parser:
    parser = Parser("uad kernels", _DESCRIPTION, _EPILOG)
    add = parser.add_argument
    add(
        "--types",
        metavar="NAME",
        nargs="+",
        help=f"types of weights, or {_ALL} (default: {' '.join(_USUAL)}, those that run here)",
    )
    add(
        "--size",
        metavar="ROWSxCOLUMNS",
        type=typed(_SIZE),
        default=(4096, 4096),
        help="of a matrix (default: 4096x4096); passes of few columns have as many matrices as exceed the last cache "
        f"{_CACHES} times",
    )
    add(
        "-t",
        "--threads",
        type=typed(THREADS),
        default=0,
        metavar="N",
        help="CPU threads (default: physical cores, within the CPU quota)",
    )
    add("--plot", metavar="FILE", help="draw the rates: a .png, .svg or .pdf file")
    add("--json", action="store_true", help="print one line of JSON instead of a table")
    return parser


# --- what is measured


def _used() -> tuple[Kernels, Library]:
    """The kernels of this process, and their library. Raises ConfigError where none runs."""
    from uad.llama.kernels import use

    kernels = use.started()
    if kernels.library is None:
        raise ConfigError(f"there is nothing to measure: {kernels.note()}; {_way_out(kernels.reason)}")
    if not kernels.types:
        raise ConfigError(f"there is nothing to measure: {kernels.note()}")
    return kernels, kernels.library


def _way_out(reason: str) -> str:
    if "not installed" in reason:
        return "install uad with its dependencies, on Linux (x86-64 with AVX2, ARM with dot products)"
    return "unset UAD_KERNELS" if reason.startswith("UAD_KERNELS=") else "`uad serve` does without them, too"


def _chosen(wanted: Sequence[str] | None, kernels: Kernels) -> tuple[str, ...]:
    """Names of types, each once, in the order wanted; None: the usual ones that run here. Raises ConfigError for one
    that does not run here.
    """
    if wanted is None:
        return tuple(name for name in _USUAL if name in kernels.types) or kernels.types
    if _ALL in (text.lower() for text in wanted):
        return kernels.types
    return tuple(dict.fromkeys(_name(text, kernels) for text in wanted))


def _name(text: str, kernels: Kernels) -> str:
    """The type that a word of --types stands for. Raises ConfigError."""
    known = (*kernels.types, *kernels.wrong_types)
    name = next((name for name in known if name.lower() == text.lower()), None)
    if name is None:
        raise ConfigError(f"--types {text}: {did_you_mean(text, (*known, _ALL))} (there are {', '.join(known)})")
    if name in kernels.wrong_types:
        raise ConfigError(f"--types {text}: it is left to llama.cpp here ({kernels.wrong_types[name]})")
    return name


def measure(
    kernels: Kernels, library: Library, names: Sequence[str], size: tuple[int, int], n_threads: int, report: Report
) -> KernelSpeeds:
    """All passes of these types. n_threads: 0 for the usable cores. Raises UadError."""
    from uad.llama.kernels import speed
    from uad.llama.kernels.graphs import CpuBackend

    for name in names:
        if size[1] % (multiple := speed.multiple(name)):
            raise ConfigError(f"--size {size[0]}x{size[1]}: {name} has a multiple of {multiple} columns")
    cache, n_threads = speed.last_cache(), n_threads or usable_cores()
    n_bytes = _room(_CACHES * cache, [speed.matrix_bytes(name, size) for name in names], size)
    reads: list[float] = []
    types = []
    with CpuBackend() as backend, speed.MemoryRead(n_bytes, n_threads) as read:
        for i, name in enumerate(names):
            report("measuring", i / len(names))
            measured, times = _TypeTurns(backend, read, size, n_threads).of(name)
            types.append(measured)
            reads += times
        report("measuring", 1.0)
        memory = read.n_bytes / median(reads)
    left = {name: why for name, why in kernels.wrong_types.items() if name in library.parts}
    facts = (kernels.kind, library.kinds, library.version, n_threads, size, cache, memory)
    return KernelSpeeds(*facts, types=tuple(types), left=left)


def _room(wanted: int, matrices: Sequence[int], size: tuple[int, int]) -> int:
    """Bytes of weights in a pass: those wanted, as far as there is memory. matrices: bytes of one of each type. Raises
    ConfigError for matrices that are too large for it, or too small.
    """
    from uad.base.common.available import available

    shape = f"--size {size[0]}x{size[1]}"
    wanted = max(wanted, _LEAST_BYTES)
    most = max(0, min((limit.n_bytes for limit in available()), default=_SHARE * wanted) // _SHARE)
    bytes_of_pass = max(matrices) + _FLOAT * _MANY * sum(size)
    if bytes_of_pass > most:
        raise ConfigError(
            f"{shape}: {size_text(bytes_of_pass)} do not fit several times into memory; choose a smaller one"
        )
    n_bytes = min(wanted, most)
    if n_bytes > _MOST_MATRICES * min(matrices):
        raise ConfigError(
            f"{shape}: more than {_MOST_MATRICES} are needed to exceed the last cache; choose a larger one"
        )
    return n_bytes


@dataclass(frozen=True, slots=True)
class _TypeTurns:
    """Measures one type after another."""

    backend: CpuBackend
    read: MemoryRead
    size: tuple[int, int]
    n_threads: int

    def of(self, name: str) -> tuple[TypeSpeed, Sequence[float]]:
        """The type's speeds, and seconds of reads of memory meanwhile. Raises UadError."""
        from uad.llama.kernels import speed
        from uad.llama.kernels.library import BUFFER

        if not speed.is_taken(self.backend, name, self.size):
            raise ConfigError(f"--size {self.size[0]}x{self.size[1]}: uad's kernels leave such a {name} to llama.cpp")
        n_bytes, place = speed.matrix_bytes(name, self.size), speed.place(self.backend, name, self.size)
        n_matrices = -(-self.read.n_bytes // n_bytes)
        plan = [(n, n_matrices if n in _FEW else 1) for n in (*_FEW, _MANY)]
        buffers = {OWN: self.backend.buffers[BUFFER], THEIRS: speed.places(self.backend)[place]}
        runs: list[Callable[[], float]] = [self.read.run]
        with ExitStack() as stack:
            for side, buffer_type in buffers.items():
                runs += self._passes(stack, name, side, buffer_type, plan)
            times = in_turns(runs, _SECONDS)
        own, theirs = times[1 : 1 + len(plan)], times[1 + len(plan) :]
        timed = [
            Timed(n, m, {OWN: median(ours), THEIRS: median(other)})
            for (n, m), ours, other in zip(plan, own, theirs, strict=True)
        ]
        return TypeSpeed(name, place, n_bytes, self.size[0] * self.size[1], tuple(timed)), times[0]

    def _passes(
        self, stack: ExitStack, name: str, side: str, buffer_type: int, plan: Sequence[tuple[int, int]]
    ) -> Iterator[Callable[[], float]]:
        """Calls that run each pass of the plan on weights in these buffers, after a first time that does not count."""
        from uad.llama.kernels import speed

        weights = stack.enter_context(speed.Matrices(buffer_type, name, max(m for _, m in plan), self.size))
        weights.fill()
        for n, m in plan:
            pass_ = stack.enter_context(speed.TimedPass(self.backend, weights.all[:m], self.size[1], n))
            pass_.prepare()
            before = speed.n_products()
            pass_.run(self.n_threads)
            if (speed.n_products() > before) != (side == OWN):
                raise UadError(f"products of {name} with {n} columns did not run in the kernels of {side}")
            yield lambda pass_=pass_: pass_.run(self.n_threads)  # type: ignore[misc]


def in_turns(
    runs: Sequence[Callable[[], float]], seconds: float, clock: Callable[[], float] = monotonic
) -> list[list[float]]:
    """The results of each run, one after another, in at least five rounds and as many as there is time for. Each round
    begins elsewhere.
    """
    times: list[list[float]] = [[] for _ in runs]
    end, i = clock() + seconds, 0
    while i < _ROUNDS or (i < _MOST_ROUNDS and clock() < end):
        for j in range(len(runs)):
            at = (i + j) % len(runs)
            times[at].append(runs[at]())
        i += 1
    return times


# --- what is shown


def _values(speeds: KernelSpeeds) -> dict[str, object]:
    return {
        "kind": speeds.kind,
        "kinds": speeds.kinds,
        "version": speeds.version,
        "threads": speeds.n_threads,
        "rows": speeds.size[0],
        "columns": speeds.size[1],
        "last_cache_bytes": speeds.cache,
        "memory_gb_per_s": round(speeds.memory / GIGA, 3),
        "most_products_per_s": round(speeds.most_products),
        "types": [_type_values(speed) for speed in speeds.types],
        "left_to_llama_cpp": dict(speeds.left),
    }


def _type_values(speed: TypeSpeed) -> dict[str, object]:
    passes = [
        {
            "n": timed.n,
            "matrices": timed.n_matrices,
            "uad": _side_values(speed, timed, OWN),
            "llama_cpp": _side_values(speed, timed, THEIRS),
        }
        for timed in speed.timed
    ]
    return {"type": speed.name, "bytes": speed.n_bytes, "llama_cpp_weights_in": speed.place, "passes": passes}


def _side_values(speed: TypeSpeed, timed: Timed, side: str) -> Mapping[str, float]:
    return {
        "ms": round(timed.seconds[side] * 1e3, 4),
        "gb_per_s": round(speed.bytes_per_s(timed, side) / GIGA, 3),
        "products_per_s": round(speed.products_per_s(timed, side)),
        "ratio_to_1": round(speed.ratio(timed, side), 3),
    }


def _show(speeds: KernelSpeeds, plot: Path | None) -> None:
    console = console_on()
    for line in _lines(speeds):
        console.print(Text(line), soft_wrap=True)
    console.print("", _table(speeds), sep="\n")
    if plot is not None:
        console.print(Text(f"plot: {plot}"), soft_wrap=True)


def _lines(speeds: KernelSpeeds) -> Iterator[str]:
    """Lines about the kernels that ran, and the rates of the machine."""
    yield f"kernels: {speeds.kind} (this processor has {', '.join(speeds.kinds)}), {speeds.threads}"
    for name, why in speeds.left.items():
        yield f"{name} is left to llama.cpp ({why})"
    yield f"plain read of memory: {speeds.memory / GIGA:.1f} GB/s; the last cache has {size_text(speeds.cache)}"
    yield f"largest rate of products, each a multiplication and an addition: {_number(speeds.most_products)} G/s"
    yield f"matrices of {speeds.size[0]} x {speeds.size[1]}, as many as exceed that cache; one for {_MANY} columns"


def _table(speeds: KernelSpeeds) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("type", style="cyan")
    own, theirs = ("GB/s", "of memory", "G/s", "of largest", "T(n)/T(1)"), ("llama.cpp: GB/s", "G/s", "T(n)/T(1)")
    for name in ("columns", *own, *theirs, "in"):
        table.add_column(name, justify="right")
    table.add_column("gain", justify="right")
    for speed in speeds.types:
        for timed in speed.timed:
            table.add_row(*_row(speeds, speed, timed))
    return table


def _row(speeds: KernelSpeeds, speed: TypeSpeed, timed: Timed) -> Iterator[Text]:
    is_first = timed is speed.timed[0]
    yield Text(speed.name if is_first else "")
    yield Text(str(timed.n))
    own = speed.bytes_per_s(timed, OWN), speed.products_per_s(timed, OWN)
    yield Text(_number(own[0]))
    yield Text(f"{own[0] / speeds.memory:.0%}")
    yield Text(_number(own[1]))
    yield Text(f"{own[1] / speeds.most_products:.0%}")
    yield Text(f"{speed.ratio(timed, OWN):.2f}")
    yield Text(_number(speed.bytes_per_s(timed, THEIRS)))
    yield Text(_number(speed.products_per_s(timed, THEIRS)))
    yield Text(f"{speed.ratio(timed, THEIRS):.2f}")
    yield Text(speed.place if is_first else "")
    gain = timed.seconds[THEIRS] / timed.seconds[OWN]
    yield Text(f"{gain:.2f}", "green" if gain > 1 / _SAME else "red" if gain < _SAME else "")


def _number(rate: float) -> str:
    return f"{rate / GIGA:.3g}" if rate < 999.5 * GIGA else f"{rate / GIGA:.0f}"
