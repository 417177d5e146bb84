"""The steps between the target's logits and the draw: llama.cpp's own stages, and those that have to be ours.

Ours are those that draw (mirostat, adaptive-p): llama.cpp's have random numbers of their own, so the text would depend
on how often they are asked. A step's memory of a text changes with accepted ids only, so that drafts change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Floats
from uad.engine.sampling.noise import Position, chance

AnyIds = npt.NDArray[np.signedinteger]
Candidates = tuple[AnyIds | None, Floats]
_NOBODY: Final = np.empty(0, np.intp)
_NO_P: Final = np.empty(0, np.float64)


class Chain(Protocol):
    """A native chain of stages. `uad.llama.samplers.SamplerChain` is one."""

    def apply(self, row: Floats, ids: AnyIds | None = None) -> tuple[npt.NDArray[np.int32], Floats]:
        """The ids that survive and their logits; views that the next call overwrites. row is not changed.

        ids: those that row belongs to; None: all of the vocabulary.
        """
        ...

    def accept(self, id_: int) -> None:
        """The text goes on with this id."""

    def close(self) -> None:
        """Free what it holds."""


class SamplingStep(Protocol):
    """One step. Candidates are ids with their logits; ids None: all of the vocabulary."""

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """The candidates that are left, at this place of the answer. Changes nothing that it is given."""
        ...

    def accept(self, id_: int) -> None:
        """The text goes on with this id."""

    def close(self) -> None:
        """Free what it holds."""


class Native:
    """Stages of llama.cpp. reach: how many of the last ids they remember."""

    def __init__(self, chain: Chain, reach: int, prompt: Sequence[int]) -> None:
        self._chain = chain
        self._remembers = reach > 0
        for id_ in prompt[-reach:] if reach else ():
            chain.accept(id_)

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """The candidates that the stages leave."""
        return self._chain.apply(logits, ids)

    def accept(self, id_: int) -> None:
        """Penalties count it."""
        if self._remembers:
            self._chain.accept(id_)

    def close(self) -> None:
        """Free the chain."""
        self._chain.close()


class Sometimes:
    """A step that acts at random, by the seed and the place in the answer. lot: names the step's own random draw."""

    def __init__(self, step: SamplingStep, seed: int, probability: float, lot: str) -> None:
        self._step = step
        self._seed = seed
        self._probability = probability
        self._lot = lot

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """The candidates that the step leaves, or all of them."""
        if chance(self._seed, position, self._lot) >= self._probability:
            return ids, logits
        return self._step.apply(ids, logits, position)

    def accept(self, id_: int) -> None:
        """For the step."""
        self._step.accept(id_)

    def close(self) -> None:
        """Close the step."""
        self._step.close()


class _Stateless:
    """A step that remembers nothing."""

    def accept(self, id_: int) -> None:
        """Nothing to remember."""

    def close(self) -> None:
        """Nothing to free."""


class NotBanned(_Stateless):
    """Drops what cannot be drawn, before stages that take logarithms of probabilities: 0 would make NaN of all."""

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """Ids of a probability above 0."""
        kept = np.flatnonzero(logits > -np.inf)
        if len(kept) == len(logits):
            return ids, logits
        return (kept if ids is None else ids[kept]), logits[kept]


class Allowed(_Stateless):
    """Drops all but some ids."""

    def __init__(self, allowed: Sequence[int]) -> None:
        self._allowed = np.array(sorted(set(allowed)), np.intp)

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """Ids that are allowed; all where a constraint lets none of them follow."""
        if ids is None:
            return self._allowed, logits[self._allowed]
        kept = np.flatnonzero(np.isin(ids, self._allowed))
        return (ids[kept], logits[kept]) if len(kept) else (ids, logits)


class BadWords:
    """Bans the last id of sequences, of one id at least, whose other ids were just written, in this answer."""

    def __init__(self, words: Sequence[tuple[int, ...]]) -> None:
        self._words = words
        self._longest = max(map(len, words), default=1) - 1
        self._last: list[int] = []

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """The same candidates, where banned ones cannot be drawn; all as they are where nothing else is left."""
        banned = [word[-1] for word in self._words if self._ends_with(word[:-1])]
        if not banned:
            return ids, logits
        at = np.array(banned, np.intp) if ids is None else np.flatnonzero(np.isin(ids, banned))
        logits = logits.copy()
        logits[at] = -np.inf
        return ids, logits

    def _ends_with(self, begun: tuple[int, ...]) -> bool:
        return not begun or tuple(self._last[-len(begun) :]) == begun

    def accept(self, id_: int) -> None:
        """Kept as long as a word may need it."""
        self._last = [*self._last, id_][-self._longest :] if self._longest else []

    def close(self) -> None:
        """Nothing to free."""


class _Pending:
    """The ids left to be drawn at the last place, each with a probability, until an id is accepted."""

    def __init__(self) -> None:
        self._ids: AnyIds = _NOBODY
        self._p: npt.NDArray[np.float64] = _NO_P

    def put(self, ids: AnyIds, p: npt.NDArray[np.float64]) -> None:
        self._ids, self._p = ids, p

    def take(self, id_: int) -> float | None:
        """The probability of this id, once; None for one that was not drawn among them."""
        at = np.flatnonzero(self._ids == id_)
        p = float(self._p[at[0]]) if len(at) else None
        self._ids, self._p = _NOBODY, _NO_P
        return p


class Mirostat:
    """Mirostat 1 and 2 (Basu and others, arXiv 2007.14966): as many candidates as keep the surprise near tau bits.

    How many is a matter of `mu`, which follows the surprise of each accepted id at a rate of eta.
    """

    _M: Final = 100  # likeliest ids from which version 1 estimates how probabilities fall: llama.cpp's number

    def __init__(self, version: int, tau: float, eta: float, n_vocab: int) -> None:
        self._version = version
        self._tau = tau
        self._eta = eta
        self._n_vocab = n_vocab
        self._mu = 2 * tau
        self._pending = _Pending()

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """The likeliest ones, at least one."""
        p = _softmax(logits)
        kept = self._below(p) if self._version > 1 else self._first(p)
        chosen: AnyIds = kept if ids is None else ids[kept]
        self._pending.put(np.array(chosen), p[kept] / p[kept].sum())
        return chosen, logits[kept]

    def _below(self, p: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Places of a surprise of up to mu."""
        with np.errstate(divide="ignore"):
            kept = np.flatnonzero(-np.log2(p) <= self._mu)
        return kept if len(kept) else np.array([p.argmax()])

    def _first(self, p: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Places of the likeliest ids: as many as mu means under Zipf's law, whose exponent is estimated from the
        likeliest.
        """
        n = int((p > 0).sum())
        top = -np.sort(-p[_largest(p, min(self._M, n))])
        k = n
        if len(top) > 1:
            t = np.log(np.arange(2, len(top) + 1) / np.arange(1, len(top)))
            s = float((t * np.log(top[:-1] / top[1:])).sum() / (t * t).sum())
            k = self._count(s, n)
        return _largest(p, max(min(k, n), 1))

    def _count(self, s: float, n: int) -> int:
        excess = s - 1
        with np.errstate(all="ignore"):
            k = np.float64(excess * np.exp2(self._mu) / (1 - np.float64(self._n_vocab) ** -excess)) ** (
                1 / np.float64(s)
            )
        return int(k) if np.isfinite(k) and k < n else n

    def accept(self, id_: int) -> None:
        """mu follows its surprise."""
        p = self._pending.take(id_)
        if p is not None and p > 0:
            self._mu -= self._eta * (-float(np.log2(p)) - self._tau)

    def close(self) -> None:
        """Nothing to free."""


class AdaptiveP:
    """Adaptive-p (MrJackSpade, llama.cpp's numbers): prefers ids whose probability is near a target.

    The target moves away from the mean probability of the ids accepted lately, which fade by a factor of `decay`.
    """

    _WIDTH: Final = 0.3
    _PEAK: Final = 5.0
    _SHARPNESS: Final = 10.0

    def __init__(self, target: float, decay: float) -> None:
        self._target = target
        self._decay = decay
        self._sum = target / (1 - decay)
        self._weight = 1 / (1 - decay)
        self._pending = _Pending()

    def apply(self, ids: AnyIds | None, logits: Floats, position: Position) -> Candidates:
        """The same candidates with logits by how near they are to the target."""
        p = _softmax(logits)
        wanted = min(max(2 * self._target - self._sum / self._weight, 0.0), 1.0)
        away = np.abs(p - wanted) / self._WIDTH
        moved = (self._PEAK - self._SHARPNESS * away * away / (1 + away)).astype(np.float32)
        self._pending.put(np.arange(len(p)) if ids is None else np.array(ids), p)
        return ids, np.where(logits > -np.inf, moved, np.float32(-np.inf))

    def accept(self, id_: int) -> None:
        """The id's probability is one of those accepted lately."""
        p = self._pending.take(id_)
        if p is not None:
            self._sum = p + self._decay * self._sum
            self._weight = 1 + self._decay * self._weight

    def close(self) -> None:
        """Nothing to free."""


def _softmax(logits: Floats) -> npt.NDArray[np.float64]:
    most = float(logits.max())
    # Over a temperature of 1e-38 some logits are infinite, and share all of the probability.
    p = np.exp(logits.astype(np.float64) - most) if np.isfinite(most) else (logits == most).astype(np.float64)
    return np.asarray(p / p.sum())


def _largest(p: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.intp]:
    return np.arange(len(p)) if n >= len(p) else np.asarray(np.argpartition(p, -n)[-n:])
