"""How many ids guesses are expected to bring, by their length: of one guess, of several, and which length is best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from uad.types import Draft, Origin

_PREDICTION: Final = Origin.PREDICTION  # members of an enum are slow to reach


class Candidate(NamedTuple):
    """A drafter's guess for one sequence. gains[k]: ids expected to be accepted of the first k; price_ms: what asking
    for it cost; value: milliseconds that it is expected to save at its best length, less the price; sure: the share of
    that length expected to be accepted.
    """

    origin: Origin
    draft: Draft
    gains: list[float]
    price_ms: float
    value: float
    sure: float


def gains_of(chances: list[float]) -> list[float]:
    """Ids expected to be accepted of the first k, by k."""
    gains, total, p = [0.0], 0.0, 1.0
    for chance in chances:
        p *= chance
        total += p
        gains.append(total)
    return gains


def best_of(candidates: Sequence[Candidate], k: int) -> Candidate:
    """The guess that gains most with k rows."""
    return (
        candidates[0]
        if len(candidates) == 1
        else max(candidates, key=lambda one: one.gains[min(k, len(one.gains) - 1)])
    )


def own_of(candidates: Sequence[Candidate], draft: Draft) -> Draft:
    """The same ids as the request's prediction has them, if it does: they count as its."""
    n = len(draft.ids)
    same = (one.draft for one in candidates if one.origin is _PREDICTION and one.draft.ids[:n] == draft.ids)
    own = next(same, None)
    return draft if own is None else own.first(n)


def merged(guesses: Sequence[list[float]], merge: Callable[[Sequence[float]], float]) -> list[float]:
    """Gains of several guesses together, by length; beyond its end a guess gains no more."""
    if len(guesses) == 1:
        return guesses[0]
    longest = max(map(len, guesses), default=1)
    padded = [gains + gains[-1:] * (longest - len(gains)) for gains in guesses]
    return [merge(by_length) for by_length in zip(*padded, strict=True)] or [0.0]


def best_level(gains: list[float], costs: list[float], rate: float) -> int:
    """Rows of each sequence with the most ids beyond what their time is worth at this rate."""
    worth = [gain - rate * cost for gain, cost in zip(gains, costs[1:], strict=False)]
    return worth.index(max(worth)) + 1
