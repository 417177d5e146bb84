"""Answers that are prescribed: given ids are written, whatever the target thinks, for measurements on what a model
could not write.

Knows no logits and no text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from uad.base.common.logits import Likeliest, Logits
from uad.base.types import Request, TokenProb
from uad.engine.decode.scheduler import SamplerFactory
from uad.engine.decode.verify import Picker
from uad.engine.sampling.noise import Position
from uad.engine.sampling.sampler import Lot


@dataclass(frozen=True, slots=True)
class Told(Request):
    """A request whose answer is `answer`; after these ids the text ends."""

    answer: tuple[int, ...] = ()

    @property
    def needs_end(self) -> bool:
        """Whether something is to be written after the answer."""
        return self.max_tokens is None or self.max_tokens > len(self.answer)


class Prescribed:
    """Draws ids[0], ids[1], … whatever the target thinks, and `last` after them. Verification, KV and costs are as
    ever.
    """

    matcher = None
    n_needed = 0

    def __init__(self, ids: Sequence[int], last: int) -> None:
        self._ids = ids
        self._last = last
        self._at = 0

    def pick(self, row: Logits | Likeliest, position: Position) -> int:
        return self._ids[self._at] if self._at < len(self._ids) else self._last

    def lot(self, row: Logits | Likeliest, position: Position) -> Lot:
        """The prescribed id alone."""
        return Lot(np.array([self.pick(row, position)]), np.zeros(1, np.float32))

    def accept(self, id_: int) -> None:
        self._at += 1

    def drawn_prob(self, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
        """It was certain."""
        return TokenProb(id_, pieces[id_], 0.0)

    def close(self) -> None:
        """Nothing is held."""


def prescribing(usual: SamplerFactory, eog: Collection[int]) -> SamplerFactory:
    """Samplers for requests of both kinds; eog: ids that end an answer."""

    def sampler(request: Request, seed: int) -> Picker:
        if isinstance(request, Told):
            return Prescribed(request.answer, min(eog, default=request.answer[-1]))
        return usual(request, seed)

    return sampler
