"""Healing of the left edge: the likeliest ids for bytes that are already committed. Arithmetic over a
vocabulary; knows no stream.

The bytes after the last safe boundary have one canonical cut. But the draft may be about to write a token that reaches
beyond them (" qu" is committed, " quick" comes). Paths compete as wholes: some canonical ids, then one id that covers
all bytes that are left. Other cuts are no candidates: a draft was trained on canonical ones, and a lone " " is likely
as a first id for all the words it could begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Floats
from uad.base.common.logits import sum_exp
from uad.text.vocab.table import VocabTable

_NONE = np.empty(0, np.intp)


@dataclass(frozen=True, slots=True)
class Path:
    """n canonical ids, then `id`. p is its probability among all paths."""

    n: int
    id: int
    p: float


class Healer:
    """Chooses ids of one vocabulary under the condition that they go on through given bytes."""

    def __init__(self, vocab: VocabTable) -> None:
        self._vocab = vocab
        self._longest = max((len(piece) for piece in vocab.pieces), default=0)
        self.covering = lru_cache(4096)(self._find)

    def _find(self, rest: bytes) -> npt.NDArray[np.intp]:
        """Ids that cover all of rest; one range of the sorted pieces. A run of white space may also be covered in part:
        its last space usually begins the next word.
        """
        if len(rest) > self._longest:
            return self._partial(rest)
        _, ids = self._vocab.sorted_pieces
        lo, hi = self._vocab.range_of(rest)
        return np.concatenate([np.array(ids[lo:hi], np.intp), self._partial(rest)])

    def _partial(self, rest: bytes) -> npt.NDArray[np.intp]:
        if len(rest) < 2 or not rest.isspace():
            return _NONE
        inside = [self._vocab.by_bytes.get(rest[:n]) for n in range(1, min(len(rest), self._longest + 1))]
        return np.array([id_ for id_ in inside if id_ is not None], np.intp)

    def choose(self, row: Floats, rest: bytes) -> tuple[int, float] | None:
        """The likeliest id that goes on through rest, and its probability among those; None if no id does."""
        candidates = self.covering(rest)
        if not len(candidates):
            return None
        logits = row[candidates]
        best = int(logits.argmax())
        return int(candidates[best]), float(1.0 / sum_exp(logits, logits[best]))

    def choose_path(self, rows: Floats, canonical: Sequence[int], rest: bytes) -> Path:
        """The likeliest path through rest. rows[i] are the logits before canonical[i]; the canonical ids cover rest
        exactly.

        Of rest = " over", cut as " ov", "er", the paths are: " overall" or " over" at once (0 canonical ids before it),
        each as likely as in the first row; " ov", then "erlay" or "er", as likely as " ov" in the first row times
        "erlay" or "er" in the second. " ov" alone is not a path, since it goes on with "er". Nor is " o", however
        likely: no text that the draft learned from is cut so.
        """
        prefix, total = 0.0, 0.0  # log of how likely the canonical ids so far are; sum over all paths
        best = Path(len(canonical) - 1, canonical[-1], 0.0)
        for i, (row, id_) in enumerate(zip(rows, canonical, strict=True)):
            candidates = self.covering(rest)
            peak = row.max()
            norm = float(peak) + float(np.log(sum_exp(row, peak)))
            if len(candidates):
                p = np.exp(row[candidates].astype(np.float64) - norm + prefix)
                if i < len(canonical) - 1:
                    p[candidates == id_] = 0.0  # the canonical path goes on and is counted at its end
                total += float(p.sum())
                at = int(p.argmax())
                if p[at] > best.p:
                    best = Path(i, int(candidates[at]), float(p[at]))
            prefix += float(row[id_]) - norm
            rest = rest[len(self._vocab.pieces[id_]) :]
        return Path(best.n, best.id, best.p / total if total > 0 else 0.0)
