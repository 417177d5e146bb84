"""Healing of the left edge: which draft tokens agree with bytes that were taken back, and the best of them.

Arithmetic over a vocabulary; knows no stream.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from uad.vocab.table import VocabTable

Row = npt.NDArray[np.float32]


class Healer:
    """Chooses ids of one vocabulary under the condition that their bytes agree with given bytes."""

    def __init__(self, vocab: VocabTable) -> None:
        self._vocab = vocab
        self._longest = max((len(piece) for piece in vocab.pieces), default=0)
        self._agreeing = lru_cache(4096)(self._find)

    def _find(self, rest: bytes) -> npt.NDArray[np.intp]:
        """Ids whose bytes are a prefix of rest, or begin with it: a few look-ups and one range of the sorted pieces."""
        by_bytes = self._vocab.by_bytes
        inside = [by_bytes.get(rest[:n]) for n in range(1, min(len(rest), self._longest + 1))]
        _, ids = self._vocab.sorted_pieces
        lo, hi = self._vocab.range_of(rest)
        return np.array([id_ for id_ in inside if id_ is not None] + ids[lo:hi], np.intp)

    def choose(self, row: Row, rest: bytes) -> tuple[int, float] | None:
        """The likeliest agreeing id and its probability among the agreeing ones; None where no token agrees."""
        agreeing = self._agreeing(rest)
        if not len(agreeing):
            return None
        logits = row[agreeing]
        best = int(logits.argmax())
        return int(agreeing[best]), float(1.0 / np.exp(logits - logits[best]).sum())


def likeliest(row: Row) -> tuple[int, float]:
    """The id with the highest logit and its softmax probability."""
    best = int(row.argmax())
    return best, float(1.0 / np.exp(row - row[best]).sum())
