"""From a drafter's belief to the probability that the target agrees, learned online. Arithmetic only.

Three layers, each the prior of the next: a straight line from log-odds to log-odds for all of a kind (Platt's scaling; finds a liar out in
a few ids), bins of belief (learn the shape), and a shift of the odds per text (code, then prose). What drafts promise further on is a chain
over bins, with an exponent per text.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import copysign, exp, log, sqrt
from typing import Final

EDGES: Final[tuple[float, ...]] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9997)
N_BINS: Final = len(EDGES) + 1
_CENTRES: Final[tuple[float, ...]] = tuple((a + b) / 2 for a, b in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True))

_KEPT: Final = 0.998  # of the evidence of a bin, per new observation in it: it forgets over some 500
_LESSONS: Final = 8  # ids of a kind that are only compared with the text before one is submitted
_ALL_RIGHT: Final = 3  # of them suffice if no other was wrong
_BIN_PRIOR: Final = 3.0  # observations
_LOGITS: Final[tuple[float, ...]] = tuple(min(log(c / (1 - c)), 8.0) for c in _CENTRES)
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

HORIZON: Final = 12  # ids
SURE_ID: Final = 0.9
_NEARLY_ONE: Final = 1 - 1e-9
_STAY_PRIOR: Final = 2.0  # observations of an id followed by one of the same bin
_MOVE_KEPT: Final = 0.995
_FEWEST: Final = 1  # drafts between two looks at the moves
_MOST: Final = 128
_EXPONENTS: Final[tuple[float, ...]] = (0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 2.5)
_BETWEEN: Final[tuple[float, ...]] = tuple(sqrt(a * b) for a, b in pairwise(_EXPONENTS))
USUAL: Final = _EXPONENTS.index(1.0)
_RUN_PRIOR: Final = 0.1  # of an id lost
_RUN_KEPT: Final = 0.87


def bin_of(belief: float) -> int:
    """0 to N_BINS - 1."""
    return bisect_right(EDGES, belief)


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


@dataclass(slots=True)
class TextRun:
    """How much sooner than usual this text's drafts lose confidence: what was lost from id to id, by what the outlook says is.

    `level` is the exponent on the outlook's probabilities that fits. It follows a text within some ten ids: where the drafts of a copy are
    cut to three ids because prose was drafted before, it is the only thing that can tell that they would go on.
    """

    lost: float = 0.0
    expected: float = 0.0
    level: int = USUAL

    def saw(self, n: int, expected: float, found: float) -> None:
        """n ids of a draft behind its first: how many were expected to be accepted, and how many are by what was found then."""
        kept = _RUN_KEPT**n
        self.lost = self.lost * kept + n - found
        self.expected = self.expected * kept + n - expected
        self.level = bisect_right(_BETWEEN, (self.lost + _RUN_PRIOR) / (self.expected + _RUN_PRIOR))


@dataclass(frozen=True, slots=True)
class Reliability:
    """One bin of a reliability diagram: what was believed, predicted and seen on average, over n ids (forgotten ones left out)."""

    belief: float
    predicted: float
    observed: float
    n: float


class Outlook:
    """What follows what in drafts: moves between bins of belief, and the acceptance that they promise further on.

    A chain over bins, not over averages: a draft that is sure stays sure for a while, or is not sure at all.
    """

    def __init__(self) -> None:
        self._moves = [[0.0] * N_BINS for _ in range(N_BINS)]
        self._weight = [1.0] * N_BINS
        self._n_drafts = 0
        self._next = _FEWEST
        self._products: list[list[float]] = []  # [h][i]: probability that h + 1 ids behind one of bin i are accepted, given that that is
        self.following: list[float] = []  # the first of them
        self._ahead: list[list[list[float]]] = []  # by level; empty until asked for
        self._kept: list[list[tuple[float, float]]] = []  # [i][h]: probability that h + 1 ids are sure, and of them that all are right
        self._sure: list[list[list[tuple[float, float, float]]]] = []  # by level; empty until asked for
        self.renew(list(_CENTRES))

    def saw(self, bins: list[int]) -> bool:
        """One more draft; True if it is time to renew."""
        moves, weight = self._moves, self._weight
        for k in range(1, len(bins)):
            a, b = bins[k - 1], bins[k]
            moves[a][b] += weight[a]
            weight[a] /= _MOVE_KEPT
        self._n_drafts += 1
        if self._n_drafts < self._next:
            return False
        self._n_drafts, self._next = 0, min(2 * self._next, _MOST)
        return True

    def ahead(self, level: int) -> list[list[float]]:
        """[i][h]: how many of the next h + 1 ids behind one of bin i are expected to be accepted, given that it is, in a text of that level
        (`TextRun`)."""
        if not self._ahead[level]:
            exponent = _EXPONENTS[level]
            self._ahead[level] = [list(accumulate([product[i] ** exponent for product in self._products])) for i in range(N_BINS)]
        return self._ahead[level]

    def sure(self, level: int) -> list[list[tuple[float, float, float]]]:
        """[i][h]: the probability that the h + 1 ids behind one of bin i are all sure, in a text of that level; how many of them are then
        expected to be accepted; and how many are expected to be drafted, if the first that is not sure ends the draft."""
        if not self._sure[level]:
            exponent = _EXPONENTS[level]
            self._sure[level] = [self._sure_of(kept, exponent) for kept in self._kept]
        return self._sure[level]

    @staticmethod
    def _sure_of(kept: list[tuple[float, float]], exponent: float) -> list[tuple[float, float, float]]:
        out: list[tuple[float, float, float]] = []
        n_drafted, last = 0.0, 1.0
        for h, (share, right) in enumerate(kept):
            n_drafted += last
            last = share**exponent
            each = right ** (1 / (h + 1))
            n_right = each * (1.0 - right) / (1.0 - each) if each < _NEARLY_ONE else h + 1.0
            out += ((last, n_right, n_drafted),)
        return out

    def renew(self, p: list[float]) -> None:
        """Work the moves so far, and the probability of acceptance in each bin, into what is expected."""
        rows = [self._shares(i, p) for i in range(N_BINS)]
        self._products, last = [], [1.0] * N_BINS
        for _ in range(HORIZON):
            product = []
            for row in rows:
                total = 0.0
                for j, share in row:
                    total += share * last[j]
                product.append(total)
            self._products.append(product)
            last = product
        sure = [[(j, share / p[j], share) for j, share in row if p[j] >= SURE_ID] for row in rows]  # bin, its share, and of that accepted
        self._kept = [[] for _ in range(N_BINS)]
        last, right = [1.0] * N_BINS, [1.0] * N_BINS
        for _ in range(HORIZON):
            stays: list[float] = []
            rights: list[float] = []
            for stay, kept in zip(sure, self._kept):
                total = its_right = 0.0
                for j, to_j, accepted in stay:
                    total += to_j * last[j]
                    its_right += accepted * right[j]
                stays += (total,)
                rights += (its_right,)
                kept += ((total, its_right / total if total > 0 else 0.0),)
            last, right = stays, rights
        self._ahead = [[] for _ in _EXPONENTS]
        self._sure = [[] for _ in _EXPONENTS]
        self.following = self._products[0]

    def _shares(self, i: int, p: list[float]) -> list[tuple[int, float]]:
        """(bin, probability that the next id is of that bin and accepted), the improbable left out."""
        weight = self._weight[i]
        self._moves[i] = row = [n / weight for n in self._moves[i]]
        self._weight[i] = 1.0
        total = sum(row) + _STAY_PRIOR
        return [(j, (n + (_STAY_PRIOR if i == j else 0.0)) / total * p[j]) for j, n in enumerate(row) if n or i == j]


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
        return self.chance(bisect_right(EDGES, belief))

    def observe(self, belief: float, accepted: bool) -> None:
        """An id of this belief, all before it accepted, was accepted or not."""
        self.judge([bisect_right(EDGES, belief)], int(accepted))

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
        n_moves = len(bins) - 1
        if n_moves > 0:
            following = self.outlook.following
            run.saw(n_moves, sum([following[i] for i in bins[:-1]]), sum(self.chances_of(bins[1:])))
        if self.outlook.saw(bins):
            self.outlook.renew([self.chance(i) for i in range(N_BINS)])

    def reliability(self) -> list[Reliability]:
        """The bins that have seen something."""
        rows = zip(_CENTRES, self.predicted, self.accepted, self.n, strict=True)
        return [Reliability(belief, predicted / n, accepted / n, n) for belief, predicted, accepted, n in rows if n > 0]
