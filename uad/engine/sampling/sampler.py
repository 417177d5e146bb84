"""The target's sampler: the steps of a request, then a draw keyed by position.

Exact for every drafter: a guess is right if it equals the draw.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from uad.base.common.logits import Likeliest, log_sum_exp
from uad.base.types import SamplingParams, TokenProb
from uad.engine.sampling.chain import ChainFactory, StepMaker
from uad.engine.sampling.dry import Breakers, BreakersOf
from uad.engine.sampling.noise import Position, gumbel
from uad.engine.sampling.stages import most_kept, stages
from uad.engine.sampling.steps import AnyIds, Candidates, Row
from uad.text.grammar.protocol import Ids, Matcher

_NO_LOGITS = np.empty(0, np.float32)


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
        """Of the likeliest ids of a row how many the choice depends on; 0: on the whole row."""
        if not (matcher is not None or self._n_early or params.allowed or params.bad_words):
            self.n_needed = 1 if self._greedy and not its_stages else most_kept(its_stages)
        self._left: Candidates = None, _NO_LOGITS

    def pick(self, row: Row | Likeliest, position: Position) -> int:
        """The id for this position, from its logits, or where `n_needed` allows it from the likeliest. Depends on
        nothing else but what was accepted.
        """
        ids, logits = row if isinstance(row, tuple) else self._candidates(row)
        for step in self._steps:
            ids, logits = step.apply(ids, logits, position)
        self._left = ids, logits
        if self._greedy:
            best = int(logits.argmax())
        else:
            noise = gumbel(self._seed, position, self._keys if ids is None else self._keys[ids])
            best = int((logits + noise).argmax())
        return best if ids is None else int(ids[best])

    def _candidates(self, row: Row) -> Candidates:
        """What the matcher and `n_early` let follow."""
        mask = self.matcher.mask() if self.matcher is not None else None
        if mask is not None and not mask.are_banned:
            ids = self._not_late(mask.allowed(len(row)))
            return ids, row[ids]
        if mask is not None or self._n_early:
            row = row.copy()
            if mask is not None:
                row[mask.ids] = -np.inf
            if self._n_early:
                row[self._late] = -np.inf
        return None, row

    def _not_late(self, ids: Ids) -> Ids:
        earlier = np.setdiff1d(ids, self._late, assume_unique=True) if self._n_early else ids
        return earlier if len(earlier) else ids  # nothing but an end may follow

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


def token_prob(row: Row, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
    """Log-probability of id_ in the unmodified distribution, with the n_top likeliest ids."""
    return _prob_among(None, row, id_, n_top, pieces)


def _prob_among(ids: AnyIds | None, logits: Row, id_: int, n_top: int, pieces: Sequence[bytes]) -> TokenProb:
    norm = log_sum_exp(logits)

    def prob(at: int, top: tuple[TokenProb, ...] = ()) -> TokenProb:
        its_id = at if ids is None else int(ids[at])
        return TokenProb(its_id, pieces[its_id], float(logits[at]) - norm, top)

    best: list[int] = []
    if n_top > 0:
        top = np.argpartition(logits, -min(n_top, len(logits)))[-n_top:]
        best = top[np.argsort(-logits[top], kind="stable")].tolist()
    at = id_ if ids is None else int(np.flatnonzero(ids == id_)[0])
    return prob(at, tuple(prob(one) for one in best))
