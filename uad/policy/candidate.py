"""The guesses that compete for a sequence's rows in a round, and how those of different drafters bear on each other. Arithmetic only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from uad.policy.evidence import beside, first_difference
from uad.policy.text import DISPUTED, Use
from uad.types import Draft, Origin

_MODEL: Final = Origin.MODEL  # members of an enum are slow to reach


class Candidate:
    """A drafter's guess for one sequence. chances are those of its ids, each given that all before it are right; gains[k] the ids expected
    to be accepted of the first k; saved_ms what it is expected to save at its best length, and shared_ms at the length that all of a group
    have in common (at first the same); lasting_ms what it would cost in round after round, price what it did cost; sure the share of its
    best length that is expected to be accepted."""

    def __init__(  # compiled, other than that of a dataclass
        self,
        origin: Origin,
        draft: Draft,
        chances: list[float],
        gains: list[float],
        saved_ms: float,
        lasting_ms: float,
        price: float,
        sure: float,
    ) -> None:
        self.origin = origin
        self.draft = draft
        self.chances = chances
        self.gains = gains
        self.saved_ms = self.shared_ms = saved_ms
        self.lasting_ms = lasting_ms
        self.price = price
        self.sure = sure

    @property
    def value(self) -> float:
        """Milliseconds that such a guess promises to save; in a group, if its neighbours' were like it."""
        return self.saved_ms - self.lasting_ms

    @property
    def worth(self) -> float:
        """Milliseconds that asking for it is expected to have saved."""
        return self.shared_ms - self.lasting_ms


def gains_of(chances: list[float]) -> list[float]:
    """Ids expected to be accepted of the first k, by k."""
    gains, total, p = [0.0, *chances], 0.0, 1.0
    for k in range(1, len(gains)):
        p *= gains[k]
        total += p
        gains[k] = total
    return gains


def compare(candidates: Sequence[Candidate], uses: Mapping[Origin, Use]) -> None:
    """Change the gains of the draft model's guess by the best of those that were looked up, and of those by the model's."""
    models = [one for one in candidates if one.origin is _MODEL]
    others = [one for one in candidates if one.origin is not _MODEL]
    if not models or not others:
        return
    model, best = models[0], max(others, key=lambda one: one.value)
    for one in others:
        use, differ = uses[one.origin], first_difference(one.draft.ids, model.draft.ids)
        trust = use.odds_of(DISPUTED).value
        if one is best:
            model.gains = gains_of(beside(model.chances, one.chances, differ, its_trust=trust))
        chances = beside(one.chances, model.chances, differ, trust)
        one.gains = gains_of(chances)
        if differ >= 0:
            p = chances[differ]
            use.dispute(differ, p / (p + trust * (1.0 - p)))  # as if nothing had been learned: by that it is judged


def best_of(candidates: Sequence[Candidate], k: int) -> Candidate:
    """The guess that gains most with k rows."""
    return candidates[0] if len(candidates) == 1 else max(candidates, key=lambda one: one.gains[min(k, len(one.gains) - 1)])


def merged(guesses: Sequence[list[float]], merge: Callable[[Sequence[float]], float]) -> list[float]:
    """Gains of several guesses together, by length; beyond its end a guess gains no more."""
    if len(guesses) == 1:
        return guesses[0]
    longest = max([len(gains) for gains in guesses], default=1)
    return [merge(by_length) for by_length in zip(*[gains + gains[-1:] * (longest - len(gains)) for gains in guesses])] or [0.0]
