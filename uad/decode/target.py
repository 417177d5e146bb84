"""What the loop needs of a target: decode rows, read logits, forget positions. `uad.llama.context.Context` is one; tests script another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from uad.types import Rows
from uad.vocab.table import VocabTable


class Target(Protocol):
    """n_ctx positions in each of n_seq sequences; at most n_batch rows a call, n_ubatch in one pass over the weights. Passes of up to
    n_alike rows of a sequence compute a row in the same way.

    Without can_truncate (recurrent memory) a sequence can only be forgotten as a whole.
    """

    n_seq: int
    n_ctx: int
    n_batch: int
    n_ubatch: int
    n_alike: int
    can_truncate: bool
    vocab: VocabTable

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        """may_stop: `interrupt` ends it, with AbortedError. Raises NoKvRoomError or DecodeError."""

    def interrupt(self, wanted: bool = True) -> None:
        """From any thread: decodes that may stop end soon, until it is not wanted any more."""

    def logits(self) -> npt.NDArray[np.float32]:
        """[number of rows that wanted logits, n_vocab] in the order of the rows; valid until the next decode."""
        ...

    def truncate(self, seq: int, n: int) -> None:
        """Forget positions >= n."""

    def clear(self, seq: int) -> None:
        """Forget all positions."""
