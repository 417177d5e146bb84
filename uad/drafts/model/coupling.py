"""Coupled sampling: the draft's distribution is sampled with the target's own Gumbel noise. Knows no stream, no model.

The target draws argmax(log p + noise), and the noise belongs to the bytes of an id at an offset of the answer
(`sampling.noise`). So a draft that samples with it agrees far more often than one that names the likeliest id (Daliri,
Musco and Suresh, arXiv 2408.07978, for one vocabulary). Across vocabularies the noise is that of the target's ids; ids
of the draft are pieces of those, or hold several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Floats
from uad.base.common.logits import likeliest, log_sum_exp, sum_exp
from uad.base.errors import DecodeError
from uad.base.types import SamplingParams
from uad.drafts.model.choosing import LIKELIEST, NO_NUMBERS, Chooser, Recalled
from uad.engine.sampling.noise import Position, gumbel, token_keys
from uad.text.vocab.encode import Encoder

_MOST_DRAWN: Final = 40  # ids among which is drawn: the default of top_k
_LEAST: Final = 1e-5  # of the likeliest id's probability
_MOST_LOOKED_AT: Final = 64  # ids of the target that begin alike
# an id that leads only because of the noise is less sure than its share: fits 18,000 ids of both bundled drafts
_BY_LUCK: Final = 0.2
_NONE: Final = -1


class Continuation(NamedTuple):
    """How a draft may go on: the bytes from where the target's next id begins, the target's special after them, and
    how likely that is.
    """

    data: bytes
    special: int
    log_p: float


class Coupling:
    """Draws among a draft's continuations as the target would. back: from a special of the draft to the target's ids,
    if it has any.
    """

    def __init__(self, target: Encoder, draft: Encoder, back: Callable[[int], tuple[int, ...]]) -> None:
        self.pieces = target.vocab.texts
        self._target = target
        self._draft = draft
        self._keys = token_keys(target.vocab.texts)
        self._back = back
        self._end = min(target.vocab.eog, default=0)
        self._begun = lru_cache(1 << 15)(self._find_begun)
        self._first = lru_cache(1 << 15)(self._find_first)

    def chooser(self, sampling: SamplingParams, n_prompt: int) -> Chooser:
        """A chooser for an answer sampled this way, after a prompt of n_prompt ids; the likeliest id where nothing is
        random, or where the seed is not known.
        """
        if sampling.temperature <= 0 or sampling.seed is None:
            return LIKELIEST
        return _Coupled(self, sampling, sampling.seed, n_prompt)

    def _find_begun(self, data: bytes) -> int:
        """The id that the target probably writes where the draft wrote so much of it: of those that begin so and that
        the draft, too, would cut there, the most usual one, which is the lowest. _NONE where no id begins so.

        The draft wrote " conf". The target's ids that begin so are " config", " confirm", " confident". The draft cuts
        " config" as " config": had it meant that, it would not have written " conf". It cuts " confirm" as " conf",
        "irm": that is the one.
        """
        pieces, ids = self._target.vocab.sorted_pieces
        lo, hi = self._target.vocab.range_of(data)
        begun = sorted(range(lo, hi), key=ids.__getitem__)[:_MOST_LOOKED_AT]
        its_pieces = self._draft.vocab.pieces
        for some in (begun[:1], begun[1:8], begun[8:]):  # mostly it is the first; a call of the tokenizer is for many
            for i, its_ids in zip(some, self._draft.encode_all([pieces[i] for i in some]), strict=True):
                if len(data) in accumulate([len(its_pieces[id_]) for id_ in its_ids]):
                    return ids[i]
        return ids[begun[0]] if begun else _NONE

    def _find_first(self, data: bytes) -> tuple[int, int]:
        """The target's first id of data, and its length; the first of all ids where it has none."""
        ids = self._target.encode(data)
        return (ids[0], len(self.pieces[ids[0]])) if ids else (0, len(data))

    def settle(self, at: Position, data: bytes) -> tuple[Position, bytes]:
        """Where the id of the target begins that is being written, and its bytes: without those that are complete,
        whatever follows.
        """
        while data and self._begun(data) == _NONE:
            n = self._first(data)[1]
            at, data = at.after(n), data[n:]
        return at, data

    def continuations(self, begun: bytes, ids: Sequence[int], log_p: Sequence[float]) -> list[Continuation]:
        """Continuations by these ids of the draft, after what it wrote of an id of the target. A special that means
        nothing ends the answer.
        """
        pieces, specials = self._draft.vocab.pieces, self._draft.vocab.special_ids
        return [
            Continuation(begun + pieces[id_], (self._back(id_) or (self._end,))[0] if id_ in specials else _NONE, share)
            for id_, share in zip(ids, log_p, strict=True)
        ]

    def _whole(self, data: bytes, special: int) -> int:
        """The id of the target that goes on after all of it; _NONE where one ends within."""
        if data:
            return self._begun(data) if special == _NONE else _NONE
        return special if special != _NONE else self._end

    def choose(self, seed: int, at: Position, continuations: Sequence[Continuation]) -> tuple[int, float]:
        """The index of the one that the target takes, if they are as likely as is said; and how clearly: its share, the
        noise counted in.

        Ids are drawn in turn: continuations that end the same id of the target share its noise, and compete among
        themselves after it.

        A draft may go on with "s", "s t" or "ing" after "run". The target has the ids "runs" and "running", and none
        that begins with "runs t". So "runs" competes with "running" first: the former with what "s" and "s t" have
        together, and one noise. If it wins, what follows it is drawn between the two at its end: nothing more, which
        may become any id, and " t", which is a part of one.
        """
        live, share = [(k, continuation.data) for k, continuation in enumerate(continuations)], 1.0
        while True:
            groups: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
            for k, data in live:
                id_ = self._whole(data, continuations[k].special)
                # one that goes on with an id is alone with it, those that end one are together
                groups.setdefault((id_, k) if id_ != _NONE else (self._first(data)[0], _NONE), []).append((k, data))
            log_p = [np.logaddexp.reduce([continuations[k].log_p for k, _ in group]) for group in groups.values()]
            values = np.array(log_p) + gumbel(seed, at, self._keys[[id_ for id_, _ in groups]])
            best = int(values.argmax())
            share /= float(sum_exp(values, values[best]))
            won = list(groups.values())[best]
            if len(won) == 1:
                return won[0][0], share
            n = self._first(won[0][1])[1]
            at, live = at.after(n), [(k, data[n:]) for k, data in won]


class _Drawing:
    """Chooses what the target would draw. `_position` is where the answer's next id is drawn, `_at` where a draft's."""

    def __init__(self, sampling: SamplingParams, seed: int, n_prompt: int, pieces: Sequence[bytes]) -> None:
        self._sampling, self._seed, self._pieces = sampling, seed, pieces
        self._n_prompt = n_prompt  # ids of it that are still to come
        self._position = self._at = Position()

    def observe(self, ids: Sequence[int]) -> None:
        position = self._position
        for id_ in ids[self._n_prompt :]:
            position = position.after(len(self._pieces[id_]))
        self._position = position
        self._n_prompt = max(self._n_prompt - len(ids), 0)

    def choose(self, row: Floats, recalled: Recalled | None = None) -> tuple[int, float]:
        ids, log_p, n = likely(row, self._sampling, recalled)
        if n == 1:
            return int(ids[0]), float(np.exp(log_p[0]))
        k, share = self._draw(ids[:n], log_p[:n])
        return int(ids[k]), float(share * np.exp(log_p[:n]).sum() * np.exp(_BY_LUCK * log_p[k]))

    def _draw(self, ids: npt.NDArray[np.intp], log_p: npt.NDArray[np.float64]) -> tuple[int, float]:
        """The place of the one that is drawn, and its share, the noise counted in."""
        raise NotImplementedError


class _Coupled(_Drawing):
    """Across vocabularies. A draft wrote `_begun` of the target's id that begins at `_at`."""

    def __init__(self, coupling: Coupling, sampling: SamplingParams, seed: int, n_prompt: int) -> None:
        super().__init__(sampling, seed, n_prompt, coupling.pieces)
        self._coupling = coupling
        self._begun = b""

    def start(self, ahead: bytes) -> None:
        self._at, self._begun = self._coupling.settle(self._position, ahead)

    def wrote(self, data: bytes) -> None:
        self._at, self._begun = self._coupling.settle(self._at, self._begun + data)

    def _draw(self, ids: npt.NDArray[np.intp], log_p: npt.NDArray[np.float64]) -> tuple[int, float]:
        continuations = self._coupling.continuations(self._begun, ids.tolist(), log_p.tolist())
        return self._coupling.choose(self._seed, self._at, continuations)


def own_chooser(
    sampling: SamplingParams, n_prompt: int, pieces: Sequence[bytes], keys: npt.NDArray[np.uint64]
) -> Chooser:
    """A chooser for a draft in the target's own vocabulary: its ids have these bytes, and the noise of these keys."""
    if sampling.temperature <= 0 or sampling.seed is None:
        return LIKELIEST
    return _Own(sampling, sampling.seed, n_prompt, pieces, keys)


class _Own(_Drawing):
    """Where draft and target have the same ids."""

    def __init__(
        self,
        sampling: SamplingParams,
        seed: int,
        n_prompt: int,
        pieces: Sequence[bytes],
        keys: npt.NDArray[np.uint64],
    ) -> None:
        super().__init__(sampling, seed, n_prompt, pieces)
        self._keys = keys

    def start(self, ahead: bytes) -> None:
        self._at = self._position

    def wrote(self, data: bytes) -> None:
        self._at = self._at.after(len(data))

    def _draw(self, ids: npt.NDArray[np.intp], log_p: npt.NDArray[np.float64]) -> tuple[int, float]:
        values = log_p + gumbel(self._seed, self._at, self._keys[ids])
        k = int(values.argmax())
        return k, 1.0 / float(sum_exp(values, values[k]))


def likely(
    row: Floats, sampling: SamplingParams, recalled: Recalled | None = None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64], int]:
    """The likeliest ids of a row, likeliest first; the logarithms of their probabilities, temperature counted in; and
    how many of them top_k, top_p and min_p leave to be drawn. Raises DecodeError where the row holds no numbers.
    """
    temperature = sampling.temperature
    ids, own = _highest(row)
    if recalled is not None:
        ids, own = _mixed(ids, own, row, recalled)
    peak = float(own[0])
    n_likely = int((own >= peak + np.log(_LEAST) * max(temperature, 1.0)).sum())
    if not n_likely:
        raise DecodeError(NO_NUMBERS)
    ids, logits = ids[:n_likely], own[:n_likely].astype(np.float64) - peak
    n = min(sampling.top_k, len(ids)) if sampling.top_k > 0 else len(ids)
    p = np.exp(logits[:n])
    if sampling.top_p < 1:
        n = min(n, int(np.searchsorted(np.cumsum(p), sampling.top_p * p.sum())) + 1)
    if sampling.min_p > 0:
        n = min(n, int((p >= sampling.min_p).sum()))
    logits /= temperature
    return ids, logits - log_sum_exp(logits), max(n, 1)


def _highest(row: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """The _MOST_DRAWN ids with the highest logits and these, highest first; of equal ones the lower id."""
    ids = likeliest(row, _MOST_DRAWN)
    if ids is None:
        ids = np.arange(len(row))
        if len(row) > _MOST_DRAWN:
            ids = np.sort(np.argpartition(row, -_MOST_DRAWN)[-_MOST_DRAWN:])
    own = row[ids]
    order = np.argsort(-own, kind="stable")[:_MOST_DRAWN]
    return ids[order], own[order]


def _mixed(
    ids: npt.NDArray[np.intp], own: Floats, row: Floats, recalled: Recalled
) -> tuple[npt.NDArray[np.intp], Floats]:
    """The highest logits where one id's is that of the mixture: exp(logit) grows by odds * sum(exp(row))."""
    peak, id_ = own[0], recalled.id
    total = float(sum_exp(row, peak))
    logit = float(peak) + np.log(float(np.exp(row[id_] - peak)) + recalled.odds * total)
    is_other = ids != id_
    ids, own = np.append(ids[is_other], id_), np.append(own[is_other], np.float32(logit))
    order = np.argsort(-own, kind="stable")[:_MOST_DRAWN]
    return ids[order], own[order]
