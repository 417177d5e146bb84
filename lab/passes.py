"""Times passes of a model by their rows, compares rows with those of single rows, and times a prompt: uad's kernels, or
llama.cpp's own with --no-kernels. The table of lab/kernels.md is made of two such runs.

    python lab/passes.py MODEL.gguf [--no-kernels] [-fa off] [--depth 64] [--rows 1 2 4 8 16] [--prompt 512]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from uad.base.common.cores import usable_cores
from uad.base.common.logits import Logits
from uad.base.config import ModelConfig
from uad.base.types import Rows
from uad.llama.context import Context
from uad.llama.kernels import use as kernels
from uad.llama.model import Model

UBATCH = 512
TURNS = 7


class Passes:
    """A context, and ids that are read after each other."""

    def __init__(self, context: Context, n: int) -> None:
        self._context = context
        self._ids = [int(one) for one in np.random.default_rng(0).integers(0, context.n_vocab, n)]

    def read(self, n: int) -> float:
        """Seconds that a prompt of n ids takes; only its last id has logits."""
        self._context.clear(0)
        began = perf_counter()
        for at in range(0, n, UBATCH):
            some = self._ids[at : min(n, at + UBATCH)]
            self._context.decode([Rows(0, at, some, int(at + len(some) == n))])
        self._context.logits()
        return perf_counter() - began

    def rows(self, at: int, n: int) -> tuple[float, Logits]:
        """Seconds of a pass of n rows after `at` ids, and their logits; it is taken back."""
        began = perf_counter()
        self._context.decode([Rows(0, at, self._ids[at : at + n], n)])
        found = self._context.logits()
        seconds = perf_counter() - began
        found = found.copy()  # of megabytes, into new memory: it takes milliseconds, and servers read them in place
        self._context.take_back(0, at)
        return seconds, found

    def singles(self, at: int, n: int) -> list[Logits]:
        """Logits of n rows, each in a pass of its own."""
        found = []
        for i in range(at, at + n):
            self._context.decode([Rows(0, i, self._ids[i : i + 1], 1)])
            found.append(self._context.logits()[0].copy())
        self._context.take_back(0, at)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--no-kernels", action="store_true")
    parser.add_argument("-fa", "--flash-attn", choices=("on", "off", "auto"), default="auto")
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--prompt", type=int, default=512)
    given = parser.parse_args()
    most = max(given.rows)
    n = max(given.prompt, given.depth + most)
    config = ModelConfig(
        given.model,
        n_ctx=n + UBATCH,
        n_ubatch=UBATCH,
        n_threads=usable_cores(),
        kernels=not given.no_kernels,
        flash_attn=given.flash_attn,
    )
    with Model(config) as model, Context(model, config, 1) as context:
        print(kernels.of(config).note())
        passes = Passes(context, n)
        seconds = min(passes.read(given.prompt) for _ in range(2))
        print(f"prompt of {given.prompt}: {given.prompt / seconds:.1f} tokens/s")
        print(f"prompt of {given.depth}: {given.depth / passes.read(given.depth):.1f} tokens/s, read once")
        alone = passes.singles(given.depth, most)
        first = 0.0
        for count in given.rows:
            turns = [passes.rows(given.depth, count) for _ in range(TURNS)]
            seconds = median(each for each, _ in turns)
            first = first or seconds
            same = sum(np.array_equal(row, single) for row, single in zip(turns[-1][1], alone, strict=False))
            print(f"{count} rows: {seconds * 1e3:.1f} ms, {seconds / first:.2f} of the first, {same} as alone")


if __name__ == "__main__":
    main()
