"""A context as drafting needs it; and a few rows of one sequence decoded one by one, where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from uad.base.types import Rows
from uad.text.vocab.table import VocabTable


class DraftContext(Protocol):
    """A context as drafting needs it; `uad.llama.context.Context` is one."""

    n_ctx: int
    n_batch: int
    vocab: VocabTable

    def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
        """The part of these rows still to be decoded, once all is done that lets the last n_unsure of each be taken
        back.
        """

    def decode(self, rows: Sequence[Rows]) -> None:
        """Raises NoKvRoomError or DecodeError."""

    def logits(self) -> npt.NDArray[np.float32]:
        """[rows that wanted logits, n_vocab] in the order of the rows; valid until the next decode."""

    def reach(self, seq: int, n: int) -> int:
        """How many ids `take_back(seq, n)` would leave."""

    def take_back(self, seq: int, n: int) -> int:
        """Forget positions >= n, and more where the memory cannot stop there; returns how many ids are left."""

    def clear(self, seq: int) -> None:
        """Forget all positions."""


class RowByRow:
    """A draft model's context that decodes passes of up to `most` rows of one sequence row by row.

    On GPUs a graph is built for another number of rows, and recorded when it comes again. So a pass of two rows, and
    the single ones after it, can take longer than four single rows.
    """

    def __init__(self, context: DraftContext, most: int) -> None:
        self.n_ctx, self.n_batch, self.vocab = context.n_ctx, context.n_batch, context.vocab
        self._context = context
        self._most = most
        self._logits: npt.NDArray[np.float32] | None = None  # of a pass that was decoded row by row

    def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
        """See `DraftContext`."""
        return self._context.prepare(rows)

    def decode(self, rows: Sequence[Rows]) -> None:
        """Raises NoKvRoomError or DecodeError."""
        self._logits = None
        if len(rows) != 1 or not 1 < len(rows[0].ids) <= self._most:
            self._context.decode(rows)
            return
        (row,) = rows
        n_before, outputs = len(row.ids) - row.n_logits, []
        for i, id_ in enumerate(row.ids):
            self._context.decode([Rows(row.seq, row.pos + i, (id_,), int(i >= n_before))])
            if i >= n_before:
                outputs.append(self._context.logits().copy())
        if outputs:
            self._logits = np.concatenate(outputs)

    def logits(self) -> npt.NDArray[np.float32]:
        """[rows that wanted logits, n_vocab] of the last decode."""
        return self._context.logits() if self._logits is None else self._logits

    def reach(self, seq: int, n: int) -> int:
        """See `DraftContext`."""
        return self._context.reach(seq, n)

    def take_back(self, seq: int, n: int) -> int:
        """See `DraftContext`."""
        return self._context.take_back(seq, n)

    def clear(self, seq: int) -> None:
        """Forget all positions."""
        self._context.clear(seq)
