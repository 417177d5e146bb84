"""What drafting could have gained by what its drafts believed: recorded rounds replayed by one who knows how often ids of such a belief
are right, but not which.

Stands between a policy and the oracle: what it lacks to the oracle the drafts cannot tell, what a policy lacks to it the policy may gain.
Arithmetic on beliefs and costs; knows no engine and no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final

from uad.bench.measure import Round
from uad.bench.oracle import Costs, Machine

_N_BINS: Final = 12  # of about equally many ids
_REFINEMENTS: Final = 5  # of the exchange rate between ids and milliseconds


class Hindsight:
    """From a belief to the share of such ids that were right, over all rounds; in bins, counted with one that was half right."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        judged = sorted((belief, k < one.n_accepted) for one in rounds for k, belief in enumerate(one.beliefs[: one.n_accepted + 1]))
        size = max(-(-len(judged) // _N_BINS), 1)
        bins: list[list[tuple[float, bool]]] = [[]]
        for belief, right in judged:
            if len(bins[-1]) >= size and belief > bins[-1][-1][0]:  # equal ones stay together
                bins.append([])
            bins[-1].append((belief, right))
        self._starts = [one[0][0] if one else 0.0 for one in bins]
        self._shares = [(sum(right for _, right in one) + 0.5) / (len(one) + 1) for one in bins]

    def share(self, belief: float) -> float:
        """Of the bin in which this belief lies."""
        return self._shares[max(bisect_right(self._starts, belief) - 1, 0)]


def speed_up(rounds: Sequence[Round], depth: int, costs: Costs, plain_ms: float, known: Hindsight) -> float:
    """How many times faster than plain one sequence is, in rounds with long drafts. depth, plain_ms: as for the oracle.

    In every round the length is taken whose ids, at the best rate for this text, are worth most beyond their cost; none is one of them.
    """
    n_ids = sum(one.n_ids for one in rounds)
    if not n_ids or plain_ms <= 0:
        raise ValueError("foresight needs at least one id and the time that plain decoding took")
    machine = Machine.anchored(costs, [n_ids], depth, plain_ms)
    chances = [[known.share(belief) for belief in one.beliefs] for one in rounds]
    best = spent = plain_ms
    for _ in range(_REFINEMENTS):
        spent = _replay(rounds, chances, depth, machine, spent / n_ids)
        best = min(best, spent)
    return plain_ms / best


def _replay(rounds: Sequence[Round], chances: Sequence[list[float]], depth: int, machine: Machine, ms_per_id: float) -> float:
    total = 0.0
    for one, its_chances in zip(rounds, chances, strict=True):
        at = 0
        while at < one.n_ids:
            ids = list(accumulate(accumulate(its_chances[at:], mul), initial=1.0))
            ms = [machine.round_ms([n + 1], depth + at) for n in range(len(ids))]
            n = min(range(len(ids)), key=lambda n: ms[n] - ms_per_id * ids[n])
            total += ms[n]
            at += min(max(min(n, one.n_accepted - at), 0) + 1, one.n_ids - at)
        depth += one.n_ids
    return total
