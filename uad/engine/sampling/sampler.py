"""The target's sampler: the steps of a request, then a draw keyed by position.

Exact for every drafter: a guess is right if it equals the draw.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from uad.base.common.arrays import Floats
from uad.base.common.logits import Likeliest, Outputs, likeliest_each, log_sum_exp
from uad.base.types import SamplingParams, TokenProb
from uad.engine.sampling.chain import ChainFactory, StepMaker
from uad.engine.sampling.dry import Breakers, BreakersOf
from uad.engine.sampling.noise import Position, gumbel, gumbel_each
from uad.engine.sampling.stages import most_kept, stages
from uad.engine.sampling.steps import AnyIds, Candidates
from uad.text.grammar.protocol import Matcher

_NO_LOGITS = np.empty(0, np.float32)
_FEW = 1024  # candidates whose noise is made with that of other rows; of more the numbers cost more than the calls


class Lot(NamedTuple):
    """The lot that an id is drawn from. ids: the candidates, None: all of the vocabulary. keys: of the noise of each;
    None: the likeliest is taken. place: seed and position.
    """

    ids: AnyIds | None
    logits: Floats
    keys: npt.NDArray[np.uint64] | None = None
    place: tuple[int, Position] = (0, Position())

    def drawn(self, noise: npt.NDArray[np.float64] | None) -> int:
        """The id. noise: of each candidate."""
        best = int((self.logits if noise is None else self.logits + noise).argmax())
        return best if self.ids is None else int(self.ids[best])


def no_breakers(texts: tuple[str, ...]) -> Breakers:
    """For samplers without a vocabulary: repetitions have no end."""
    return Breakers({})


class Sampler:
    """Chooses ids for one sequence. Not reusable: penalties remember what was accepted, and the prompt, as
    llama-server's do.

    eog: what `ignore_eos` bans. late: ids that cannot be drawn before n_early others were accepted. matcher: knows the
    ids to choose from, before any stage does. breakers: finds those of DRY.
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
        breakers: BreakersOf = no_breakers,
    ) -> None:
        self.matcher = matcher
        self._late = np.array(sorted(late), np.intp)
        self._n_early = n_early if late else 0
        self._seed = seed
        self._greedy = params.is_greedy
        self._keys = keys
        maker = StepMaker(params, seed, prompt, len(keys), chains, breakers)
        its_stages = stages(params, eog, n_ctx)
        self._steps = maker.make(its_stages)
        self.n_needed = 0
        """How many of a row's likeliest ids the choice depends on; 0: on the whole row."""
        if not (matcher is not None or self._n_early or params.allowed or params.bad_words):
            self.n_needed = 1 if self._greedy and not its_stages else most_kept(its_stages)
        self._left: Candidates = None, _NO_LOGITS

    def pick(self, row: Floats | Likeliest, position: Position) -> int:
        """The id for this position, from its logits, or where `n_needed` allows it from the likeliest. Depends on
        nothing else but what was accepted.
        """
        ids, logits = self._stepped(row, position)
        if self._greedy:
            best = int(logits.argmax())
        else:
            noise = gumbel(self._seed, position, self._keys if ids is None else self._keys[ids])
            best = int((logits + noise).argmax())
        return best if ids is None else int(ids[best])

    def lot(self, row: Floats | Likeliest, position: Position) -> Lot:
        """The lot that `pick` draws from; valid until this is asked again."""
        ids, logits = self._stepped(row, position)
        if self._greedy:
            return Lot(ids, logits)
        return Lot(ids, logits, self._keys if ids is None else self._keys[ids], (self._seed, position))

    def _stepped(self, row: Floats | Likeliest, position: Position) -> Candidates:
        """The candidates that the steps leave."""
        ids, logits = row if isinstance(row, tuple) else self._candidates(row)
        for step in self._steps:
            ids, logits = step.apply(ids, logits, position)
        self._left = ids, logits
        return self._left

    def _candidates(self, row: Floats) -> Candidates:
        """The candidates that the matcher and `n_early` let follow."""
        mask = self.matcher.mask() if self.matcher is not None else None
        if mask is not None and not mask.are_banned:
            ids = mask.allowed(len(row))
            earlier = np.setdiff1d(ids, self._late, assume_unique=True) if self._n_early else ids
            ids = earlier if len(earlier) else ids  # nothing but an end may follow
            return ids, row[ids]
        if mask is not None or self._n_early:
            row = row.copy()
            if mask is not None:
                row[mask.ids] = -np.inf
            if self._n_early:
                row[self._late] = -np.inf
        return None, row

    def accept(self, id_: int) -> None:
        """The id is part of the text."""
        if self.matcher is not None:
            self.matcher.accept(id_)
        self._n_early = max(self._n_early - 1, 0)
        for step in self._steps:
            step.accept(id_)

    def drawn_prob(self, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
        """Log-probability of the id that was picked last, among those that it was drawn from, with the n_top likeliest.

        Before the next pick only.
        """
        if self._greedy:
            only = TokenProb(id_, pieces[id_], 0.0)
            return TokenProb(id_, pieces[id_], 0.0, (only,) if n_top else ())
        return _prob_among(*self._left, id_, n_top, pieces)

    def close(self) -> None:
        """Free what the steps hold."""
        for step in self._steps:
            step.close()


class Drawer(Protocol):
    """A sampler as `pick_each` needs it. `Sampler` is one."""

    @property
    def n_needed(self) -> int:
        """How many of a row's likeliest ids the choice depends on; 0: on the whole row."""
        ...

    def lot(self, row: Floats | Likeliest, position: Position) -> Lot:
        """The lot that the id of this position is drawn from."""
        ...


def pick_each(samplers: Sequence[Drawer], rows: Outputs, positions: Sequence[Position]) -> list[int | Exception]:
    """Each sampler's pick from its row, or the error that this raises; the likeliest ids of all rows, and the noise of
    all, are found in one pass each.
    """
    picked: list[int | Exception] = []
    waiting: list[tuple[int, Lot]] = []
    for sampler, row, position in zip(samplers, _cut(samplers, rows), positions, strict=True):
        try:
            lot = sampler.lot(row, position)
            if lot.keys is not None and len(lot.keys) <= _FEW:
                waiting.append((len(picked), lot))
                picked.append(0)
            else:
                picked.append(lot.drawn(None if lot.keys is None else gumbel(*lot.place, lot.keys)))
        except Exception as error:
            picked.append(error)
    if waiting:
        noises = gumbel_each(
            [lot.place for _, lot in waiting], [lot.keys for _, lot in waiting if lot.keys is not None]
        )
        for (at, lot), noise in zip(waiting, noises, strict=True):
            try:
                picked[at] = lot.drawn(noise)
            except Exception as error:
                picked[at] = error
    return picked


def _cut(samplers: Sequence[Drawer], rows: Outputs) -> Sequence[Floats | Likeliest]:
    """The rows; of a matrix whose samplers all need equally many of the likeliest ids, only these."""
    n_needed = samplers[0].n_needed
    if not isinstance(rows, np.ndarray) or n_needed < 2 or any(sampler.n_needed != n_needed for sampler in samplers):
        return list(rows)
    ids_of_rows = likeliest_each(rows, n_needed)
    return [row if ids is None else (ids, row[ids]) for row, ids in zip(rows, ids_of_rows, strict=True)]


def token_prob(row: Floats, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
    """Log-probability of id_ in the unmodified distribution, with the n_top likeliest ids."""
    return _prob_among(None, row, id_, n_top, pieces)


def _prob_among(ids: AnyIds | None, logits: Floats, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
    norm = log_sum_exp(logits)

    def prob(at: int, top: tuple[TokenProb, ...] = ()) -> TokenProb:
        its_id = at if ids is None else int(ids[at])
        return TokenProb(its_id, pieces[its_id], float(logits[at]) - norm, top)

    best: list[int] = []
    if n_top > 0:
        top = np.argpartition(logits, -min(n_top, len(logits)))[-n_top:]
        best = top[np.argsort(-logits[top], kind="stable")].tolist()
    at = id_ if ids is None else int(np.flatnonzero(ids == id_)[0])
    return prob(at, tuple(prob(id_) for id_ in best))
