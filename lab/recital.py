"""A target that computes nothing, for answers whose ids are prescribed: what the draft model would have made of a text,
at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from experiment import Experiment

from uad.base.types import PlacedImage, Rows
from uad.engine.decode.engine import Engine
from uad.engine.decode.target import Target
from uad.engine.policy.auto import AutoPolicy
from uad.runtime.open import Parts


def recital(parts: Parts) -> Parts:
    """The draft model beside a target that computes nothing. Drafts are as long as a request says, whatever that costs,
    no time passes, and nothing is learned. Not to be run while `parts` runs anything.
    """
    wiring = Experiment(lambda: 0.0)
    target, drafting = parts.target, None
    if parts.drafter is not None:
        drafting = wiring.drafting([parts.drafter], AutoPolicy, target.model)
    engine = Engine(
        SilentTarget(target.context), drafting, parts.samplers, lambda: 0, least=target.least, clock=wiring.clock
    )
    return replace(parts, engine=engine, policies=None, wiring=wiring, stack=ExitStack())


class SilentTarget:
    """Batches are cut as for the target it stands for; logits are zeros, a single one in each row."""

    def __init__(self, target: Target) -> None:
        self.n_seq, self.n_ctx, self.n_batch, self.n_ubatch = (
            target.n_seq,
            target.n_ctx,
            target.n_batch,
            target.n_ubatch,
        )
        self.n_alike, self.computes_later = target.n_alike, False
        self.vocab, self.can_take_back, self.can_stop = target.vocab, target.can_take_back, False
        self.n_free, self.keep_ms, self.tail = target.n_free, 0.0, 0
        self._n_logits = 0

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        self._n_logits = sum(row.n_logits for row in rows)

    def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
        return list(rows)

    def want_likeliest(self, seq: int, n: int) -> None:
        """All rows are whole."""

    def rows(self) -> npt.NDArray[np.float32]:
        return self.logits()

    def logits(self) -> npt.NDArray[np.float32]:
        return np.zeros((self._n_logits, 1), np.float32)

    def see(self, seq: int, placed: PlacedImage, n_done: int) -> int:
        return placed.n_rows

    def interrupt(self, wanted: bool = True) -> None:
        """Nothing takes long."""

    def reach(self, seq: int, n: int) -> int:
        return n

    def take_back(self, seq: int, n: int) -> int:
        return n

    def mark(self, seq: int, is_last: bool) -> None:
        """Nothing is held."""

    def clear(self, seq: int) -> None:
        """Nothing is held."""
