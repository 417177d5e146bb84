"""The time that products take in the library, beside llama.cpp's own kernels on this machine. Measured right after the
proof, in its process.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from time import perf_counter

import numpy as np

from uad.base.common.cores import usable_cores
from uad.llama.kernels import graphs
from uad.llama.kernels.graphs import CpuBackend, Product
from uad.llama.kernels.library import BUFFER

ROWS = (1, 8, 512)
"""Rows of the passes that are timed: a token, a draft, a prompt."""
_TURNS = (7, 5, 3)  # both sides in turns; the shortest counts
_TIMES = (8, 4, 1)  # products of a turn: to wake threads takes as long as a short one
_K, _SOME = 1024, 64  # columns and rows that are quantized, which is slow: they are there many times
_WEIGHT_ROWS = (4096, 4096, 1024)


def ratios(backend: CpuBackend, type_: str) -> tuple[float, ...]:
    """The library's time over llama.cpp's for each of `ROWS`; empty where one side refuses the type. llama.cpp may
    rearrange the weights for its faster kernels, as it does for models.
    """
    kind = graphs.types()[type_]
    some = graphs.some_weights(kind, np.random.default_rng(0).standard_normal((_SOME, _K), np.float32))
    others = [place for name, place in backend.buffers.items() if name != BUFFER]

    def made(n: int, rows: int, times: int, *places: int) -> Product | None:
        for place in places:
            product = Product(backend, place, kind, (rows, _K), some * (rows // _SOME), n, times)
            if product.is_supported:
                return product
            product.close()
        return None

    times_over = []
    for *how, turns in zip(ROWS, _WEIGHT_ROWS, _TIMES, _TURNS, strict=True):
        with ExitStack() as stack:
            both = made(*how, backend.buffers[BUFFER]), made(*how, *others, backend.plain)
            sides = [stack.enter_context(closing(side)) for side in both if side is not None]
            if len(sides) < 2:
                return ()
            taken = [[_seconds(side) for side in sides] for _ in range(turns)]
            own, other = (min(times) for times in zip(*taken, strict=True))
            times_over.append(own / other)
    return tuple(times_over)


def _seconds(product: Product) -> float:
    began = perf_counter()
    product.compute(usable_cores())
    return perf_counter() - began
