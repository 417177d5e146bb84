"""The ideal drafter: what a translation loses when the draft proposes exactly the bytes that the target will write.
Runs no model.

Round by round from random places of a text: the draft's next 8 tokens (its cuts, the text's bytes) become target ids,
which are compared with the target's own tokenization of the text. Everything that is not accepted is the translation's
fault, or the cut's.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from uad.text.vocab.encode import Encoder
from uad.text.vocab.translate import Translator

N_DRAFT = 8
_N_TAIL = 48


@dataclass(frozen=True, slots=True)
class Side:
    """A text as one vocabulary cuts it: ids, and the offsets at which they end."""

    encoder: Encoder
    ids: list[int]
    ends: list[int]

    @classmethod
    def of(cls, encoder: Encoder, text: bytes) -> Side:
        ids = encoder.encode(text)
        return cls(encoder, ids, list(accumulate(len(encoder.vocab.pieces[id_]) for id_ in ids)))


@dataclass(frozen=True, slots=True)
class Score:
    """Counts over rounds. used: draft tokens of which any byte was offered; the others wait in the mirror for the next
    round.
    """

    n_proposed: int = 0
    n_accepted: int = 0
    n_bytes: int = 0
    n_drafted: int = 0
    n_used: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.n_proposed + other.n_proposed,
            self.n_accepted + other.n_accepted,
            self.n_bytes + other.n_bytes,
            self.n_drafted + other.n_drafted,
            self.n_used + other.n_used,
        )

    @property
    def share(self) -> float:
        """Accepted share of the proposed target ids."""
        return self.n_accepted / max(self.n_proposed, 1)

    @property
    def per_drafted(self) -> float:
        """Accepted bytes per draft token written."""
        return self.n_bytes / max(self.n_drafted, 1)

    @property
    def per_used(self) -> float:
        """Accepted bytes per draft token used."""
        return self.n_bytes / max(self.n_used, 1)


@dataclass(frozen=True, slots=True)
class Result:
    """naive: the draft's bytes encoded alone by llama.cpp. all: every id of ours, however doubtful. ours: those that
    can be trusted.
    """

    naive: Score = Score()
    all: Score = Score()
    ours: Score = Score()

    def __add__(self, other: Result) -> Result:
        return Result(self.naive + other.naive, self.all + other.all, self.ours + other.ours)


def run(target: Side, draft: Side, text: bytes, n_rounds: int, seed: str) -> Result:
    """n_rounds rounds from places of text that depend on seed only."""
    translator = Translator(target.encoder, draft.encoder)
    total = Result()
    for k, start, end in _places(target, draft, n_rounds, seed):
        data = text[start:end]
        translation = translator.translate(target.ids[max(k - _N_TAIL, 0) : k], data)
        score = _scorer(target, draft, k, start)
        naive = target.encoder.vocab.tokenize(data)
        total += Result(score(naive, N_DRAFT), score(translation.ids), score(translation.trusted()))
    return total


def _places(target: Side, draft: Side, n_rounds: int, seed: str) -> Iterator[tuple[int, int, int]]:
    """(number of committed ids, offset at which they end, offset at which the draft's 8th token after it ends)."""
    rng = random.Random(seed)
    last = bisect_right(target.ends, draft.ends[-N_DRAFT - 2]) - 1
    for _ in range(n_rounds):
        k = rng.randrange(1, last)
        start = target.ends[k - 1]
        yield k, start, draft.ends[bisect_right(draft.ends, start) + N_DRAFT - 1]


def _scorer(target: Side, draft: Side, k: int, start: int) -> Callable[..., Score]:
    pieces = target.encoder.vocab.pieces
    first = bisect_right(draft.ends, start)

    def score(ids: Sequence[int], n_used: int | None = None) -> Score:
        n = 0
        while n < len(ids) and ids[n] == target.ids[k + n]:
            n += 1
        if n_used is None:
            offered = start + sum(len(pieces[id_]) for id_ in ids)
            begins = [draft.ends[first + i - 1] if first + i else 0 for i in range(N_DRAFT)]
            n_used = sum(begin < offered for begin in begins)
        return Score(len(ids), n, sum(len(pieces[id_]) for id_ in ids[:n]), N_DRAFT, n_used)

    return score
