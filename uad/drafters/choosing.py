"""How a draft chooses its next id from its logits: the likeliest one, or what the target would draw (`coupling`). Knows
no stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float32]


class Chooser(Protocol):
    """Chooses for one answer. It is passed all its ids, and the bytes of a draft, since some go by the place in the
    answer.
    """

    def heard(self, ids: Sequence[int]) -> None:
        """These ids of the target were committed: first those of the prompt."""

    def start(self, ahead: bytes) -> None:
        """A draft begins after all that was committed, with these bytes left over from an earlier one."""

    def wrote(self, data: bytes) -> None:
        """The draft goes on with these bytes."""

    def choose(self, row: Row) -> tuple[int, float]:
        """The draft's next id from its logits, [n_vocab], and how far it is to be believed."""
        ...


class Likeliest:
    """The likeliest id, wherever it is."""

    def heard(self, ids: Sequence[int]) -> None: ...

    def start(self, ahead: bytes) -> None: ...

    def wrote(self, data: bytes) -> None: ...

    def choose(self, row: Row) -> tuple[int, float]:
        """The id with the highest logit and its softmax probability."""
        best = int(row.argmax())
        return best, float(1.0 / np.exp(row - row[best]).sum())


LIKELIEST = Likeliest()
