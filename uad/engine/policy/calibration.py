"""From a drafter's belief to the probability that the target accepts the id, learned online. Arithmetic only.

Beliefs are counted in bins, narrow near certainty, where most rows are spent. A bin's first guess is Platt scaling: a
straight line from the log-odds of the belief to those of acceptance, fitted to all bins together. It detects an
overconfident draft in a few ids; the bins learn the shape of the curve.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log
from typing import Final

_EDGES: Final = (
    *(0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    *(0.87, 0.92, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9997),
)
# Of each bin, the log-odds of its centre.
_LOGITS: Final = tuple(min(log((a + b) / (2 - a - b)), 8.0) for a, b in pairwise((0.0, *_EDGES, 1.0)))
_KEPT: Final = 0.998  # of a bin's evidence, per new observation in it: it forgets over some 500
_PRIOR: Final = 3.0  # observations that the line counts for in each bin
_FIRST_SLOPE: Final = 0.75  # of the line: the beliefs of an unknown draft are discounted
_FIRST_SHIFT: Final = -0.7
_SLOPE_RATE: Final = 0.01  # of the gradient of the log-likelihood, per observation
_SHIFT_RATE: Final = 0.06
_NEXT_RATE: Final = 0.05  # of what follows an id of a bin, per observation


def bin_of(belief: float) -> int:
    """Which bin a belief is in, counted from 0."""
    return bisect(_EDGES, belief)


@dataclass(slots=True)
class Calibration:
    """One kind of draft. Beliefs and probabilities are of one id, given that all before it were accepted."""

    n: list[float] = field(default_factory=lambda: [0.0] * len(_LOGITS))
    """Ids judged, by bin."""
    accepted: list[float] = field(default_factory=lambda: [0.0] * len(_LOGITS))
    predicted: list[float] = field(default_factory=lambda: [0.0] * len(_LOGITS))
    """The sum of the probabilities with which they were expected to be accepted."""
    slope: float = _FIRST_SLOPE
    shift: float = _FIRST_SHIFT
    following: list[float] = field(default_factory=lambda: [-1.0] * len(_LOGITS))
    """By bin, the mean probability of the id after one of it in the same draft; -1: unknown."""
    _chances: list[float] = field(default_factory=lambda: [-1.0] * len(_LOGITS))

    def chance(self, i: int) -> float:
        """Probability that an id is accepted whose belief is in bin i; worked out when first asked for after a
        verdict.
        """
        p = self._chances[i]
        if p < 0.0:
            p = self._chances[i] = self._worked_out(i)
        return p

    def _worked_out(self, i: int) -> float:
        prior = 1.0 / (1.0 + exp(-self.slope * _LOGITS[i] - self.shift))
        return (self.accepted[i] + _PRIOR * prior) / (self.n[i] + _PRIOR)

    def next_chance(self, i: int) -> float:
        """Expected probability of the id after one of bin i: as its own, before anything is known."""
        p = self.following[i]
        return p if p >= 0.0 else self.chance(i)

    def judge(self, bins: list[int], n_right: int) -> None:
        """Ids of these bins were judged in turn: the first n_right accepted, one after them, if there is one,
        rejected.
        """
        n, accepted, slope, shift = self.n, self.accepted, self.slope, self.shift
        for k, i in enumerate(bins[: n_right + 1]):
            right = 1.0 if k < n_right else 0.0
            self.predicted[i] = self.predicted[i] * _KEPT + self.chance(i)
            error = right - 1.0 / (1.0 + exp(-slope * _LOGITS[i] - shift))
            n[i] = n[i] * _KEPT + 1.0
            accepted[i] = accepted[i] * _KEPT + right
            slope += _SLOPE_RATE * error * _LOGITS[i]
            shift += _SHIFT_RATE * error
        self.slope, self.shift = max(slope, 0.0), shift
        self._chances = [-1.0] * len(_LOGITS)

    def drafted(self, bins: list[int]) -> None:
        """A draft of these bins was made: learn which bins follow each other, whether its ids are right or wrong."""
        for before, i in pairwise(bins):
            known = self.next_chance(before)
            self.following[before] = known + _NEXT_RATE * (self.chance(i) - known)
