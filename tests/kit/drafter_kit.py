"""Helpers for the tests of drafters without a model: one slot, driven as the loop drives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from uad.base.types import Ask, Commit, Draft
from uad.drafts.lookup.aligner import CopyAligner
from uad.drafts.lookup.lookup_drafter import LookupDrafter
from uad.engine.drafter import Pace


class Slot:
    """One sequence with its ids, kept beside the drafter's."""

    def __init__(self, drafter: LookupDrafter, prompt: Sequence[int] = (), seq: int = 0) -> None:
        self.drafter, self.seq = drafter, seq
        self.ids: list[int] = []
        self.begin(prompt)

    @property
    def lookup(self) -> Any:
        """The slot's `Lookup`, to look into."""
        return self.drafter._slots[self.seq][1]

    def begin(self, prompt: Sequence[int]) -> Slot:
        self.ids = list(prompt)
        self.drafter.begin(self.seq, tuple(prompt))
        return self

    def end(self) -> Slot:
        self.drafter.end(self.seq)
        return self

    def draft(self, n_max: int = 64, n_min: int = 0) -> Draft:
        (draft,) = self.drafter.propose([Ask(self.seq, n_max, n_min)])
        assert len(draft.ids) == len(draft.p) <= n_max
        assert draft.origin is self.drafter.origin
        assert draft.kind.startswith(draft.origin)
        assert all(0 <= p <= 1 for p in draft.p)
        return draft

    def write(self, ids: Sequence[int], draft: Draft | None = None) -> Slot:
        """Commit ids; where a draft is given, as a round that had verified it."""
        n = len(draft.ids) if draft else 0
        agreed = next((i for i in range(min(n, len(ids))) if draft.ids[i] != ids[i]), min(n, len(ids))) if draft else 0
        self.drafter.observe(Commit(self.seq, tuple(ids), n_drafted=n, n_accepted=agreed))
        self.ids += ids
        return self


def alone(drafter: LookupDrafter) -> LookupDrafter:
    """Every draft is looked up: no copy is followed."""
    propose = drafter.propose

    def looked_up(asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        for ask in asks:
            drafter._slots[ask.seq][0].aligner = CopyAligner()
        return propose(asks, pace)

    drafter.propose = looked_up  # type: ignore[method-assign]
    return drafter


IDS = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.lists(IDS, min_size=1, max_size=7),
        st.tuples(st.integers(0, 80), st.lists(IDS, max_size=40)),
    ),
    max_size=12,
)
"""What happens to a slot: ids that are written, or a prompt that keeps so many ids of the history and goes on with
others.
"""


def play(slot: Slot, step: list[int] | tuple[int, list[int]]) -> None:
    """One step of STEPS."""
    if isinstance(step, list):
        slot.write(step)
    else:
        kept, more = step
        slot.end()
        slot.begin([*slot.ids[:kept], *more])
