"""What drafts promise further on, from how they went so far: a chain over bins of belief, with an exponent per text. Arithmetic only."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import sqrt
from typing import Final

from uad.policy.bins import CENTRES, N_BINS

HORIZON: Final = 12  # ids
_SURE: Final = 0.9  # probability of acceptance of an id with which a draft stays sure
_STAY_PRIOR: Final = 2.0  # observations of an id followed by one of the same bin
_MOVE_KEPT: Final = 0.995
_FEWEST: Final = 1  # drafts between two looks at the moves
_MOST: Final = 128
_EXPONENTS: Final[tuple[float, ...]] = (0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 2.5)
_BETWEEN: Final[tuple[float, ...]] = tuple(sqrt(a * b) for a, b in pairwise(_EXPONENTS))
USUAL: Final = _EXPONENTS.index(1.0)
_UNASKED: Final[list[float]] = []
_RUN_PRIOR: Final = 0.1  # of an id lost
_RUN_KEPT: Final = 0.87


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


@dataclass(slots=True)
class Stay:
    """What comes of going on as long as a draft is sure, for 1 to HORIZON further ids: with what chance all of them are sure, how many are
    accepted then (n_right), and how many are drafted if the first that is not sure ends it (n_drafted)."""

    chance: list[float] = field(default_factory=list)
    n_right: list[float] = field(default_factory=list)
    n_drafted: list[float] = field(default_factory=list)

    def raised(self, exponent: float) -> Stay:
        """In a text that loses confidence by that much sooner (or later)."""
        chance = [one**exponent for one in self.chance]
        return Stay(chance, self.n_right, list(accumulate([1.0, *chance[:-1]])))


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
        self._ahead: list[list[float]] = []  # by level and bin; empty until asked for
        self._stays: list[Stay | None] = []  # by level and bin, once they were asked for
        self._runs: list[tuple[list[float], list[float]]] = []  # what those are made of; empty until asked for
        self.renew(list(CENTRES))

    def saw(self, bins: list[int]) -> bool:
        """One more draft; True if it is time to renew."""
        moves, weight = self._moves, self._weight
        for k in range(1, len(bins)):
            a, b = bins[k - 1], bins[k]
            row, w = moves[a], weight[a]
            row[b] = row[b] + w  # in-place operators on items are not compiled to machine arithmetic
            weight[a] = w / _MOVE_KEPT
        self._n_drafts += 1
        if self._n_drafts < self._next:
            return False
        self._n_drafts, self._next = 0, min(2 * self._next, _MOST)
        return True

    def ahead(self, level: int, i: int) -> list[float]:
        """[h]: how many of the next h + 1 ids behind one of bin i are expected to be accepted, given that it is, in a text of that level
        (`TextRun`)."""
        ahead = self._ahead[level * N_BINS + i]
        if not ahead:
            exponent = _EXPONENTS[level]
            ahead = self._ahead[level * N_BINS + i] = list(accumulate([product[i] ** exponent for product in self._products]))
        return ahead

    def stay(self, level: int, i: int) -> Stay:
        """What comes of going on behind an id of bin i while the draft is sure, in a text of that level."""
        stay = self._stays[level * N_BINS + i]
        if stay is None:
            stay = self._usual_stay(i) if level == USUAL else self.stay(USUAL, i).raised(_EXPONENTS[level])
            self._stays[level * N_BINS + i] = stay
        return stay

    def renew(self, p: list[float]) -> None:
        """Work the moves so far, and the probability of acceptance in each bin, into what is expected."""
        self._p = p
        self._rows = rows = [self._shares(i, p) for i in range(N_BINS)]
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
        self._ahead = [_UNASKED] * (len(_EXPONENTS) * N_BINS)
        self._stays = [None] * (len(_EXPONENTS) * N_BINS)
        self._runs = []
        self.following = self._products[0]

    def _shares(self, i: int, p: list[float]) -> list[tuple[int, float]]:
        """(bin, probability that the next id is of that bin and accepted), the improbable left out."""
        weight = self._weight[i]
        self._moves[i] = row = [n / weight for n in self._moves[i]]
        self._weight[i] = 1.0
        total = sum(row) + _STAY_PRIOR
        return [(j, (n + (_STAY_PRIOR if i == j else 0.0)) / total * p[j]) for j, n in enumerate(row) if n or i == j]

    def _usual_stay(self, i: int) -> Stay:
        self._runs = self._runs or self._sure_runs()
        one, n_drafted = Stay(), 1.0
        for h in range(HORIZON):
            sure, right = self._runs[h]
            chance, its_right = self._behind(i, sure, right)
            all_right = its_right / chance if chance > 0.0 else 0.0
            each = all_right ** (1.0 / (h + 1))
            one.chance.append(chance)
            one.n_drafted.append(n_drafted)
            one.n_right.append(each * (1.0 - all_right) / (1.0 - each) if each < 1.0 else h + 1.0)
            n_drafted += chance
        return one

    def _sure_runs(self) -> list[tuple[list[float], list[float]]]:
        """[h]: by bin, of the sure ones, that the h ids behind one of it are all sure, and that they are accepted, too."""
        sure = [i for i in range(N_BINS) if self._p[i] >= _SURE]
        runs = [([1.0] * N_BINS, [1.0] * N_BINS)]
        for h in range(HORIZON - 1):
            stays, rights = [0.0] * N_BINS, [0.0] * N_BINS
            last_stays, last_rights = runs[h]
            for i in sure:
                stays[i], rights[i] = self._behind(i, last_stays, last_rights)
            runs.append((stays, rights))
        return runs

    def _behind(self, i: int, stays: list[float], rights: list[float]) -> tuple[float, float]:
        """That a sure id, and such a run behind it, follows one of bin i; and that all of that is accepted, too."""
        p, sure, right = self._p, 0.0, 0.0
        for j, share in self._rows[i]:
            if p[j] >= _SURE:
                sure += share / p[j] * stays[j]
                right += share * rights[j]
        return sure, right
