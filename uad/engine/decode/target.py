"""A target as the loop needs it: decode rows, read logits, forget positions. `uad.llama.context.Context` is one; tests
script another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from uad.base.common.logits import Logits, Outputs
from uad.base.types import PlacedImage, Rows
from uad.text.vocab.table import VocabTable


class Target(Protocol):
    """n_ctx positions in each of n_seq sequences; at most n_batch rows a call, n_ubatch in one pass over the weights.
    Passes of up to n_alike rows of a sequence compute a row in the same way.
    """

    n_seq: int
    n_ctx: int
    n_batch: int
    n_ubatch: int
    n_alike: int
    vocab: VocabTable
    computes_later: bool
    """Whether `decode` returns before its logits are there, and `rows` waits for them, as on GPUs."""
    can_take_back: bool
    """Whether drafts can be taken back at all."""
    can_stop: bool
    """Whether a decode may be interrupted."""
    n_free: int
    """Ids of a draft that can be taken back at no cost."""
    keep_ms: float
    """Milliseconds that it costs to take back more than n_free ids, beside what must be decoded again."""
    tail: int
    """Ids at the end of a prompt that are best decoded apart, after a mark; 0: no marks."""

    def prepare(self, rows: Sequence[Rows]) -> list[Rows]:
        """The part of these rows still to be decoded, once all is done that lets the last n_unsure of each be taken
        back. Raises whatever decoding raises.
        """
        ...

    def decode(self, rows: Sequence[Rows], may_stop: bool = False) -> None:
        """may_stop: `interrupt` ends it, with AbortedError. Raises NoKvRoomError or DecodeError."""

    def see(self, seq: int, placed: PlacedImage, n_done: int) -> int:
        """Decode rows of an image, of which n_done were decoded; returns how many are then. Raises what `decode` does,
        or DecodeError where it cannot be encoded.
        """
        ...

    def interrupt(self, wanted: bool = True) -> None:
        """From any thread: decodes that may stop end soon, until it is not wanted any more."""

    def want_likeliest(self, seq: int, n: int) -> None:
        """From now on the n likeliest ids of each row are all that this sequence needs; 0: whole rows."""

    def logits(self) -> Logits:
        """[number of rows that wanted logits, n_vocab] in the order of the rows; valid until the next decode."""
        ...

    def rows(self) -> Outputs:
        """Outputs of the rows that wanted logits, in their order: the whole row, or some ids with the likeliest among
        them. Valid until the next decode.
        """
        ...

    def reach(self, seq: int, n: int) -> int:
        """How many ids `take_back(seq, n)` would leave."""
        ...

    def take_back(self, seq: int, n: int) -> int:
        """Forget positions >= n, and more where the memory cannot stop there; returns how many ids are left."""
        ...

    def mark(self, seq: int, is_last: bool) -> None:
        """A later prompt may go on from here; is_last: shortly before the end of a prompt."""

    def clear(self, seq: int) -> None:
        """Forget all positions."""
