"""The machine's own speed: a bare loop of `llama_decode` and argmax, to measure everything else against."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from uad.config import Config
from uad.llama.context import Context
from uad.llama.model import Model
from uad.types import Rows


def bare_decode_tps(config: Config, prompt_ids: Sequence[int], n: int) -> float:
    """Greedy tokens per second over n decodes of one row each after the prompt, with nothing around them."""
    with Model(config.target, "target") as model, Context(model, config.target, config.n_parallel, "target") as context:
        at = 0
        for start in range(0, len(prompt_ids), context.n_batch):
            chunk = prompt_ids[start : start + context.n_batch]
            context.decode([Rows(0, start, chunk, 1)])
            at = start + len(chunk)
        id_ = int(context.logits()[0].argmax())
        began = perf_counter()
        for i in range(n):
            context.decode([Rows(0, at + i, (id_,), 1)])
            id_ = int(context.logits()[0].argmax())
        return n / (perf_counter() - began)
