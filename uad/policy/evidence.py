"""What two drafts of the same text say about each other. Arithmetic only: knows no drafter and no text.

The draft model and what looks texts up go by different evidence. Where they propose the same id, a wrong one would have had to be the same
wrong one; where they do not, at most one of them is right. Both follow from Bayes' rule for two witnesses who err independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SAME_ERROR: Final = 0.2  # of two wrong guesses, how many are alike: fits 1,900 ids of both draft models, greedy and at temperature 1
_MOST: Final = 0.9999


def first_difference(ids: Sequence[int], its_ids: Sequence[int]) -> int:
    """The place at which both drafts have an id for the first time that is not the same; -1 if there is none."""
    for k in range(min(len(ids), len(its_ids))):
        if ids[k] != its_ids[k]:
            return k
    return -1


def beside(chances: list[float], its_chances: list[float], differ: int, trust: float = 1.0, its_trust: float = 1.0) -> list[float]:
    """The chances of a draft's ids, each given that all before it are right, now that another draft is known, too.

    differ: where they differ first (-1: nowhere); what has been learned of such cases multiplies the odds there (trust).
    """
    out = list(chances)
    n = min(len(chances), len(its_chances))
    for k in range(n if differ < 0 else differ):
        # that an unsure one says the same does not speak against it
        odds = _odds(chances[k]) * max(_odds(its_chances[k]) / _SAME_ERROR, 1.0)
        out[k] = odds / (1.0 + odds)
    if differ >= 0:
        odds, its_odds = trust * _odds(chances[differ]), its_trust * _odds(its_chances[differ])
        out[differ] = odds / (odds + its_odds + 1.0 - _SAME_ERROR)
    return out


def _odds(p: float) -> float:
    return p / (1.0 - p) if p < _MOST else _MOST / (1.0 - _MOST)
