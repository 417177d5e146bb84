"""A double of llama.cpp's sampler chain, in numpy: loop tests sample as a server does, and need no llama.cpp.

It leaves the same ids with the same logits, but for rounding, as `tests/model/test_chain_double.py` checks. Every
sampler with a native constructor is here, but for infill's, which needs a vocabulary of llama.cpp.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from uad.engine.sampling.stages import LogitBias, Stage

Ids = npt.NDArray[np.int32]
Row = npt.NDArray[np.float32]
Kept = tuple[Ids, Row]
NOWHERE = np.float32(-np.inf)


class NumpyChain:
    """See `uad.engine.sampling.steps.Chain`. Candidates keep the order of their ids."""

    def __init__(self, n_vocab: int, stages: Sequence[Stage]) -> None:
        self._all_ids = np.arange(n_vocab, dtype=np.int32)
        self._penalties: list[Penalties] = []
        self._steps = [self._step(stage) for stage in stages]
        self.is_closed = False

    def _step(self, stage: Stage) -> Callable[[Ids, Row], Kept]:
        if isinstance(stage, LogitBias):
            return lambda ids, logits: biased(ids, logits, stage.bias)
        if stage.sampler.counts:
            self._penalties.append(Penalties(int(stage.args[0]), *stage.args[1:]))
            return self._penalties[-1].apply
        function = FUNCTIONS[stage.sampler.native.removeprefix("llama_sampler_init_")]
        return lambda ids, logits: function(ids, logits, *stage.args)

    def apply(self, row: Row, ids: npt.NDArray[np.signedinteger] | None = None) -> Kept:
        assert not self.is_closed
        kept = self._all_ids if ids is None else ids.astype(np.int32)
        logits = row.copy()
        for step in self._steps:
            kept, logits = step(kept, logits)
        return kept, logits

    def accept(self, id_: int) -> None:
        for penalties in self._penalties:
            penalties.accept(id_)

    def close(self) -> None:
        self.is_closed = True


class Penalties:
    """Of the ids among the last ones."""

    def __init__(self, n_last: int, repeat: float, frequency: float, presence: float) -> None:
        self._last: deque[int] = deque(maxlen=n_last)
        self._repeat, self._frequency, self._presence = np.float32(repeat), np.float32(frequency), np.float32(presence)

    def apply(self, ids: Ids, logits: Row) -> Kept:
        counts = Counter(self._last)
        at = np.flatnonzero(np.isin(ids, list(counts)))
        n = np.array([counts[id_] for id_ in ids[at].tolist()], np.float32)
        old = logits[at]
        logits[at] = np.where(old <= 0, old * self._repeat, old / self._repeat) - n * self._frequency - self._presence
        return ids, logits

    def accept(self, id_: int) -> None:
        self._last.append(id_)


def biased(ids: Ids, logits: Row, bias: Sequence[tuple[int, float]]) -> Kept:
    for id_, value in bias:
        logits[ids == id_] += np.float32(value)
    return ids, logits


def top_n_sigma(ids: Ids, logits: Row, n: float) -> Kept:
    """Bans what lies further below the best than n standard deviations, and drops none."""
    valid = logits[logits > NOWHERE].astype(np.float64)
    if n > 0 and len(logits) > 1 and len(valid):
        logits = np.where(logits < valid.max() - n * valid.std(), NOWHERE, logits)
    return ids, logits


def top_k(ids: Ids, logits: Row, k: float) -> Kept:
    return _first(ids, logits, downwards(logits), int(k)) if k > 0 else (ids, logits)


def typical(ids: Ids, logits: Row, share: float, n_least: float) -> Kept:
    """The ids whose surprise is nearest to the mean."""
    if share >= 1:
        return ids, logits
    p = softmax(logits)
    surprise = -np.log(p)
    order = np.argsort(np.abs(surprise - (p * surprise).sum()), kind="stable")
    n = int((np.cumsum(p[order]) <= np.float32(share)).sum()) + 1
    return _first(ids, logits, order, max(n, int(n_least)))


def top_p(ids: Ids, logits: Row, share: float, n_least: float) -> Kept:
    if share >= 1:
        return ids, logits
    order = downwards(logits)
    n = int((np.cumsum(softmax(logits)[order]) < np.float32(share)).sum()) + 1
    return _first(ids, logits, order, max(n, int(n_least)))


def min_p(ids: Ids, logits: Row, share: float, n_least: float) -> Kept:
    if share <= 0:
        return ids, logits
    n = int((logits >= logits.max() + np.log(np.float32(share))).sum())
    return _first(ids, logits, downwards(logits), max(n, int(n_least)))


def xtc(ids: Ids, logits: Row, chance: float, threshold: float, n_least: float, seed: int = 0) -> Kept:
    """Drops the ids of at least that probability, but for the least likely of them. uad decides when."""
    assert chance == 1
    if threshold > 0.5 or len(logits) < 2:
        return ids, logits
    n_out = int((softmax(logits) >= np.float32(threshold)).sum()) - 1
    if n_out < 1 or len(logits) - n_out < n_least:
        return ids, logits
    kept = np.sort(downwards(logits)[n_out:])
    return ids[kept], logits[kept]


def temp_ext(ids: Ids, logits: Row, temperature: float, around: float, exponent: float) -> Kept:
    """Divides by the temperature, which follows the entropy where `around` is above 0."""
    if around > 0:
        if len(logits) < 2:
            return ids, logits
        p = softmax(logits)
        p = p[p > 0]
        low, high = max(0.0, temperature - around), temperature + around
        temperature = low + (high - low) * float(-(p * np.log(p)).sum() / np.log(len(logits))) ** exponent
    if temperature <= 0:
        best = np.arange(len(logits)) == logits.argmax()
        return ids, np.where(best, logits, NOWHERE)
    return ids, logits / np.float32(temperature)


FUNCTIONS: dict[str, Callable[..., Kept]] = {
    function.__name__: function for function in (top_n_sigma, top_k, typical, top_p, min_p, xtc, temp_ext)
}


def softmax(logits: Row) -> npt.NDArray[np.float64]:
    p = np.exp(logits.astype(np.float64) - float(logits.max()))
    return np.asarray(p / p.sum())


def downwards(logits: Row) -> npt.NDArray[np.intp]:
    """Places from the likeliest to the least likely."""
    return np.argsort(-logits, kind="stable")


def _first(ids: Ids, logits: Row, order: npt.NDArray[np.intp], n: int) -> Kept:
    """Those at the first n places of an order."""
    kept = np.sort(order[:n])
    return ids[kept], logits[kept]
