"""Run in another process (`python -m uad.llama.kernels.proof`): whether the kernels compute on this machine, with this
llama.cpp, what llama.cpp's own do, and give each row the bits that it has alone.

A JSON object on stdin says what is tried; each step is one on stdout, before it begins and once it has ended. So the
other side knows at which part this process came to its end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from uad.base.common.arrays import Floats
from uad.base.common.cores import usable_cores
from uad.base.errors import UadError
from uad.llama.backend import native
from uad.llama.kernels import graphs, speed
from uad.llama.kernels.graphs import Attention, CpuBackend, How, Queries, Weight
from uad.llama.kernels.library import ACTIVATIONS, ATTENTION, BUFFER, IN_TILES, Library, NoKernelsError, load

REGISTER = "register"
"""The step before all parts."""
_ROWS = (1, 2, 3, 8, 13, 24, 40)  # of passes; matrix units take tiles of 16, and up to 32 at once
_ROWS_ON_ALL = (2, 8, 40)  # of passes on each number of threads, the others on most
_FEW = 13  # rows where a case is large
_SHAPES = ((1, 1, 67, 3), (1, 1, 16, 7), (1, 1, 130, 2), (2, 2, 48, 1))
"""Matrices side by side, inputs that share each of them, rows, and blocks of 256 in each row: matrix units take six."""
_ONE_THREAD = How()
_GROUP = 16  # rows that the library packs together
_MANY_CELLS = 1000
_EXPERTS, _USED = 4, 2
_K = 256
_MOST_THREADS = 16
# Root of the mean square of the difference to llama.cpp's result, over that of the result. Activations become integers
# of 8 bits here and there, each with an error of 0.6 % of its size; BF16, as matrix units take them, keeps 8 bits.
_FAR = {"f32": 1e-4, "f16": 2e-3, "bf16": 1e-2}
_FAR_QUANTIZED = 3e-2
_FAR_CACHES = {"f16": 5e-3, "bf16": 3e-2, "f32": 5e-3, "q8_0": 3e-2}
_WORST = 10.0  # how many times that a single value may be off
_WORSE = 1.5  # how many times llama.cpp's own error against exact products is allowed
_SEED = 20
_WITH_TILES = "amx"  # the kind of processor that has attention in tiles, and without
_CASES = (
    Attention(),
    Attention(width=(128, 128), heads=(6, 1), cells=200),
    Attention(width=(128, 128), heads=(4, 4), cells=520, n_streams=3),
    Attention(width=(80, 80), heads=(3, 3), cells=96),
    Attention(width=(256, 256), heads=(4, 1), cells=96),
    Attention(width=(192, 128), heads=(2, 2), cells=96),
    Attention(width=(576, 512), heads=(4, 1), cells=96),
    Attention(kind_k="f32", kind_v="f32", width=(32, 32), heads=(6, 6), cells=3000),
    Attention(cells=128, cap=30.0),
    Attention(cells=128, bias=8.0),
    Attention(cells=128, has_sinks=True, window=24),
    *(Attention(kind_k=kind, kind_v=kind, cells=136, n_streams=2) for kind in ("bf16", "f32", "q8_0")),
    Attention(kind_k="q8_0", kind_v="f16", width=(128, 128), cells=136),
)
_ACTIVATIONS = (  # type, streams, matrices, how many of the other side share each, rows, columns of each
    *(("f16", 1, 2, 3, 256, 64), ("f16", 3, 2, 1, 64, 768), ("f16", 1, 1, 8, 300, 576), ("f16", 1, 2, 2, 33, 80)),
    *(("bf16", 2, 2, 2, 70, 128), ("f32", 1, 2, 1, 50, 70), ("q8_0", 2, 1, 4, 70, 320)),
)


_Pass = Callable[[int, int], Floats | None]
"""Computes a pass of n rows on some threads."""


class WrongError(Exception):
    """A part's error, as the end of a sentence."""


def main() -> int:
    """Exit code 0, whatever the results are; lines on stdout hold them."""
    task: dict[str, Any] = json.load(sys.stdin)
    for name, result in prove(Path(task["library"]), task["kind"], task["parts"]):
        word = "why" if isinstance(result, str) else "times"
        print(json.dumps({"step": name} if result is None else {"step": name, word: result}), flush=True)
    return 0


def prove(path: Path, kind: str, parts: Sequence[str]) -> Iterator[tuple[str, str | tuple[float, ...] | None]]:
    """Each step with None as it begins, and with what is wrong ("" for nothing) once it has ended. Then, for each type
    of weights that is right, how long its products take (`speed.ratios`): no part waits for that, or is lost by it.
    """
    yield REGISTER, None
    native.start()
    try:
        library = load(path)
        library.register(kind)
    except (NoKernelsError, OSError, AttributeError) as error:
        yield REGISTER, str(error)
        return
    with closing(CpuBackend()) as backend:
        is_there, right = BUFFER in backend.buffers, list[str]()
        yield REGISTER, "" if is_there else f"llama.cpp does not list the buffer {BUFFER}"
        for part in parts if is_there else ():
            yield part, None
            try:
                Proof(library, backend, kind).of(part)
            except (WrongError, UadError) as error:
                yield part, str(error)
            else:
                yield part, ""
                right.append(part)
        for part in right:
            if part in graphs.types():
                with suppress(UadError):  # no memory for a larger matrix
                    yield part, speed.ratios(backend, part)


class Proof:
    """Proves one part after another. Raises WrongError."""

    def __init__(self, library: Library, backend: CpuBackend, kind: str) -> None:
        self._library, self._backend = library, backend
        self._has_tiles = kind == _WITH_TILES
        self._ours = backend.buffers[BUFFER]
        most = min(usable_cores(), _MOST_THREADS)
        threads = sorted({1, 2, 3, most})
        self._passes = [(n, t) for n in _ROWS for t in (threads if n in _ROWS_ON_ALL else (max(most, 2),))]

    def of(self, part: str) -> None:
        """Raises WrongError where this part is wrong."""
        if part == ATTENTION:
            self._attention()
        elif part == ACTIVATIONS:
            self._activations()
        elif part not in graphs.types():
            raise WrongError("this llama.cpp has no such type")
        else:
            self._products(part)
            self._experts(part, 1)
            self._experts(part, _USED)

    # --- products

    def _products(self, part: str) -> None:
        random, kind, n_taken = np.random.default_rng(_SEED), graphs.types()[part], 0
        for n, shared, rows, blocks in _SHAPES:
            values = _weights(random, n, rows, blocks * _K)
            n_rows = max(_ROWS) if n == 1 else _FEW
            x = _inputs(random, n * n * shared * n_rows, blocks * _K).reshape(n, n * shared, n_rows, blocks * _K)
            with graphs.weights(self._backend, kind, values, self._ours, self._backend.plain) as (ours, plain):
                n_taken += self._compare(part, ours, plain, x)
        if not n_taken:
            raise WrongError("no product runs in it")

    def _compare(self, part: str, ours: Weight, plain: Weight, x: Floats) -> bool:
        """Compare all passes on one weight; whether they ran in the library."""

        def multiply(weight: Weight, x: Floats, how: How = _ONE_THREAD) -> Floats | None:
            return graphs.product(self._backend, weight, x, how)

        alone = self._alone("products", (multiply(ours, x[:, :, i : i + 1]) for i in range(x.shape[2])), 2)
        if alone is None:
            return False
        self._check_passes("products", alone, 2, lambda n, t: multiply(ours, x[:, :, :n], How(t)), "a product")
        n, rows, _ = ours.shape
        if n == 1 and rows > 2 * _GROUP:  # graphs that split a matrix view its rows
            how = How(2, first=_GROUP, n_rows=rows - _GROUP)
            view = self._counted("products", lambda: multiply(ours, x[:, :, :_FEW], how))
            _check_bits(view, alone[:, :, :_FEW, _GROUP:], "a product with a view of weights")
        exact_weights = graphs.values_of(self._backend, plain).astype(np.float64).repeat(x.shape[1] // n, 0)
        exact = x.astype(np.float64) @ exact_weights.swapaxes(1, 2)
        _check_far(alone, multiply(plain, x), exact, _FAR.get(part, _FAR_QUANTIZED), "products")
        return True

    # --- experts

    def _experts(self, part: str, n_each: int) -> None:
        """n_each: columns that a token has, 1 for all of its experts or one for each."""
        random, kind = np.random.default_rng(_SEED), graphs.types()[part]
        n_rows = max(_ROWS) if n_each == 1 else _FEW
        x = _inputs(random, n_rows * n_each, _K).reshape(n_rows, n_each, _K)
        ids = np.stack([random.permutation(_EXPERTS)[:_USED] for _ in x]).astype(np.int32)
        values = _weights(random, _EXPERTS, 67, _K)

        def multiply(weight: Weight, rows: slice, n_threads: int = 1) -> Floats | None:
            return graphs.experts(self._backend, weight, x[rows], ids[rows], n_threads)

        with graphs.weights(self._backend, kind, values, self._ours, self._backend.plain) as (ours, plain):
            alone = self._alone("experts", (multiply(ours, slice(i, i + 1)) for i in range(n_rows)), 0)
            if alone is None:
                raise WrongError("no product with experts runs in it")
            name = "a product with experts"
            self._check_passes("experts", alone, 0, lambda n, t: multiply(ours, slice(n), t), name)
            matrices = graphs.values_of(self._backend, plain).astype(np.float64)[ids]  # [n, used, rows, k]
            columns = np.broadcast_to(x, (n_rows, _USED, _K)).astype(np.float64)
            exact = np.einsum("nurk,nuk->nur", matrices, columns)
            theirs = multiply(plain, slice(None))
            _check_far(alone, theirs, exact, _FAR.get(part, _FAR_QUANTIZED), "products with experts")

    # --- attention

    def _attention(self) -> None:
        for in_tiles in (False, True) if self._has_tiles else (True,):
            self._library.set_part(IN_TILES, in_tiles)
            random, taken = np.random.default_rng(_SEED), set()
            for case in _CASES:
                given = graphs.queries(case, _FEW if case.cells > _MANY_CELLS else max(_ROWS), random)
                if self._attends(given):
                    taken.add(case)
            if _CASES[0] not in taken:
                raise WrongError("no attention runs in it")

    def _attends(self, given: Queries) -> bool:
        """Compare all passes of one case; whether they ran in the library."""
        case, name = given.case, f"attention ({_named(given.case)})"

        def attend(given: Queries, n_threads: int = 1) -> Floats | None:
            return graphs.attend(self._backend, given, n_threads)

        alone = self._alone(ATTENTION, (attend(given.alone(i)) for i in range(given.q.shape[1])), 1)
        if alone is None:
            return False
        self._check_passes(ATTENTION, alone, 1, lambda n, t: attend(given.first(n), t), name)
        far = max(_FAR_CACHES[case.kind_k], _FAR_CACHES[case.kind_v])
        _check_far(alone, self._theirs(ATTENTION, lambda: attend(given)), None, far, name)
        return True

    # --- activations

    def _activations(self) -> None:
        random = np.random.default_rng(_SEED)
        for case in _ACTIVATIONS:
            kind, n3, n2, shared, rows, k = case
            a = random.standard_normal((n3, n2, rows, k), np.float32)
            b = random.standard_normal((n3, n2 * shared, max(_ROWS), k), np.float32)
            b[..., k - k // 5 :] = 0  # as a softmax leaves cells that are not seen yet
            self._multiplies(kind, a, b, f"a product of activations ({kind}, {' x '.join(map(str, case[1:]))})")

    def _multiplies(self, kind: str, a: Floats, b: Floats, name: str) -> None:
        def multiply(b: Floats, n_threads: int = 1) -> Floats | None:
            return graphs.activation_product(self._backend, kind, a, b, n_threads)

        alone = self._alone(ACTIVATIONS, (multiply(b[:, :, i : i + 1]) for i in range(b.shape[2])), 2)
        if alone is None:
            raise WrongError(f"{name} does not run in it")
        self._check_passes(ACTIVATIONS, alone, 2, lambda n, t: multiply(b[:, :, :n], t), name)
        _check_far(alone, self._theirs(ACTIVATIONS, lambda: multiply(b)), None, _FAR_CACHES[kind], name)

    # --- all of them

    def _alone(self, what: str, rows: Iterator[Floats | None], axis: int) -> Floats | None:
        """Results of single rows side by side; None where llama.cpp computed them itself."""
        return self._counted(what, lambda: _stacked(rows, axis))

    def _check_passes(self, what: str, alone: Floats, axis: int, compute: _Pass, name: str) -> None:
        """Compare passes of several rows on several threads with the results of single rows."""
        for n, n_threads in self._passes:
            if n <= alone.shape[axis]:
                computed = self._counted(what, lambda n=n, t=n_threads: compute(n, t))  # type: ignore[misc]
                _check_bits(computed, alone.take(range(n), axis), f"{name} of {n} rows on {n_threads} threads")

    def _theirs(self, part: str, compute: Callable[[], Floats | None]) -> Floats | None:
        """The result of this computation with llama.cpp's own kernels."""
        self._library.set_part(part, False)
        try:
            return compute()
        finally:
            self._library.set_part(part, True)

    def _counted(self, what: str, compute: Callable[[], Floats | None]) -> Floats | None:
        """The library's result of this computation, None where llama.cpp did it itself."""
        before = self._library.counts()[what]
        computed = compute()
        return computed if self._library.counts()[what] > before else None


def _named(case: Attention) -> str:
    kinds = f"{case.kind_k}, {case.kind_v}; heads of {case.width[0]}"
    extras = {"bias": case.bias, "cap": case.cap, "sinks": case.has_sinks, "window": case.window}
    return ", ".join((kinds, *(name for name, value in extras.items() if value)))


def _weights(random: np.random.Generator, n: int, rows: int, k: int) -> Floats:
    return random.standard_normal((n, rows, k), np.float32) * np.float32(0.05)


def _inputs(random: np.random.Generator, n: int, k: int) -> Floats:
    """Rows as models have them: a few values far larger than the others, each row of its own size."""
    x = random.standard_normal((n, k), np.float32) * random.uniform(0.1, 10, (n, 1)).astype(np.float32)
    x[:, random.integers(0, k, 2)] *= np.float32(8)
    return x


def _stacked(rows: Iterator[Floats | None], axis: int) -> Floats | None:
    stacked = [row for row in rows if row is not None]
    return np.concatenate(stacked, axis) if stacked else None


def _check_bits(computed: Floats | None, alone: Floats, what: str) -> None:
    if computed is None:
        raise WrongError(f"{what} does not run in it, single rows do")
    if not np.array_equal(computed.view(np.uint32), np.ascontiguousarray(alone).view(np.uint32)):
        raise WrongError(f"{what} has other bits than single rows")


def _check_far(computed: Floats, theirs: Floats | None, exact: Any, far: float, what: str) -> None:
    """Raises WrongError where results are not those of llama.cpp as far as rounding allows, or are worse than these."""
    if theirs is None:
        raise WrongError(f"llama.cpp does not compute {what}")
    size = float(np.sqrt(np.mean(theirs.astype(np.float64) ** 2)))
    off = (computed.astype(np.float64) - theirs) / _sizes(theirs)
    mean, worst = float(np.sqrt(np.mean(off**2))), float(np.abs(off).max())
    if not (mean <= far and worst <= far * _WORST and size > 0):  # NaN is wrong, too
        raise WrongError(f"{what} are off llama.cpp's by {mean:.2g} of their size, {worst:.2g} at most")
    if exact is not None:
        own, other = (
            float(np.sqrt(np.mean(((values - exact) / _sizes(theirs)) ** 2))) for values in (computed, theirs)
        )
        if not own <= max(other * _WORSE, 1e-6):
            raise WrongError(f"{what} have an error of {own:.2g}, llama.cpp's of {other:.2g}")


def _sizes(results: Floats) -> Any:
    """The size of each row of results, the last axis."""
    return np.maximum(np.sqrt(np.mean(results.astype(np.float64) ** 2, -1, keepdims=True)), 1e-30)


if __name__ == "__main__":
    sys.exit(main())
