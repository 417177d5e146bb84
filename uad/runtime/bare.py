"""The machine's own speed: a bare loop of `llama_decode` and argmax, to measure everything else against."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from time import perf_counter
from types import TracebackType

from uad.config import Config
from uad.llama.context import Context
from uad.llama.model import Model
from uad.runtime.fit import fitted
from uad.types import Rows


class BareLoop:
    """A target and nothing around it. It stays loaded between runs, as in a server: freshly mapped weights are read faster."""

    def __init__(self, config: Config) -> None:
        config = fitted(replace(config, draft=None)).config
        with ExitStack() as stack:
            model = stack.enter_context(Model(config.target, "target"))
            self._context = stack.enter_context(Context(model, config.target, config.n_parallel, "target"))
            self._stack = stack.pop_all()

    def tps(self, prompt_ids: Sequence[int], n: int) -> float:
        """Greedy tokens per second over n decodes of one row each behind the prompt."""
        context = self._context
        context.clear(0)
        for start in range(0, len(prompt_ids), context.n_batch):
            context.decode([Rows(0, start, prompt_ids[start : start + context.n_batch], 1)])
        id_ = int(context.logits()[0].argmax())
        began = perf_counter()
        for pos in range(len(prompt_ids), len(prompt_ids) + n):
            context.decode([Rows(0, pos, (id_,), 1)])
            id_ = int(context.logits()[0].argmax())
        return n / (perf_counter() - began)

    def __enter__(self) -> BareLoop:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
