"""What two drafts of the same text say about each other. Arithmetic only.

The draft model and what looks texts up go by different evidence. Where they propose the same id, a wrong one would have had to be the same
wrong one; where they do not, at most one of them is right. Both follow from Bayes' rule for two witnesses who err independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SAME_ERROR: Final = 0.2  # of two wrong guesses, how many are alike: fits 1,900 ids of both draft models, greedy and at temperature 1
_MOST: Final = 0.9999


def beside(ids: Sequence[int], chances: list[float], its_ids: Sequence[int], its_chances: list[float]) -> list[float]:
    """The chances of a draft's ids, each given that all before it are right, now that another draft is known, too."""
    out = list(chances)
    for k in range(min(len(ids), len(its_ids))):
        odds, its_odds = _odds(chances[k]), _odds(its_chances[k])
        if ids[k] != its_ids[k]:
            out[k] = odds / (odds + its_odds + 1.0 - _SAME_ERROR)
            break
        odds *= max(its_odds / _SAME_ERROR, 1.0)  # that an unsure one says the same does not speak against it
        out[k] = odds / (1.0 + odds)
    return out


def _odds(p: float) -> float:
    return p / (1.0 - p) if p < _MOST else _MOST / (1.0 - _MOST)
