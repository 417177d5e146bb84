"""What drafting could have gained by what its drafts believed: recorded rounds replayed by a policy that knows how
often ids of such a belief are right, but not which.

Stands between a policy and the oracle: what it lacks to the oracle the drafts cannot show, what a policy lacks to it
the policy may gain. Arithmetic on beliefs and costs; knows no engine and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Final

from hindsight import Hindsight
from oracle import Costs, Machine, Round

_REFINEMENTS: Final = 5  # of the exchange rate between ids and milliseconds


def hindsight_of(rounds: Sequence[Round]) -> Hindsight:
    """What is known of the beliefs of these rounds: of the ids that were right, and of the first that was not."""
    return Hindsight(
        (belief, k < one.n_accepted) for one in rounds for k, belief in enumerate(one.beliefs[: one.n_accepted + 1])
    )


def speed_up(rounds: Sequence[Round], depth: int, costs: Costs, plain_ms: float, known: Hindsight) -> float:
    """How many times faster than plain one sequence is, in rounds with long drafts. depth, plain_ms: as for the oracle.

    In every round the length is taken whose ids, at the best rate for this text, are worth most beyond their cost; none
    is one of them.
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


def _replay(
    rounds: Sequence[Round], chances: Sequence[list[float]], depth: int, machine: Machine, ms_per_id: float
) -> float:
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
