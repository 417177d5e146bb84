"""Drafters and policy as one thing that the loop asks once per round. Knows no target, no request and no text.

Drafters are asked in the given order, the free ones first: what they offer decides whether the model is run at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

from uad.drafters.protocol import Drafter
from uad.policy.protocol import Chosen, Policy, Wish
from uad.types import Ask, Clock, Commit, Crossing, Draft, DrafterStats, SamplingParams

_NOTHING: Mapping[int, Chosen] = {}


class Drafting:
    """The drafters of all sequences, and the policy that rules them. eog: the ids that end an answer."""

    def __init__(self, drafters: Sequence[Drafter], policy: Policy, eog: frozenset[int] = frozenset(), clock: Clock = perf_counter) -> None:
        self._drafters = tuple(drafters)
        self._policy = policy
        self._eog = eog
        self._clock = clock
        self._stats = {drafter.origin: DrafterStats(drafter.origin) for drafter in drafters}
        self._seqs: set[int] = set()
        self._crossings: dict[int, Crossing] = {}

    def __contains__(self, seq: int) -> bool:
        return seq in self._seqs

    def stats(self) -> tuple[DrafterStats, ...]:
        """What each drafter did since start."""
        return tuple(self._stats.values())

    def begin(self, seq: int, prompt: Sequence[int], sampling: SamplingParams) -> None:
        """A sequence starts (again) with this prompt of target ids; its answer is drawn like that, the seed included."""
        self._seqs.add(seq)
        self._policy.begin(seq, len(prompt), sampling.temperature)
        for drafter in self._drafters:
            drafter.begin(seq, prompt, sampling)

    def end(self, seq: int) -> None:
        """The sequence is over; drafters may keep what they know of it for the next one in this slot."""
        if seq not in self._seqs:
            return
        self._seqs.discard(seq)
        self._policy.end(seq)
        for drafter in self._drafters:
            drafter.end(seq)

    def sleeps(self, seqs: Sequence[int]) -> int:
        """For how many rounds these sequences, which write, do so without drafts; see `Policy.sleeps`."""
        return self._policy.sleeps(seqs)

    def propose(self, wishes: Sequence[Wish]) -> Mapping[int, Chosen]:
        """What each sequence submits in this round; those that are missing write one id."""
        round_ = self._policy.plan(wishes)
        if round_ is None:
            return _NOTHING
        for drafter in self._drafters:
            asks = round_.asks(drafter.origin)
            if not asks:
                continue
            began = self._clock()
            drafts = [self._before_end(draft, one) for one, draft in zip(asks, drafter.propose(asks, round_), strict=True)]
            seconds = self._clock() - began
            self._stats[drafter.origin] = self._stats[drafter.origin].called(len(asks), seconds)
            round_.proposed(drafter.origin, drafts, seconds)
            for one, draft in zip(asks, drafts, strict=True):
                self._crossings[one.seq] = self._crossings.get(one.seq, Crossing()) + draft.crossing
        return round_.choose()

    def _before_end(self, draft: Draft, ask: Ask) -> Draft:
        """Nothing follows the id that ends an answer, though a copy of an earlier turn would go on; and the target writes that id itself,
        in the same decode."""
        if self._eog.isdisjoint(draft.ids):
            return draft
        n = next(i for i, id_ in enumerate(draft.ids) if id_ in self._eog)
        return draft.first(n if n >= ask.n_min else 0)

    def crossing(self, seq: int) -> Crossing:
        """What translation took for this sequence since the last call, whether its drafts were submitted or not."""
        return self._crossings.pop(seq, Crossing())

    def commit(self, commit: Commit, draft: Draft) -> None:
        """These ids became part of a text; `draft` is what had been submitted."""
        if commit.seq not in self._seqs:
            return
        if draft.ids:
            stats = self._stats[draft.origin]
            self._stats[draft.origin] = stats.judged(commit.n_drafted, commit.n_accepted)
        self._policy.committed(commit)
        for drafter in self._drafters:
            drafter.observe(commit)

    def decoded(self, passes: Sequence[tuple[int, int]], depth: int, seconds: float, n: int = 1) -> None:
        """See `Policy.decoded`."""
        self._policy.decoded(passes, depth, seconds, n)

    def rested(self, seconds: float) -> None:
        """See `Policy.rested`."""
        self._policy.rested(seconds)
