"""How far a draft agrees with a target on the same bytes, and what that is worth. Arithmetic on rows of logits; decodes
nothing.

Two tokenizers are compared at the *common places* of a text: byte offsets at which a token of both ends, each model
having read its own tokens of all the bytes before. The distributions of the next token there are restricted to the byte
strings that are one token in both vocabularies and made to sum to one again; how much probability that leaves aside is
part of the result, since a low KL divergence over a small share says little. KL is target || draft in nats. Even so it
also measures that tokens are of different lengths (one model writes " function" where the other begins with " func");
the divergence of the next *byte* does not: there the probability of all tokens that begin with a byte is added up, and
specials count as one more byte. The likeliest tokens are those of the whole vocabularies, compared as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from uad.base.common.logits import log_sum_exp
from uad.engine.policy.cost import CostCurve
from uad.text.mapping.rules import CompiledRules
from uad.text.vocab.table import VocabTable

Row = npt.NDArray[np.float32]
Weights = npt.NDArray[np.float64]
Reading = Iterator[tuple[int, Row]]
"""(Byte offset, logits of the next token there), offsets ascending; a row holds until the next one is asked for."""
_HARDLY = 1e-12


@dataclass(frozen=True, slots=True)
class Track:
    """Ids of one model for a prompt and a body. ends[i] is the offset in the body at which ids[i] ends; -1 before the
    body.
    """

    ids: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def first(self) -> int:
        """Index of the first id after which something in the body is predicted."""
        return next((i for i, end in enumerate(self.ends) if end >= 0), len(self.ids))

    def spans(self) -> list[tuple[int, int]]:
        """(start, end) in the body of every id that lies in it; a start of -1 is before it."""
        before = (-1, *self.ends)
        return [(start, end) for start, end in zip(before, self.ends, strict=False) if end > 0]


@dataclass(slots=True)
class Tally:
    """Sums over common places, for one kind of text."""

    n_places: int = 0
    n_target: int = 0
    n_draft: int = 0
    n_same: int = 0
    n_alike: int = 0
    kl: float = 0.0
    kl_byte: float = 0.0
    target_mass: float = 0.0
    draft_mass: float = 0.0
    runs: list[list[bool]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the sums of another one to these; its runs come after these."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The best fixed draft length by replay: `speed_up` over plain decoding, `per_round` tokens of the target for each
    of its passes.
    """

    length: int
    speed_up: float
    per_round: float


class DraftComparison:
    """Compares rows of two models."""

    def __init__(self, rules: CompiledRules) -> None:
        self._rules = rules
        ours, theirs = rules.target.by_bytes, rules.draft.by_bytes
        both = sorted(ours.keys() & theirs.keys())
        self._target_ids = np.array([ours[piece] for piece in both], np.intp)
        self._draft_ids = np.array([theirs[piece] for piece in both], np.intp)
        self._target_firsts, self._draft_firsts = _first_bytes(rules.target), _first_bytes(rules.draft)

    def text(
        self, body: bytes, target: Track, draft: Track, target_rows: Reading, draft_rows: Reading, written: bool
    ) -> Tally:
        """What one text shows. written: the target wrote the body greedily, so that what it accepts is known too."""
        tally = Tally(n_target=len(target.spans()), n_draft=len(draft.spans()))
        wrong: set[int] = set()
        theirs = next(draft_rows, None)
        for offset, row in target_rows:
            while theirs is not None and theirs[0] < offset:
                self._guess(body, theirs, wrong)
                theirs = next(draft_rows, None)
            if theirs is not None and theirs[0] == offset:
                self._place(row, theirs[1], tally)
        while theirs is not None:
            self._guess(body, theirs, wrong)
            theirs = next(draft_rows, None)
        if written:
            tally.runs.append(accepted(target.spans(), draft.spans(), wrong))
        return tally

    def _guess(self, body: bytes, at: tuple[int, Row], wrong: set[int]) -> None:
        """Notes where the draft's likeliest token is not how the body goes on."""
        piece = self._rules.draft.pieces[int(at[1].argmax())]
        if not piece or not body.startswith(piece, at[0]):
            wrong.add(at[0])

    def _place(self, target: Row, draft: Row, tally: Tally) -> None:
        p, q = _softmax(target), _softmax(draft)
        shared_p, shared_q = p[self._target_ids], q[self._draft_ids]
        tally.n_places += 1
        tally.target_mass += float(shared_p.sum())
        tally.draft_mass += float(shared_q.sum())
        tally.kl += divergence(shared_p, shared_q)
        tally.kl_byte += divergence(_by_first(p, self._target_firsts), _by_first(q, self._draft_firsts))
        ours, theirs = int(target.argmax()), int(draft.argmax())
        tally.n_same += self._same(ours, theirs)
        tally.n_alike += self._same(ours, theirs) or _begins(self._rules.target, ours, self._rules.draft, theirs)

    def _same(self, target_id: int, draft_id: int) -> bool:
        piece = self._rules.target.pieces[target_id]
        if piece:
            return piece == self._rules.draft.pieces[draft_id]
        return self._rules.draft.is_special(draft_id) and self._rules.back(draft_id)[:1] == (target_id,)


def divergence(p: Weights, q: Weights) -> float:
    """KL(p || q) in nats of weights that are made to sum to one each; 0.0 where either has none. q's zeros count as
    hardly possible.
    """
    total_p, total_q = float(p.sum()), float(q.sum())
    if total_p <= 0.0 or total_q <= 0.0:
        return 0.0
    some = p > 0.0
    p, q = p[some] / total_p, np.maximum(q[some] / total_q, _HARDLY)
    return max(float((p * np.log(p / q)).sum()), 0.0)


def accepted(target: Sequence[tuple[int, int]], draft: Sequence[tuple[int, int]], wrong: set[int]) -> list[bool]:
    """For each target token of a text whether a greedy draft that has it right so far goes on with it: every draft
    token that overlaps it is the draft's likeliest there. `wrong` are the offsets where it is not; a draft token that
    begins before the text counts as wrong.
    """
    out: list[bool] = []
    k = 0
    for start, end in target:
        while k < len(draft) and draft[k][1] <= start:
            k += 1
        overlapping = []
        i = k
        while i < len(draft) and draft[i][0] < end:
            overlapping.append(draft[i][0])
            i += 1
        out.append(bool(overlapping) and all(at >= 0 and at not in wrong for at in overlapping))
    return out


def predict(
    runs: Iterable[Sequence[bool]], ids_per_token: float, target: CostCurve, draft: CostCurve, n_max: int
) -> Prediction:
    """Replays the texts with every fixed draft length from 0 to n_max and keeps the fastest.

    ids_per_token: draft ids for each target id. A round of length k costs one target pass of 1 + k rows and the draft's
    single steps for k tokens of the target; it yields what was accepted in a row from there on, and one token more.
    """
    texts = [run for run in runs if run]
    best = Prediction(0, 1.0, 1.0)
    n_tokens = sum(map(len, texts))
    for k in range(1, n_max + 1):
        rounds = sum(_rounds(run, k) for run in texts)
        cost = rounds * (target.ms(1 + k) + math.ceil(k * ids_per_token) * draft.ms(1))
        if rounds and (speed_up := n_tokens * target.ms(1) / cost) > best.speed_up:
            best = Prediction(k, speed_up, n_tokens / rounds)
    return best


def _rounds(run: Sequence[bool], k: int) -> int:
    at = rounds = 0
    while at < len(run):
        n = 0
        while n < k and at + n < len(run) and run[at + n]:
            n += 1
        at += n + 1
        rounds += 1
    return rounds


def _softmax(row: Row) -> Weights:
    wide = row.astype(np.float64)
    return np.asarray(np.exp(wide - log_sum_exp(wide)))


def _first_bytes(vocab: VocabTable) -> npt.NDArray[np.intp]:
    """The first byte of every id, 256 for specials."""
    return np.array([piece[0] if piece else 256 for piece in vocab.pieces], np.intp)


def _by_first(p: Weights, firsts: npt.NDArray[np.intp]) -> Weights:
    return np.bincount(firsts, weights=p[: len(firsts)], minlength=257).astype(np.float64)


def _begins(target: VocabTable, target_id: int, draft: VocabTable, draft_id: int) -> bool:
    ours, theirs = target.pieces[target_id], draft.pieces[draft_id]
    return bool(ours and theirs) and (ours.startswith(theirs) or theirs.startswith(ours))
