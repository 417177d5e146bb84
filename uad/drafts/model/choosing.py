"""How a draft chooses its next id from its logits: the likeliest one, or what the target would draw (`coupling`). Knows
no stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from uad.base.common.arrays import Floats
from uad.base.common.logits import sum_exp
from uad.base.errors import DecodeError

NO_NUMBERS = "the draft model computes no numbers (NaN)"


class Recalled(NamedTuple):
    """An id that followed the same ids before, and the odds that it does again, against the model's distribution: the
    two are mixed. Of an id with p = 0.2 and odds of 0.6, the mixture has (0.2 + 0.6) / (1 + 0.6) = 0.5.
    """

    id: int
    odds: float


class Chooser(Protocol):
    """Chooses for one answer. It is passed all its ids, and the bytes of a draft, since some go by the place in the
    answer.
    """

    def observe(self, ids: Sequence[int]) -> None:
        """These ids of the target were committed: first those of the prompt."""

    def start(self, ahead: bytes) -> None:
        """A draft begins after all that was committed, with these bytes left over from an earlier one."""

    def wrote(self, data: bytes) -> None:
        """The draft goes on with these bytes."""

    def choose(self, row: Floats, recalled: Recalled | None = None) -> tuple[int, float]:
        """The draft's next id from its logits, [n_vocab], with what is recalled mixed in; and how far it is to be
        believed.
        """


class MostLikely:
    """The likeliest id, wherever it is."""

    def observe(self, ids: Sequence[int]) -> None: ...

    def start(self, ahead: bytes) -> None: ...

    def wrote(self, data: bytes) -> None: ...

    def choose(self, row: Floats, recalled: Recalled | None = None) -> tuple[int, float]:
        """The id with the highest logit and its softmax probability. Raises DecodeError where there are no numbers."""
        best = int(row.argmax())
        total = sum_exp(row, row[best])
        if not total > 0.0:
            raise DecodeError(NO_NUMBERS)
        if recalled is None:
            return best, float(1.0 / total)
        # the mixture is known from one sum: all ids have exp(logit), the recalled one odds * total more
        own = float(np.exp(row[recalled.id] - row[best])) + recalled.odds * float(total)
        if own >= 1.0:
            best = recalled.id
        return best, (own if best == recalled.id else 1.0) / ((1.0 + recalled.odds) * float(total))


LIKELIEST = MostLikely()
