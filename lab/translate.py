"""The losses and costs of crossing from one vocabulary to another; no model runs.

    python lab/translate.py TARGET.gguf DRAFT.gguf [--contexts 1024 8192] [--rounds 400]

Losses are those of a draft that knows the target's next bytes (`ideal.py`), beside the naive method, which encodes the
draft's bytes alone. Costs are microseconds per round after a context of n draft tokens (`crossing.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import reduce
from operator import add
from pathlib import Path

import crossing
import ideal

from uad.llama.vocab import load_vocab
from uad.text.vocab.encode import Encoder
from uad.tools.bench.workloads import PROMPT_DIR

TEXTS = sorted((PROMPT_DIR.parent / "texts").glob("*.txt"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=2, type=Path, metavar="GGUF")
    parser.add_argument("--contexts", nargs="+", type=int, default=[1024, 8192, 32768])
    parser.add_argument("--rounds", type=int, default=400)
    given = parser.parse_args(argv)
    texts = [path.read_bytes() for path in TEXTS]
    target, draft = (load_vocab(path) for path in given.files)
    results = [
        ideal.run(ideal.Side.of(Encoder(target), text), ideal.Side.of(Encoder(draft), text), text, given.rounds, "")
        for text in texts
    ]
    total = reduce(add, results)
    for name, score in (("naive", total.naive), ("trusted ids", total.ours), ("every id", total.all)):
        print(f"{name}: {score.share:.4f} accepted, {score.per_drafted:.3f} bytes per draft token")
    seen, text = (b"".join(half) for half in zip(*((t[: len(t) // 2], t[len(t) // 2 :]) for t in texts), strict=True))
    for n_ctx in given.contexts:
        cost = crossing.measure(Encoder(target), Encoder(draft), seen, text, n_ctx, given.rounds)
        print(f"after {n_ctx}: {cost.us:.0f} µs, warm {cost.warm_us:.0f}, cold {cost.cold_us:.0f}")
        print(f"after {n_ctx}, naive: {cost.naive_us:,.0f} µs")


if __name__ == "__main__":
    main()
