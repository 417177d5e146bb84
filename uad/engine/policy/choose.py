"""How many rows a round submits, and whether a draft goes on: pure functions of probabilities and costs.

A round brings one id of each sequence, and what is accepted of the drafts. The best number of rows is the one with the
most ids per millisecond, all that was spent on drafts included.

An example: a draft whose ids are accepted with probabilities of 0.9, 0.8 and 0.5, given that those before them were.
Its first k ids are expected to bring 0.9, 0.9 + 0.72 and 0.9 + 0.72 + 0.36 ids. Passes of 1 to 4 rows take 10, 12, 14
and 20 ms. That is 1 / 10, 1.9 / 12, 2.62 / 14 and 2.98 / 20 ids per ms: three rows are best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import Final

# Times the rate without drafts. On a curve on which single rows seem too expensive every guess would be submitted, and
# what they really cost never seen: a simulated machine with spikes locked itself in at 0.92 of plain decoding.
CLEAR: Final = 1.03


def gains_of(chances: Sequence[float]) -> list[float]:
    """Ids expected to be accepted of the first k, by k; chances: of each, given that all before it are accepted."""
    return list(accumulate(accumulate(chances, mul), initial=0.0))


def merged(guesses: Sequence[list[float]], merge: Callable[[Sequence[float]], float]) -> list[float]:
    """Gains of several guesses together, by length; beyond its end a guess gains no more."""
    if len(guesses) == 1:
        return guesses[0]
    longest = max(map(len, guesses), default=1)
    padded = [gains + gains[-1:] * (longest - len(gains)) for gains in guesses]
    return [merge(by_length) for by_length in zip(*padded, strict=True)] or [0.0]


def rows_of(
    gains: Sequence[Sequence[float]], costs: Sequence[Sequence[float]], n_writing: int, spent_ms: float = 0.0
) -> list[int]:
    """Rows of each sequence, by group of sequences that share passes. 1: no drafts.

    gains[g][k]: ids expected of group g beyond one of each sequence, with k drafted rows of each. costs[g][n]:
    milliseconds of n rows of each. n_writing: sequences in all groups. spent_ms: on drafts, whatever is submitted.

    The number of rows of each group is free, the rate is of all together: Dinkelbach's iteration. At a given rate an id
    is worth 1 / rate milliseconds; each group takes the rows with the most ids beyond what their time is worth. That
    raises the rate, until it stays.
    """
    rows, ms = [1] * len(gains), spent_ms + sum([cost[1] for cost in costs])
    if ms <= 0:
        return rows
    rate = CLEAR * n_writing / ms
    while True:
        better, ids, ms = [], float(n_writing), spent_ms
        for gain, cost in zip(gains, costs, strict=True):
            worth = [ids_ - rate * ms_ for ids_, ms_ in zip(gain, cost[1:], strict=False)]
            n = worth.index(max(worth)) + 1
            better.append(n)
            ids += gain[n - 1]
            ms += cost[n]
        if ms <= 0 or ids <= rate * ms * (1 + 1e-9):  # no better but for rounding
            return rows
        rows, rate = better, ids / ms


def may_continue(
    hopes: Sequence[float],
    ahead: Sequence[float],
    costs: Sequence[float],
    n_writing: int,
    spent_ms: float,
    step_ms: float,
) -> bool:
    """Whether a draft is expected to become worth more than it is, though further steps cost time.

    hopes: ids expected of each step so far, of all sequences together; ahead: of the next ones. costs[k]: milliseconds
    of the decode of what k steps wrote; step_ms: of a further step. spent_ms: on drafts so far.
    """
    ids, best = float(n_writing), n_writing / (costs[0] + spent_ms)
    for hope, cost in zip(hopes, costs[1:], strict=False):
        ids += hope
        if ids > best * (cost + spent_ms):
            best = ids / (cost + spent_ms)
    for hope, cost in zip(ahead, costs[len(hopes) + 1 :], strict=False):
        spent_ms += step_ms
        ids += hope
        if ids > best * (cost + spent_ms):
            return True
    return False
