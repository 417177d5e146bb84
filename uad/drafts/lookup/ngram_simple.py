"""ngram-simple: look up the last n ids in the text and copy what followed them the last time."""

from __future__ import annotations

from uad.base.common.sequences import common_suffix
from uad.base.types import Draft, Origin
from uad.drafts.lookup.history import MAX_MATCH, GramIndex
from uad.drafts.lookup.lookup_drafter import LookupDrafter, SlotText
from uad.drafts.lookup.sources import Located, TextSource


def drafter(size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> LookupDrafter:
    """Drafts the size_m ids after the last earlier place of the last size_n ids, if these have at least min_hits
    earlier places.
    """
    return LookupDrafter(Origin.NGRAM_SIMPLE, lambda text: NgramSimple(text, size_n, size_m, min_hits))


class NgramSimple:
    """One slot: an index of its n-grams. Other ways to choose among their ends are subclasses."""

    def __init__(self, text: SlotText, size_n: int, size_m: int, min_hits: int) -> None:
        self._text = text
        self._size_m = size_m
        self._min_hits = min_hits
        self.index = GramIndex(text.ids, size_n)

    @property
    def memory(self) -> int:
        return self.index.memory

    def begin(self, n_kept: int) -> None:
        self.index.shrink(n_kept)

    def draft(self, n: int) -> Draft | None:
        self.index.grow()
        return self._text.copy(min(n, self._size_m), self.index.n, self._find)

    def _find(self) -> Located | None:
        """The place to copy from, if there is one."""
        ids, n = self._text.ids, self.index.n
        ends = self.index.last_ends(len(ids), self._min_hits) if len(ids) > n else []
        return (
            Located(TextSource(ids, ends[0] - 1), common_suffix(ids, ends[0], ids, MAX_MATCH, n))
            if len(ends) >= self._min_hits
            else None
        )

    def end(self) -> None:
        """Nothing more is known then."""
