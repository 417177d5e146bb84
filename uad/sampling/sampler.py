"""The target's sampler: llama.cpp's stages, then a draw keyed by position.

Exact for every drafter: a guess is right if it equals the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from uad.common.logits import log_sum_exp
from uad.grammar.protocol import Ids, Matcher
from uad.sampling.noise import Position, chance, gumbel
from uad.sampling.stages import SamplerStage, Stage, is_typical, reach, stages
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
    """Chooses ids for one sequence. Not reusable: penalties remember what was accepted, and the prompt, as
    llama-server's do.

    eog: what `ignore_eos` bans. late: ids that cannot be drawn before n_early others were accepted. matcher: knows the
    ids to choose from, before any stage does.
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
        by_chance = [stage for stage in chain if isinstance(stage, SamplerStage) and stage.chance < 1]
        self.matcher = matcher
        self._late = np.array(sorted(late), np.intp)
        self._n_early = n_early if late else 0
        self._seed = seed
        self._greedy = params.temperature <= 0
        self._keys = keys
        self._chain = chains(always) if (always := [stage for stage in chain if stage not in by_chance]) else None
        self._drawn = by_chance[0] if by_chance else None
        self._longer = chains(chain) if by_chance else None
        self._is_typical = is_typical(chain)
        last_n = reach(chain)
        self._remembers = last_n > 0
        for id_ in prompt[-last_n:] if last_n else ():
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
        chain = self._chain_at(position)
        if chain is None:
            return int(row.argmax()) if self._greedy else int((row + gumbel(self._seed, position, self._keys)).argmax())
        ids, logits = chain.apply(row)
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
        if (chain := self._chain_at(position)) is not None:
            kept, logits = chain.apply(logits, ids)
        noise = 0.0 if self._greedy else gumbel(self._seed, position, self._keys[kept])
        return int(kept[(logits + noise).argmax()])

    def accept(self, id_: int) -> None:
        if self.matcher is not None:
            self.matcher.accept(id_)
        self._n_early = max(self._n_early - 1, 0)
        self._remember(id_)

    def _chain_at(self, position: Position) -> Chain | None:
        """The stages that act at this position."""
        if self._drawn is None or chance(self._seed, position, self._drawn.sampler.name) >= self._drawn.chance:
            return self._chain
        return self._longer

    @property
    def _chains(self) -> list[Chain]:
        return [chain for chain in (self._chain, self._longer) if chain is not None]

    def _remember(self, id_: int) -> None:
        for chain in self._chains if self._remembers else ():
            chain.accept(id_)

    def close(self) -> None:
        for chain in self._chains:
            chain.close()


def token_prob(row: Row, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
    """Log-probability of id_ in the unmodified distribution, with the n_top likeliest ids."""
    norm = log_sum_exp(row)
    top: list[int] = []
    if n_top > 0:
        best = np.argpartition(row, -min(n_top, len(row)))[-n_top:]
        top = best[np.argsort(-row[best], kind="stable")].tolist()
    return TokenProb(
        id_, pieces[id_], float(row[id_]) - norm, tuple(TokenProb(t, pieces[t], float(row[t]) - norm) for t in top)
    )
