"""The target's sampler: llama.cpp's stages, then a draw keyed by position.

Exact for every drafter: a guess is right if it equals the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from uad.grammar.protocol import Ids, Matcher
from uad.sampling.noise import Position, gumbel
from uad.sampling.stages import Penalties, Stage, Typical, stages
from uad.types import SamplingParams, TokenProb

Row = npt.NDArray[np.float32]


class Chain(Protocol):
    """A native chain of stages. `uad.llama.samplers.SamplerChain` is one."""

    def apply(self, row: Row, ids: Ids | None = None) -> tuple[npt.NDArray[np.int32], Row]:
        """The ids that survive and their logits; views that the next call overwrites. row is not changed.

        ids: those that row belongs to; None: all of the vocabulary.
        """
        ...

    def accept(self, id_: int) -> None: ...
    def close(self) -> None: ...


ChainFactory = Callable[[Sequence[Stage]], Chain]


class Sampler:
    """Chooses ids for one sequence. Not reusable: penalties remember what was accepted, and the prompt, as llama-server's do.

    eog: what `ignore_eos` bans. late: ids that cannot be drawn before n_early others were accepted. matcher: knows the ids to choose from,
    before any stage does.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        eog: frozenset[int],
        n_ctx: int,
        chains: ChainFactory,
        keys: npt.NDArray[np.uint64],
        prompt: Sequence[int] = (),
        late: Collection[int] = (),
        n_early: int = 0,
        matcher: Matcher | None = None,
    ) -> None:
        chain = stages(params, eog, n_ctx)
        self.matcher = matcher
        self._late = np.array(sorted(late), np.intp)
        self._n_early = n_early if late else 0
        self._seed = seed
        self._greedy = params.temperature <= 0
        self._keys = keys
        self._chain = chains(chain) if chain else None
        # typical_p takes logarithms of probabilities: a banned id would make NaN of them
        self._is_typical = any(isinstance(stage, Typical) for stage in chain)
        last_n = next((stage.last_n for stage in chain if isinstance(stage, Penalties)), 0)
        self._remembers = last_n > 0
        if self._remembers:
            for id_ in prompt[-last_n:]:
                self._remember(id_)

    def pick(self, row: Row, position: Position) -> int:
        """The id for this position, from its logits. Depends on nothing else but what was accepted."""
        mask = self.matcher.mask() if self.matcher is not None else None
        if mask is not None and (self._is_typical or not mask.are_banned):
            return self._pick_of(mask.allowed(len(row)), row, position)
        if mask is not None or self._n_early:
            row = row.copy()
            if mask is not None:
                row[mask.ids] = -np.inf
            if self._n_early:
                row[self._late] = -np.inf
        if self._chain is None:
            return int(row.argmax()) if self._greedy else int((row + gumbel(self._seed, position, self._keys)).argmax())
        ids, logits = self._chain.apply(row)
        if self._greedy:
            return int(ids[logits.argmax()])
        return int(ids[(logits + gumbel(self._seed, position, self._keys[ids])).argmax()])

    def _pick_of(self, ids: Ids, row: Row, position: Position) -> int:
        """The same with these ids to choose from."""
        if self._n_early:
            later = np.setdiff1d(ids, self._late, assume_unique=True)
            ids = later if len(later) else ids  # nothing but an end may follow
        if len(ids) == 1:
            return int(ids[0])
        logits = row[ids]
        kept: npt.NDArray[np.integer] = ids
        if self._chain is not None:
            kept, logits = self._chain.apply(logits, ids)
        noise = 0.0 if self._greedy else gumbel(self._seed, position, self._keys[kept])
        return int(kept[(logits + noise).argmax()])

    def accept(self, id_: int) -> None:
        if self.matcher is not None:
            self.matcher.accept(id_)
        self._n_early = max(self._n_early - 1, 0)
        self._remember(id_)

    def _remember(self, id_: int) -> None:
        if self._chain is not None and self._remembers:
            self._chain.accept(id_)

    def close(self) -> None:
        if self._chain is not None:
            self._chain.close()


def token_prob(row: Row, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
    """Log-probability of id_ in the unmodified distribution, with the n_top likeliest ids."""
    peak = row.max()
    norm = float(peak) + float(np.log(np.exp(row - peak).sum(dtype=np.float64)))
    top: list[int] = []
    if n_top > 0:
        best = np.argpartition(row, -min(n_top, len(row)))[-n_top:]
        top = best[np.argsort(-row[best], kind="stable")].tolist()
    return TokenProb(id_, pieces[id_], float(row[id_]) - norm, tuple(TokenProb(t, pieces[t], float(row[t]) - norm) for t in top))
