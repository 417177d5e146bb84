"""What a copy that is edited replaces: a renamed name comes back, and is drafted with its new name. Knows ids only.

A replaced id is known by itself and the id behind it in the source, which together are most of a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_N_SEEN = 2
"""So often an id must have been replaced by the same one."""
_LIMIT = 256


class Replacements:
    """Pairs of source ids with what was written for the first of them, and how often in a row."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}
        self._active = False

    def apply(self, source: tuple[int, ...]) -> tuple[int, ...]:
        """The copy of these ids that is to be expected; the same tuple where nothing is known to be replaced."""
        if not self._active:
            return source
        ids = list(source)
        for i, pair in enumerate(pairwise(source)):
            new, n = self._seen.get(pair, _NEVER)
            if n >= _N_SEEN:
                ids[i] = new
        return tuple(ids)

    def learn(self, source: Sequence[int], written: Sequence[int], same: int) -> None:
        """What was written for a copy of `source`, up to the first id that was not drafted; the first `same` ids of both are alike."""
        if same < len(written):
            self._differ(source[same:], written[same:])
        if self._seen:
            self._agree(source[: same + 1])

    def _differ(self, source: Sequence[int], written: Sequence[int]) -> None:
        for pair, new in zip(pairwise(source), written, strict=False):
            if new == pair[0]:
                self._seen.pop(pair, None)
            else:
                self._count(pair, new)

    def _agree(self, source: Sequence[int]) -> None:
        for pair in pairwise(source):
            self._seen.pop(pair, None)

    def _count(self, pair: tuple[int, int], new: int) -> None:
        before, n = self._seen.pop(pair, _NEVER)
        n = n + 1 if before == new else 1
        self._seen[pair] = (new, n)
        self._active |= n >= _N_SEEN
        if len(self._seen) > _LIMIT:
            del self._seen[next(iter(self._seen))]


_NEVER = (-1, 0)
