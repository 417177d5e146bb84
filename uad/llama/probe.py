"""Which batch shapes compute the same bits on this backend, for this model. Measured, because it differs by weight type
and by kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from uad.types import Rows

_FIRST = (1, 2, 4, 8, 16)
_N_IDS = 48
_WRONG = 3  # ids that are taken back while it is tried whether that changes bits


class Probed(Protocol):
    """What the probe needs of a context; `uad.llama.context.Context` is one."""

    n_ctx: int
    n_ubatch: int
    n_vocab: int

    @property
    def n_free(self) -> int:
        """Ids that can be taken back after a decode at no cost."""
        ...

    def take_back(self, seq: int, n: int) -> int: ...
    def decode(self, rows: Sequence[Rows]) -> None: ...
    def logits(self) -> npt.NDArray[np.float32]: ...
    def clear(self, seq: int) -> None: ...


def least_agreeing_rows(context: Probed) -> int | None:
    """The least r for which every pass of r rows or more gives the same bits, as far as tried (r, r + 1, twice r … a
    whole pass).

    None where not even the largest passes agree. Takes some dozens of passes of a few rows.
    """
    most = min(context.n_ubatch, context.n_ctx, _N_IDS)
    ids = [(7919 * i + 13) % context.n_vocab for i in range(most)]
    for least in _FIRST:
        sizes = sorted({n for n in (least, least + 1, least + 3, 2 * least, 3 * least, 17, most) if least <= n <= most})
        rows = [_decode_in(context, ids, n) for n in sizes]
        n_wrong = min(_WRONG, context.n_free)
        rows += [_decode_in(context, ids, n, n_wrong) for n in sizes if n_wrong and n + n_wrong <= most]
        if len(rows) > 1 and all(_agree(rows[-1], other) for other in rows[:-1]):
            return least
    return None


def _decode_in(context: Probed, ids: list[int], size: int, n_wrong: int = 0) -> npt.NDArray[np.float32]:
    """Logits of all whole passes of `size` rows; each with as many wrong ones behind them, which are taken back."""
    context.clear(0)
    out = []
    for at in range(0, len(ids) - size + 1, size):
        some = [*ids[at : at + size], *ids[:n_wrong]]
        context.decode([Rows(0, at, some, len(some))])
        out.append(context.logits()[:size].copy())
        if n_wrong:
            context.take_back(0, at + size)
    context.clear(0)
    return np.concatenate(out)


def _agree(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> bool:
    n = min(len(a), len(b))
    return bool(np.array_equal(a[:n], b[:n]))
