"""The one protocol of all drafters: begin, propose, observe, end. Values only; knows no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from uad.base.types import GREEDY, Ask, Commit, Draft, Origin, SamplingParams


class Pace(Protocol):
    """Asked by drafters that pay for every id, while they draft: is the next one worth it?"""

    def wrote(self, seq: int, p: float) -> None:
        """One more id was chosen, with this probability, given that all before it are right."""

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        """For each sequence that could draft further: whether it should. Asked before every draft decode."""
        ...

    def stepped(self, n_seq: int, seconds: float) -> None:
        """A draft decode with one id of each of n_seq sequences took this long."""


@runtime_checkable
class Continuing(Protocol):
    """A drafter that can go on after another one's guess."""

    def after(self, seq: int, ids: Sequence[int], n: int) -> Draft:
        """At most n ids that may follow the sequence and these guesses; nothing is remembered of it."""
        ...


class Drafter(Protocol):
    """Guesses for several sequences at once. Sequences are slot numbers.

    `observe` must be cheap, because it is called while the drafter is not used, too; work waits for the next `propose`.
    """

    @property
    def origin(self) -> Origin:
        """The name under which its drafts are counted and logged; no two drafters of a server have the same."""
        ...

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams = GREEDY) -> None:
        """A sequence starts (again) with this prompt of target ids; what fits of earlier state is reused. sampling: how
        its answer is drawn, the seed included.
        """

    def propose(self, asks: Sequence[Ask], pace: Pace | None = None) -> list[Draft]:
        """One draft per ask, in order. May be empty; never longer than n_max. Drafters that cost nothing per id ignore
        pace.
        """
        ...

    def observe(self, commit: Commit) -> None:
        """These ids are now part of the sequence."""

    def end(self, seq: int) -> None:
        """The sequence is over; state may be kept for the next one in this slot."""

    def reset(self) -> None:
        """Forget all sequences and what is kept of former ones, after a failure: nothing is known of the state.
        Knowledge learned from texts for all of them stays.
        """


@runtime_checkable
class Predicted(Protocol):
    """A drafter that uses what a request says its answer will be."""

    def predict(self, seq: int, text: bytes) -> None:
        """The answer of a sequence that has just begun is expected to be these bytes, with edits."""
