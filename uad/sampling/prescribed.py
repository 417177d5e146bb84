"""A sampler that writes given ids, for measurements on answers that a model could not write. Knows no logits and no text."""

from __future__ import annotations

from collections.abc import Sequence

from uad.sampling.noise import Position
from uad.sampling.sampler import Row


class Prescribed:
    """Draws ids[0], ids[1], … whatever the target thinks, and `last` behind them. Verification, KV and costs are as ever."""

    matcher = None

    def __init__(self, ids: Sequence[int], last: int) -> None:
        self._ids = ids
        self._last = last
        self._at = 0

    def pick(self, row: Row, position: Position) -> int:
        return self._ids[self._at] if self._at < len(self._ids) else self._last

    def accept(self, id_: int) -> None:
        self._at += 1

    def close(self) -> None:
        """Nothing is held."""
