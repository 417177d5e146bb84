"""The ids that followed earlier occurrences of a draft's last ids, mixed into the model's probabilities. Knows no model
and no target.

A small model forgets names, and copies badly what it read long ago. So its distribution is mixed with a second one,
which is sure of what followed the longest earlier occurrence (kNN-LM with exact matches: Khandelwal et al., arXiv
1911.00172; compressors mix such "match models"). Unlike a drafter that looks texts up this decides id by id, in
mid-draft, too.
"""

from __future__ import annotations

from typing import Final

from uad.base.common.sequences import common_suffix
from uad.drafts.model.choosing import Recalled
from uad.drafts.model.mirror import Mirror

# ends of two ids in a row that are kept for comparing, the newest ones; the text's own end may be among them
_MOST_ENDS: Final = 8
_LONGEST_IDS: Final = 24  # ids compared
# of the match against the model, by its length: flat around the best
_ODDS: Final = tuple(0.01 * n**1.5 for n in range(_LONGEST_IDS + 1))
# factor by which the odds of an id that model and match agree on exceed those of the mixture: they are two sources
_AGREED: Final = 3.0
_DIFFERED: Final = 0.5


class Recall:
    """The earlier occurrences in one mirror."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._ends: dict[tuple[int, int], list[int]] = {}  # where two ids in a row end
        self._n = -1  # ids that the match at hand ends with
        self._at = 0  # of the id that followed it
        self._length = 0

    def start(self) -> None:
        """A draft begins: take in what was committed since the last one."""
        mirror, ids = self._mirror, self._mirror.ids
        n = mirror.n_within()
        if mirror.n_known == 0:
            self._ends.clear()
        for i in range(max(mirror.n_known, 1), n):
            ends = self._ends.setdefault((ids[i - 1], ids[i]), [])
            if len(ends) == _MOST_ENDS:
                del ends[0]
            ends.append(i)
        mirror.n_known = max(mirror.n_known, n)
        self._n = -1

    def find(self) -> Recalled | None:
        """The id that followed an earlier occurrence of the mirror's last ids: of the longest match, the newest."""
        self._match()
        return Recalled(self._mirror.ids[self._at], _ODDS[self._length]) if self._length else None

    def believed(self, id_: int, p: float) -> float:
        """How far an id is to be believed that was chosen from the mixture at hand with probability p."""
        if not self._length:
            return p
        odds = _AGREED if self._mirror.ids[self._at] == id_ else _DIFFERED
        return p * odds / (1.0 + p * (odds - 1.0))

    def _match(self) -> None:
        """Follow the match as long as the draft does, else look for the longest one.

        In "say hello world. no, world peace. say he" the last two ids "he" ended once before, after "say ", so what
        followed, "l", is recalled with 6 ids that agree. The draft writes "l": one step on, "l" again, and no search.
        It writes "X": nothing agrees, and the next two ids in a row are looked up again.
        """
        ids = self._mirror.ids
        n = len(ids)
        if self._length and self._n == n - 1 and ids[self._at] == ids[n - 1]:
            self._at, self._length = self._at + 1, min(self._length + 1, _LONGEST_IDS)
        else:
            self._length = 0
            for end in reversed(self._ends.get((ids[n - 2], ids[n - 1]), ())) if n >= 2 else ():
                if end < n - 1 and (length := common_suffix(ids, end + 1, ids, _LONGEST_IDS)) > max(self._length, 1):
                    self._at, self._length = end + 1, length
        self._n = n
