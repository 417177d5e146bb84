"""One pass over matrices of weights, or one read of memory, and its time: what `uad kernels` measures in turns. Knows
neither turns nor medians.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import numpy as np

from uad.llama.backend import amx, native
from uad.llama.kernels import use
from uad.llama.kernels.graphs import F32, CpuBackend, GraphError, Tensors, block, put, quantized, row_bytes, types
from uad.llama.kernels.library import BUFFER

PLAIN = "plain memory"
"""Stands for the buffers of weights that nothing rearranges."""
_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NO_CACHE_BYTES = 32 << 20  # where the system names none
_ROWS = 16  # that are quantized; a matrix repeats them, since times do not depend on values
_SEED = 20


def last_cache(root: Path = _CPUS) -> int:
    """Bytes of the caches of the highest level, all of them together."""
    caches: dict[int, dict[str, int]] = {}
    for folder in root.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size, cpus = ((folder / name).read_text().strip() for name in ("level", "size", "shared_cpu_list"))
            n_bytes = int(size[:-1]) * _UNITS[size[-1]] if size[-1:] in _UNITS else int(size)
            caches.setdefault(int(level), {})[cpus] = n_bytes
        except (OSError, ValueError):
            continue
    return sum(caches[max(caches)].values()) if caches else _NO_CACHE_BYTES


def multiple(part: str) -> int:
    """The number of which the columns of a matrix of this type are a multiple."""
    return block(types()[part])


def matrix_bytes(part: str, size: tuple[int, int]) -> int:
    """Bytes of a matrix of these rows and columns, as files have them."""
    return size[0] * row_bytes(types()[part], size[1])


class MemoryRead(native.Owner):
    """Reads of a buffer by all threads: each takes the maximum of the 32-bit numbers of its own part."""

    def __init__(self, n_bytes: int, n_threads: int) -> None:
        numbers = np.full(-(-n_bytes // 4), 1, np.int32)  # written, or all pages would be the same one of zeros
        self.n_bytes, self._parts = numbers.nbytes, np.array_split(numbers, n_threads)
        self._threads = ThreadPoolExecutor(n_threads)

    def run(self) -> float:
        """Seconds of one read."""
        begin = perf_counter()
        for _ in self._threads.map(np.max, self._parts):
            pass
        return perf_counter() - begin

    def close(self) -> None:
        self._threads.shutdown()


class Matrices(native.Owner):
    """Equal matrices [rows, columns] of a type in a kind of buffers, without values until `fill`. Raises GraphError
    where there is no memory.
    """

    def __init__(self, buffer_type: int, part: str, n: int, size: tuple[int, int]) -> None:
        self.part, self.size = part, size
        self._tensors = Tensors(n)
        try:
            self.all = [self._tensors.new(types()[part], size[1], size[0]) for _ in range(n)]
            self._tensors.place(buffer_type)
        except BaseException:
            self.close()
            raise

    def fill(self) -> None:
        """Random weights: a few rows, again and again."""
        rows, columns = self.size
        values = np.random.default_rng(_SEED).standard_normal((min(_ROWS, rows), columns), np.float32)
        some = quantized(types()[self.part], values * np.float32(0.05))
        data = (some * -(-rows // len(values)))[: matrix_bytes(self.part, self.size)]
        for tensor in self.all:
            put(tensor, data)

    def close(self) -> None:
        self._tensors.close()


class TimedPass(native.Owner):
    """The products of n columns with each of these matrices, as one graph."""

    def __init__(self, backend: CpuBackend, matrices: Sequence[int], columns: int, n: int) -> None:
        self._backend, self._shape = backend, (n, columns)
        self._tensors = Tensors(2 * len(matrices) + 2)  # leaves are counted with nodes
        self._x = self._tensors.new(F32, columns, n)
        self._nodes = [self._tensors.op("ggml_mul_mat", weights, self._x) for weights in matrices]
        self._graph = 0

    @property
    def is_possible(self) -> bool:
        """Whether the backend computes it where the weights lie."""
        return all(map(self._backend.supports, self._nodes))

    def prepare(self) -> None:
        """Give it memory and columns. Raises GraphError."""
        self._graph = self._tensors.graph(*self._nodes)
        self._tensors.place(self._backend.plain)
        put(self._x, np.random.default_rng(_SEED).standard_normal(self._shape, np.float32).tobytes())

    def run(self, n_threads: int) -> float:
        """Seconds of computing it once. Raises GraphError."""
        begin = perf_counter()
        self._backend.compute(self._graph, n_threads, "products")
        return perf_counter() - begin

    def close(self) -> None:
        self._tensors.close()


def places(backend: CpuBackend) -> dict[str, int]:
    """Kinds of buffers that llama.cpp itself puts weights into, in its order: plain memory last."""
    extra = {} if amx.is_broken() else {name: place for name, place in backend.buffers.items() if name != BUFFER}
    return extra | {PLAIN: backend.plain}


def place(backend: CpuBackend, part: str, size: tuple[int, int]) -> str:
    """The first of these that takes such a matrix, as where llama.cpp loads a model. Raises GraphError."""
    for name, buffer_type in places(backend).items():
        if _takes(backend, buffer_type, part, size):
            return name
    raise GraphError(f"llama.cpp has no product for weights of {part} on this machine")


def is_taken(backend: CpuBackend, part: str, size: tuple[int, int]) -> bool:
    """Whether uad's kernels take such a matrix."""
    return _takes(backend, backend.buffers[BUFFER], part, size)


def _takes(backend: CpuBackend, buffer_type: int, part: str, size: tuple[int, int]) -> bool:
    with Matrices(buffer_type, part, 1, size) as weights, TimedPass(backend, weights.all, size[1], 1) as probe:
        return probe.is_possible


def n_products() -> int:
    """Products that have run in uad's kernels in this process."""
    return use.counts().get("products", 0)
