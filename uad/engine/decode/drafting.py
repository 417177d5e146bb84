"""Drafters and policy as one thing that the loop asks once per round. Knows no target, no request and no text.

Drafters are asked in the given order, the free ones first: what they offer decides whether the model is run at all.
None of them, nor the policy, can hurt an answer: what fails is off for a while (`guard.Guarded`). Then it starts again
with all that was written until then.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from uad.base.events import DrafterView
from uad.base.stats import DrafterStats
from uad.base.types import (
    BY_REQUEST,
    HEADS,
    WRITERS,
    Ask,
    Clock,
    Commit,
    Crossing,
    Draft,
    Origin,
    SamplingParams,
    SpecPolicy,
)
from uad.engine.decode.guard import Guarded, reason, warn
from uad.engine.drafter import Continuing, Drafter, Pace, Predicted
from uad.engine.policy.protocol import Chosen, Decoded, Drafted, Ended, Policy, PolicyView, Restored, Wish
from uad.text.grammar.protocol import Matcher

_log = logging.getLogger("uad.draft")
_LATELY_ROUNDS = 256  # rounds
_PAUSED_IDS = 8  # after which it is looked whether a part that failed may start again
_NOTHING: Mapping[int, Chosen] = {}
NO_MATCHERS: Mapping[int, Matcher] = {}


@dataclass(slots=True)
class DraftedText:
    """A running sequence: its prompt, how its answer is drawn, and the answer so far. All that a drafter which starts
    again must know. n_cached ids of the prompt are those of the sequence's last text. prediction: what the request
    says its answer will be. read: the prompt as the target reads it, with placeholders of images; empty: the same.
    """

    seq: int
    prompt: Sequence[int]
    sampling: SamplingParams
    n_cached: int = 0
    prediction: bytes = b""
    read: Sequence[int] = ()
    written: list[int] = field(default_factory=list)

    def tell_policy(self, policy: Policy) -> None:
        """The policy learns that it runs."""
        policy.begin(self.seq, len(self.prompt) + len(self.written), self.sampling.temperature, self.n_cached)

    def tell_drafter(self, drafter: Drafter) -> None:
        """The drafter learns that it runs, and all of it."""
        is_head = drafter.origin in HEADS  # which goes by the target's positions
        drafter.begin(self.seq, self.read if self.read and is_head else self.prompt, self.sampling)
        if self.prediction and isinstance(drafter, Predicted):
            drafter.predict(self.seq, self.prediction)
        if self.written:
            drafter.observe(Commit(self.seq, tuple(self.written)))


class DraftTally:
    """Counts of the drafters' work since start."""

    def __init__(self, drafters: Sequence[Guarded[Drafter]]) -> None:
        self._drafters = drafters
        self._stats = {drafter.part.origin: DrafterStats(drafter.part.origin) for drafter in drafters}
        self._accepted: dict[Origin, list[int]] = {origin: [] for origin in self._stats}  # drafts, by accepted length
        self._submitted: deque[int] = deque(maxlen=_LATELY_ROUNDS)  # lengths
        self._crossings: dict[int, Crossing] = {}

    def called(self, origin: Origin, asks: Sequence[Ask], drafts: Sequence[Draft] | None, seconds: float) -> None:
        """A drafter was asked; drafts: what it answered, None where it failed."""
        self._stats[origin] = self._stats[origin].called(len(asks), seconds)
        for ask, draft in zip(asks, drafts or (), strict=drafts is not None):
            self._crossings[ask.seq] = self._crossings.get(ask.seq, Crossing()) + draft.crossing

    def judged(self, commit: Commit, draft: Draft) -> None:
        """The target accepted so much of this draft, or several ids were written without one."""
        self._submitted.extend([commit.n_drafted] if commit.n_drafted else [0] * len(commit.ids))
        if draft.ids:
            _count(self._accepted[draft.origin], commit.n_accepted)
            self._stats[draft.origin] = self._stats[draft.origin].judged(commit.n_drafted, commit.n_accepted)

    def crossing(self, seq: int) -> Crossing | None:
        """The cost of translation for this sequence since the last call, whether its drafts were submitted or not; None
        where nothing was translated.
        """
        return self._crossings.pop(seq, None)

    def stats(self) -> tuple[DrafterStats, ...]:
        """Statistics of each drafter."""
        each = []
        for drafter in self._drafters:
            stats, accepted = self._stats[drafter.part.origin], tuple(self._accepted[drafter.part.origin])
            each.append(replace(stats, n_failures=drafter.n_failures, is_off=not drafter.is_on, accepted=accepted))
        return tuple(each)

    def lengths(self) -> tuple[int, ...]:
        """How often drafts of each length were submitted of late; [0]: none was."""
        lengths: list[int] = []
        for n in self._submitted:
            _count(lengths, n)
        return tuple(lengths)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what the target may be given to decode: ids below n_vocab, none of `eog`, which end an answer. And only
    ids that the constraint of a sequence allows (matchers).
    """

    n_vocab: int
    eog: frozenset[int]
    matchers: Mapping[int, Matcher]

    def cut(self, draft: Draft, ask: Ask) -> Draft:
        """A draft as far as the target could draw it, or nothing where that is shorter than asked for. Raises
        ValueError for one that the target cannot decode, since its decode would fail instead.

        It ends before an id that ends the answer: the target writes that id itself, in the same decode, and a copy of
        an earlier turn would go on after it. It also ends before the first id that the constraint forbids. With the
        draft "yes", <end>, "user" only "yes" is left.
        """
        ids, p = draft.ids, draft.p
        if ids and not (0 <= min(ids) <= max(ids) < self.n_vocab and len(p) == len(ids) <= ask.n_max):
            raise ValueError(
                f"{len(ids)} ids from {min(ids)} to {max(ids)} with {len(p)} beliefs, where {ask.n_max} were asked for"
            )
        if not all(0.0 <= belief < inf for belief in p):
            raise ValueError(
                f"an id is believed with a probability of {next(belief for belief in p if not 0.0 <= belief < inf)}"
            )
        if not self.eog.isdisjoint(ids):
            n = next(i for i, id_ in enumerate(ids) if id_ in self.eog)
            draft = draft.first(n if n >= ask.n_min else 0)
        matcher = self.matchers.get(ask.seq)
        if matcher is not None and draft.ids:
            n = matcher.n_valid(draft.ids)
            draft = draft.first(n if n >= ask.n_min else 0)
        return draft


class Chains:
    """Guesses that were written go on with what the text offers after them, in sequences whose policy weighs lengths.

    The draft model wrote "for i in", and earlier the text had "for i in range(n):". A look-up adds " range(n):", as far
    as there is room.
    """

    def __init__(self, drafters: Sequence[Guarded[Drafter]], limits: Limits) -> None:
        self._lookup = next((drafter for drafter in drafters if isinstance(drafter.part, Continuing)), None)
        self._limits = limits
        self._seqs: frozenset[int] = frozenset()  # in this round

    def begin(self, wishes: Sequence[Wish]) -> None:
        """A round of these sequences."""
        self._seqs = frozenset()
        if self._lookup is not None and self._lookup.is_on:
            origin = self._lookup.part.origin
            every = [(wish.seq, wish.params) for wish in wishes if wish.params.policy is SpecPolicy.AUTO]
            self._seqs = frozenset(seq for seq, params in every if not params.types or origin in params.types)

    def longer(self, draft: Draft, ask: Ask) -> Draft:
        """The draft, and what the text offers after it."""
        room = ask.n_max - len(draft.ids)
        if not draft.ids or room <= 0 or ask.seq not in self._seqs or self._lookup is None:
            return draft

        def followed(drafter: Drafter) -> Draft:
            assert isinstance(drafter, Continuing)
            tail = drafter.after(ask.seq, draft.ids, room)
            if not tail.ids:
                return draft
            ids, p = draft.ids + tail.ids, draft.p + tail.p
            return self._limits.cut(replace(draft, ids=ids, p=p, kind=tail.kind, n_tail=len(tail.ids)), ask)

        return self._lookup.do(followed) or draft


class Drafting:
    """The drafters of all sequences, and the policy that decides when they are asked.

    policies: makes the policy, and a fresh one after it failed. n_vocab: of the target; eog: its ids that end an
    answer. matchers: of the sequences that are constrained; they belong to the loop.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        policies: Callable[[], Policy],
        n_vocab: int,
        eog: frozenset[int] = frozenset(),
        clock: Clock = perf_counter,
        matchers: Mapping[int, Matcher] = NO_MATCHERS,
    ) -> None:
        self._drafters = tuple(Guarded(drafter.origin, drafter, clock) for drafter in drafters)
        self._policies = policies
        self.policy = Guarded("the policy", policies(), clock)
        self.tally = DraftTally(self._drafters)
        self._limits = Limits(n_vocab, eog, matchers)
        self._chains = Chains(self._drafters, self._limits)
        self._clock = clock
        self._texts: dict[int, DraftedText] = {}
        self._is_general = any(drafter.origin not in {*BY_REQUEST, Origin.GRAMMAR} for drafter in drafters)
        self._asking = 0.0  # seconds of this round

    def __contains__(self, seq: int) -> bool:
        return seq in self._texts

    @property
    def is_in_use(self) -> bool:
        """Whether rounds concern the policy: one may be drafted for, or shows what plain ones cost where any request
        may be drafted for. Not where only some requests bring what is drafted from, and none of those runs.
        """
        return self._is_general or bool(self._texts)

    def view(self, depth: int) -> tuple[PolicyView, tuple[int, ...], tuple[DrafterView, ...]]:
        """The policy's knowledge, the lengths submitted of late, and each drafter; for display."""
        try:
            policy = self.policy.part.view(depth)
        except Exception as error:  # no answer needs it
            warn(_log, error, "the policy cannot be looked at (%s)", reason(error))
            policy = PolicyView()
        worth = [(drafter.part.origin, policy.worth.get(drafter.part.origin)) for drafter in self._drafters]
        views = [DrafterView(origin, *known) if known is not None else DrafterView(origin) for origin, known in worth]
        return policy, self.tally.lengths(), tuple(views)

    def begin(self, text: DraftedText) -> None:
        """A sequence starts (again) with this text. Nothing is remembered where only a constraint or a prediction could
        draft for it, and it has neither.
        """
        absent = [] if text.seq in self._limits.matchers else [Origin.GRAMMAR]
        absent += [] if text.prediction else [Origin.PREDICTION]
        if all(drafter.part.origin in absent for drafter in self._drafters):
            return
        self._texts[text.seq] = text
        self.policy.do(text.tell_policy)
        for drafter in self._drafters:
            drafter.do(text.tell_drafter)

    def end(self, seq: int) -> None:
        """The sequence ends; drafters may keep what they know of it for the next one in this slot."""
        if self._texts.pop(seq, None) is None:
            return
        self.policy.do(lambda policy: policy.observe(Ended(seq)))
        for drafter in self._drafters:
            drafter.do(lambda drafter: drafter.end(seq))

    def restored(self, seq: int, n_held: Mapping[Origin, int], ids: Sequence[int] | None = None) -> None:
        """A text came back into a sequence in which nothing runs. n_held: how many of its ids those that write have
        read. ids: the text, which drafters learn as they learn one that is over; None where the next text begins like
        it.
        """

        def learn(drafter: Drafter) -> None:
            drafter.begin(seq, ids or ())
            drafter.end(seq)

        for drafter in self._drafters if ids is not None else ():
            drafter.do(learn)
        self.policy.do(lambda policy: policy.observe(Restored(seq, n_held)))

    def leave(self) -> None:
        """The models are about to be unloaded, while nothing runs: those that write hold no text any more. Look-ups
        keep what they know of texts.
        """
        for drafter in self._drafters:
            if drafter.part.origin in WRITERS:
                drafter.do(lambda drafter: drafter.reset())

    def hold(self, origin: Origin, is_held: bool) -> None:
        """Ask a drafter no more, or again. While nothing runs."""
        for drafter in self._drafters:
            if drafter.part.origin is origin:
                drafter.hold(is_held)

    def propose(self, wishes: Sequence[Wish]) -> tuple[Mapping[int, Chosen], int]:
        """The choice for each sequence in this round; those that are missing write one id. Also how many ids each of
        them may write before this is to be asked again: as long as the same ones write, and if nothing is submitted.
        """
        self._bring_back()
        self._chains.begin(wishes)
        self._asking = 0.0
        can_draft = any(drafter.is_on for drafter in self._drafters)
        planned = self.policy.do(lambda policy: self._round(policy, wishes)) if can_draft else None
        chosen, n_plain = planned or (_NOTHING, _PAUSED_IDS)
        # each id may show how a constrained answer goes on
        return chosen, 1 if any(wish.seq in self._limits.matchers for wish in wishes) else max(n_plain, 1)

    def _bring_back(self) -> None:
        """A drafter that was off for long enough starts again, with all running texts."""

        def renew_policy(_: Policy) -> None:
            self.policy.part = self._policies()
            _begin_again(self.policy.part, self._texts.values())

        def renew(drafter: Drafter) -> None:
            drafter.reset()
            for text in self._texts.values():
                text.n_cached = 0
                text.tell_drafter(drafter)

        self.policy.bring_back(renew_policy)
        for drafter in self._drafters:
            if drafter.bring_back(renew):
                self.policy.do(
                    lambda policy: _begin_again(policy, self._texts.values())
                )  # it must know how much is to be read again

    def _round(self, policy: Policy, wishes: Sequence[Wish]) -> tuple[Mapping[int, Chosen], int]:
        """The result of `propose`. Raises whatever the policy raises."""
        since = self._clock()
        if (n_plain := policy.plan(wishes)) > 0:
            return _NOTHING, n_plain
        for drafter in self._drafters:
            origin = drafter.part.origin
            asks = policy.asks(origin) if drafter.is_on else ()
            if asks:
                began, pace = self._clock(), _GuardedPace(policy)
                drafts = self._ask(drafter, asks, pace)
                seconds = self._clock() - began
                self.tally.called(origin, asks, drafts, seconds)
                pace.check()
                if drafts is None:  # a call that failed says nothing about what calls cost
                    continue
                policy.observe(Drafted(origin, drafts, seconds))
        chosen = policy.choose()
        self._asking = self._clock() - since
        return chosen, 0

    def _ask(self, guarded: Guarded[Drafter], asks: Sequence[Ask], pace: Pace) -> list[Draft] | None:
        """Drafts that the target may be given; None where the drafter fails: the round goes on as if it had not been
        asked.
        """
        writes = guarded.part.origin in WRITERS

        def propose(drafter: Drafter) -> list[Draft]:
            drafts = []
            for draft, ask in zip(drafter.propose(asks, pace), asks, strict=True):
                kept = self._limits.cut(draft, ask)
                is_whole = len(kept.ids) == len(draft.ids)
                drafts.append(self._chains.longer(kept, ask) if writes and is_whole else kept)
            return drafts

        return guarded.do(propose)

    def commit(self, commit: Commit, draft: Draft) -> None:
        """These ids became part of a text; `draft` is what had been submitted."""
        text = self._texts.get(commit.seq)
        if text is None:
            return
        text.written += commit.ids
        self.tally.judged(commit, draft)
        self.policy.do(lambda policy: policy.observe(commit))
        for drafter in self._drafters:
            drafter.do(lambda drafter: drafter.observe(commit))

    def decoded(self, passes: Sequence[tuple[int, int]], depth: int, seconds: float) -> None:
        """The round's decode of these passes (sequences, rows of each), `depth` positions after them on average, took
        this long.
        """
        self.policy.do(lambda policy: policy.observe(Decoded(passes, depth, seconds, self._asking)))


def _count(counts: list[int], n: int) -> None:
    """One more of n, in a list that is as long as it must be."""
    counts.extend([0] * (n + 1 - len(counts)))
    counts[n] += 1


class _GuardedPace:
    """The policy, as a drafter asks it while it drafts. An error of the policy ends drafting and waits here, since it
    is no failure of the drafter.
    """

    __slots__ = ("_error", "_policy", "_steps", "_wrote")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._error: Exception | None = None
        self._wrote: list[tuple[int, float]] = []
        self._steps: list[tuple[int, float]] = []

    def check(self) -> None:
        """The drafter is done. Raises what the policy raised."""
        if self._wrote or self._steps:
            self.go_on(())
        if self._error is not None:
            raise self._error

    def wrote(self, seq: int, p: float) -> None:
        self._wrote.append((seq, p))

    def stepped(self, n_seq: int, seconds: float) -> None:
        self._steps.append((n_seq, seconds))

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        if self._error is None:
            wrote, steps, self._wrote, self._steps = self._wrote, self._steps, [], []
            try:
                return self._policy.more(seqs, wrote, steps)
            except Exception as error:
                self._error = error
        return [False] * len(seqs)


def _begin_again(policy: Policy, texts: Iterable[DraftedText]) -> None:
    """Tell a policy all running texts anew: each ends, and begins."""
    for text in texts:
        policy.observe(Ended(text.seq))
        text.tell_policy(policy)
