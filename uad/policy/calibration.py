"""From a drafter's belief to the probability that the target agrees, learned online. Arithmetic only.

Three layers, each the prior of the next: a straight line from log-odds to log-odds for all of a kind (Platt's scaling; finds a liar out in
a few ids), bins of belief (learn the shape), and a shift of the odds per text (code, then prose).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import copysign, exp, log
from typing import Final

from uad.policy.bins import CENTRES, N_BINS, bin_of
from uad.policy.outlook import Outlook, TextRun

_KEPT: Final = 0.998  # of the evidence of a bin, per new observation in it: it forgets over some 500
_LESSONS: Final = 8  # ids of a kind that are only compared with the text before one is submitted
_ALL_RIGHT: Final = 3  # of them suffice if no other was wrong
_BIN_PRIOR: Final = 3.0  # observations
_LOGITS: Final[tuple[float, ...]] = tuple(min(log(c / (1 - c)), 8.0) for c in CENTRES)
_FIRST_SLOPE: Final = 0.75  # an unknown draft is not taken at its word
_FIRST_SHIFT: Final = -0.7
_SLOPE_RATE: Final = 0.01  # of the gradient of the log-likelihood, per observation
_SHIFT_RATE: Final = 0.06
_LEAST_SLOPE: Final = 0.0
_MOST_SLOPE: Final = 1.3
_LEAST_SHIFT: Final = -6.0
_MOST_SHIFT: Final = 3.0
_TEXT_PRIOR: Final = 1.0  # precision of the shift's prior
_TEXT_KEPT: Final = 0.96
_LEAST_TEXT_SHIFT: Final = -4.0
_MOST_TEXT_SHIFT: Final = 1.0

_UNASKED: Final = -1.0


def log_odds(p: float) -> float:
    """ln(p / (1 - p)), between -8 and 8."""
    return min(max(log(p / (1.0 - p)), -8.0), 8.0) if 0.0 < p < 1.0 else copysign(8.0, p - 0.5)


@dataclass(slots=True)
class TextOdds:
    """By what factor the odds that this text's drafts are accepted differ from those of their kind.

    Its logarithm is a shift with a normal prior, moved by one step of Newton's method per judged id; what an id tells is forgotten over
    some 25. That ids are rejected which were hardly expected tells little, other than in a ratio of rejections to expected ones.
    """

    shift: float = 0.0
    known: float = 0.0
    value: float = 1.0

    def judge(self, predicted: list[float], n_right: int) -> None:
        """Ids of these probabilities, by their kind, were judged in turn: the first n_right accepted, one behind them, if any, not."""
        shift, known, odds = self.shift, self.known, self.value
        for k in range(min(n_right + 1, len(predicted))):
            p = predicted[k]
            p = p * odds / (1.0 + p * (odds - 1.0))
            known = known * _TEXT_KEPT + p * (1.0 - p)
            shift += ((1.0 if k < n_right else 0.0) - p) / (known + _TEXT_PRIOR)
        self.known = known
        self.shift = shift = min(max(shift, _LEAST_TEXT_SHIFT), _MOST_TEXT_SHIFT)
        self.value = exp(shift)


@dataclass(frozen=True, slots=True)
class Reliability:
    """One bin of a reliability diagram: what was believed, predicted and seen on average, over n ids (forgotten ones left out)."""

    belief: float
    predicted: float
    observed: float
    n: float


@dataclass(slots=True)
class Calibration:
    """One kind of draft. Beliefs and probabilities are of one id, given that all before it were accepted.

    A kind that is a variety of another ("suffix/answers" of "suffix") has that one's probabilities as its first guess.
    """

    n: list[float] = field(default_factory=lambda: [0.0] * N_BINS)
    accepted: list[float] = field(default_factory=lambda: [0.0] * N_BINS)
    predicted: list[float] = field(default_factory=lambda: [0.0] * N_BINS)
    outlook: Outlook = field(default_factory=lambda: Outlook())
    slope: float = _FIRST_SLOPE
    shift: float = _FIRST_SHIFT
    n_judged: int = 0
    n_wrong: int = 0
    parent: Calibration | None = None
    _chances: list[float] = field(default_factory=lambda: [_UNASKED] * N_BINS)

    @property
    def is_unknown(self) -> bool:
        """Whether too little was seen to stake a row on it."""
        return self.n_judged < (_LESSONS if self.n_wrong else _ALL_RIGHT) and (self.parent is None or self.parent.is_unknown)

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.slope, self.shift = 1.0, 0.0

    def logit(self, i: int) -> float:
        """Log-odds of bin i that the line starts from: those of the belief, or what the parent makes of it."""
        return _LOGITS[i] if self.parent is None else log_odds(self.parent.chance(i))

    def chance(self, i: int) -> float:
        """Probability that an id is accepted whose belief is in bin i; worked out when first asked for after a verdict."""
        p = self._chances[i]
        if p < 0.0:
            prior = 1.0 / (1.0 + exp(-self.slope * self.logit(i) - self.shift))
            p = self._chances[i] = (self.accepted[i] + _BIN_PRIOR * prior) / (self.n[i] + _BIN_PRIOR)
        return p

    def chances_of(self, bins: list[int]) -> list[float]:
        """The same for several, mostly without a call for each."""
        chances = self._chances
        return [chances[i] if chances[i] >= 0.0 else self.chance(i) for i in bins]

    def probability(self, belief: float) -> float:
        """`chance` of the bin of this belief."""
        return self.chance(bin_of(belief))

    def observe(self, belief: float, accepted: bool) -> None:
        """An id of this belief, all before it accepted, was accepted or not."""
        self.judge([bin_of(belief)], int(accepted))

    def judge(self, bins: list[int], n_right: int) -> list[float]:
        """Ids of these bins were judged in turn: the first n_right accepted, one behind them, if there is one, rejected.

        Returns with what probability each was expected to be accepted.
        """
        n, accepted, predicted, slope, shift = self.n, self.accepted, self.predicted, self.slope, self.shift
        expected = []
        for k in range(min(n_right + 1, len(bins))):
            i, right = bins[k], 1.0 if k < n_right else 0.0
            logit, n_bin, n_accepted = self.logit(i), n[i], accepted[i]
            prior = 1.0 / (1.0 + exp(-slope * logit - shift))
            p = (n_accepted + _BIN_PRIOR * prior) / (n_bin + _BIN_PRIOR)
            n[i] = n_bin * _KEPT + 1.0
            accepted[i] = n_accepted * _KEPT + right
            predicted[i] = predicted[i] * _KEPT + p
            slope += _SLOPE_RATE * (right - prior) * logit
            shift += _SHIFT_RATE * (right - prior)
            expected.append(p)
        self.slope = min(max(slope, _LEAST_SLOPE), _MOST_SLOPE)
        self.shift = min(max(shift, _LEAST_SHIFT), _MOST_SHIFT)
        self.n_judged += len(expected)
        self.n_wrong += n_right < len(expected)
        self._chances = [_UNASKED] * N_BINS
        return expected

    def drafted(self, bins: list[int], run: TextRun) -> None:
        """A draft of these bins was made, right or wrong, for a text of which `run` is known."""
        following, chances, expected, found, n = self.outlook.following, self._chances, 0.0, 0.0, len(bins)
        for k in range(1, n):
            i = bins[k]
            expected += following[bins[k - 1]]
            found += chances[i] if chances[i] >= 0.0 else self.chance(i)
        if n > 1:
            run.saw(n - 1, expected, found)
        if self.outlook.saw(bins):
            self.outlook.renew([self.chance(i) for i in range(N_BINS)])

    def reliability(self) -> list[Reliability]:
        """The bins that have seen something."""
        rows = zip(CENTRES, self.predicted, self.accepted, self.n, strict=True)
        return [Reliability(belief, predicted / n, accepted / n, n) for belief, predicted, accepted, n in rows if n > 0]
