"""Drafters and policy as one thing that the loop asks once per round. Knows no target, no request and no text.

Drafters are asked in the given order, the free ones first: what they offer decides whether the model is run at all.
None of them, nor the policy, can hurt an answer: what fails is off for a while (`guard.Guarded`). Then it starts again
with all that was written until then.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from uad.base.events import DrafterView
from uad.base.stats import DrafterStats
from uad.base.types import BY_REQUEST, WRITERS, Ask, Clock, Commit, Crossing, Draft, Origin, SamplingParams, SpecPolicy
from uad.engine.decode.guard import Guarded, reason, warn
from uad.engine.drafter import Continuing, Drafter, Pace, Predicted
from uad.engine.policy.protocol import Chosen, Decoded, Drafted, Ended, Policy, PolicyView, Restored, Wish
from uad.text.grammar.protocol import Matcher

_log = logging.getLogger("uad.draft")
_LATELY = 256  # rounds
_PAUSED_IDS = 8  # after which it is looked whether a part that failed may start again
_NOTHING: Mapping[int, Chosen] = {}
NO_MATCHERS: Mapping[int, Matcher] = {}


@dataclass(slots=True)
class _DraftedText:
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
        policy.begin(self.seq, len(self.prompt) + len(self.written), self.sampling.temperature, self.n_cached)

    def tell_drafter(self, drafter: Drafter) -> None:
        is_head = drafter.origin is Origin.HEAD  # which goes by the target's positions
        drafter.begin(self.seq, self.read if self.read and is_head else self.prompt, self.sampling)
        if self.prediction and isinstance(drafter, Predicted):
            drafter.predict(self.seq, self.prediction)
        if self.written:
            drafter.observe(Commit(self.seq, tuple(self.written)))


class DraftTally:
    """What drafters did since start, in counts."""

    def __init__(self, origins: Sequence[Origin]) -> None:
        self._stats = {origin: DrafterStats(origin) for origin in origins}
        self._accepted: dict[Origin, list[int]] = {origin: [] for origin in origins}  # drafts, by accepted length
        self._submitted: deque[int] = deque(maxlen=_LATELY)  # lengths
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
        """What translation took for this sequence since the last call, whether its drafts were submitted or not; None
        where nothing was translated.
        """
        return self._crossings.pop(seq, None)

    def stats(self, one: Guarded[Drafter]) -> DrafterStats:
        """Those of this drafter."""
        origin = one.part.origin
        accepted = tuple(self._accepted[origin])
        return replace(self._stats[origin], n_failures=one.n_failures, is_off=not one.is_on, accepted=accepted)

    def lengths(self) -> tuple[int, ...]:
        """How often drafts of each length were submitted of late; [0]: none was."""
        lengths: list[int] = []
        for n in self._submitted:
            _count(lengths, n)
        return tuple(lengths)


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
        self._matchers = matchers
        self._drafters = tuple(Guarded(drafter.origin, drafter, clock) for drafter in drafters)
        self._policies = policies
        self.policy = Guarded("the policy", policies(), clock)
        self.tally = DraftTally([drafter.origin for drafter in drafters])
        self._n_vocab = n_vocab
        self._eog = eog
        self._clock = clock
        self._texts: dict[int, _DraftedText] = {}
        self._is_general = any(one.origin not in {*BY_REQUEST, Origin.GRAMMAR} for one in drafters)
        self._looks_up = next((one for one in self._drafters if isinstance(one.part, Continuing)), None)
        # sequences in which the text goes on after a guess that was written, in this round: those whose policy weighs
        # lengths
        self._chained: frozenset[int] = frozenset()
        self._asking = 0.0  # seconds of this round
        self._n_plain = 0  # ids until the policy wants to be asked again

    def __contains__(self, seq: int) -> bool:
        return seq in self._texts

    @property
    def is_in_use(self) -> bool:
        """Whether rounds concern the policy: one may be drafted for, or shows what plain ones cost where any request
        may be drafted for. Not where only some requests bring what is drafted from, and none of those runs.
        """
        return self._is_general or bool(self._texts)

    def stats(self) -> tuple[DrafterStats, ...]:
        """What each drafter did since start."""
        return tuple(map(self.tally.stats, self._drafters))

    def view(self, depth: int) -> tuple[PolicyView, tuple[int, ...], tuple[DrafterView, ...]]:
        """What the policy knows, the lengths submitted of late, and each drafter; for display."""
        try:
            policy = self.policy.part.view(depth)
        except Exception as error:  # no answer needs it
            warn(_log, error, "the policy cannot be looked at (%s)", reason(error))
            policy = PolicyView()
        worth = [(one.part.origin, policy.worth.get(one.part.origin)) for one in self._drafters]
        views = [DrafterView(origin, *known) if known is not None else DrafterView(origin) for origin, known in worth]
        return policy, self.tally.lengths(), tuple(views)

    def begin(
        self,
        seq: int,
        prompt: Sequence[int],
        sampling: SamplingParams,
        n_cached: int = 0,
        prediction: bytes = b"",
        read: Sequence[int] = (),
    ) -> None:
        """A sequence starts (again) with this prompt of target ids, the first n_cached as in its last text. `sampling`
        says how its answer is drawn, the seed included; it is expected to be like `prediction`. read: the prompt with
        placeholders, where it has images. Nothing is remembered where only a constraint or a prediction could draft for
        it, and it has neither.
        """
        absent = [
            *([] if seq in self._matchers else [Origin.GRAMMAR]),
            *([] if prediction else [Origin.PREDICTION]),
        ]
        if all(one.part.origin in absent for one in self._drafters):
            return
        text = self._texts[seq] = _DraftedText(seq, prompt, sampling, n_cached, prediction, read)
        self.policy.do(text.tell_policy)
        for one in self._drafters:
            one.do(text.tell_drafter)

    def end(self, seq: int) -> None:
        """The sequence ends; drafters may keep what they know of it for the next one in this slot."""
        if self._texts.pop(seq, None) is None:
            return
        self.policy.do(lambda policy: policy.observe(Ended(seq)))
        for one in self._drafters:
            one.do(lambda drafter: drafter.end(seq))

    def restored(self, seq: int, ids: Sequence[int], n_held: Mapping[Origin, int]) -> None:
        """A text came back into a sequence in which nothing runs: drafters learn it as they learn one that is over.
        n_held: how many of its ids those that write have read.
        """

        def learn(drafter: Drafter) -> None:
            drafter.begin(seq, ids)
            drafter.end(seq)

        for one in self._drafters:
            one.do(learn)
        self.came_back(seq, n_held)

    def came_back(self, seq: int, n_held: Mapping[Origin, int]) -> None:
        """A text came back into a sequence in which nothing runs, and its next text begins like it. n_held: see
        `restored`.
        """
        self.policy.do(lambda policy: policy.observe(Restored(seq, n_held)))

    def leave(self) -> None:
        """The models are about to be unloaded, while nothing runs: those that write hold no text any more. What
        look-ups know of texts stays.
        """
        for one in self._drafters:
            if one.part.origin in WRITERS:
                one.do(lambda drafter: drafter.reset())

    def propose(self, wishes: Sequence[Wish]) -> tuple[Mapping[int, Chosen], int]:
        """What each sequence submits in this round; those that are missing write one id. And how many ids each of them
        may write before this is to be asked again: as long as the same ones write, and if nothing is submitted.
        """
        self._bring_back()
        self._chained = frozenset()
        if self._looks_up is not None and self._looks_up.is_on:
            origin = self._looks_up.part.origin
            every = [(wish.seq, wish.params) for wish in wishes if wish.params.policy is SpecPolicy.AUTO]
            self._chained = frozenset(seq for seq, params in every if not params.types or origin in params.types)
        self._asking = 0.0
        self._n_plain = _PAUSED_IDS
        can_draft = any(one.is_on for one in self._drafters)
        chosen = self.policy.do(lambda policy: self._round(policy, wishes)) if can_draft else None
        is_constrained = any(wish.seq in self._matchers for wish in wishes)  # each id may show how the answer goes on
        return chosen or _NOTHING, 1 if is_constrained else max(self._n_plain, 1)

    def _bring_back(self) -> None:
        """A drafter that was off for long enough starts again, with all running texts."""

        def renew_policy(_: Policy) -> None:
            self.policy.part = self._policies()
            self._tell_policy(self.policy.part)

        def renew(drafter: Drafter) -> None:
            drafter.reset()
            for text in self._texts.values():
                text.n_cached = 0
                text.tell_drafter(drafter)

        self.policy.bring_back(renew_policy)
        for one in self._drafters:
            if one.bring_back(renew):
                self.policy.do(self._tell_policy)  # it must know how much is to be read again

    def _tell_policy(self, policy: Policy) -> None:
        for text in self._texts.values():
            policy.observe(Ended(text.seq))
            text.tell_policy(policy)

    def _round(self, policy: Policy, wishes: Sequence[Wish]) -> Mapping[int, Chosen]:
        """Raises what the policy does."""
        since = self._clock()
        self._n_plain = policy.plan(wishes)
        if self._n_plain > 0:
            return _NOTHING
        for one in self._drafters:
            origin = one.part.origin
            asks = policy.asks(origin) if one.is_on else ()
            if asks:
                began, pace = self._clock(), _GuardedPace(policy)
                drafts = self._ask(one, asks, pace)
                seconds = self._clock() - began
                self.tally.called(origin, asks, drafts, seconds)
                pace.check()
                if drafts is None:  # a call that failed says nothing about what calls cost
                    continue
                policy.observe(Drafted(origin, drafts, seconds))
        chosen = policy.choose()
        self._asking = self._clock() - since
        return chosen

    def _ask(self, one: Guarded[Drafter], asks: Sequence[Ask], pace: Pace) -> list[Draft] | None:
        """The drafts; None where the drafter fails: the round goes on as if it had not been asked."""

        def propose(drafter: Drafter) -> tuple[list[Draft], list[Draft]]:
            """The drafts as they come, and as far as the target may be given them."""
            raw = drafter.propose(asks, pace)
            for draft, ask in zip(raw, asks, strict=True):
                check(draft, ask, self._n_vocab)
            return raw, [
                cut(draft, ask, self._eog, self._matchers.get(ask.seq)) for draft, ask in zip(raw, asks, strict=True)
            ]

        both = one.do(propose)
        if both is None or one.part.origin not in WRITERS:
            return None if both is None else both[1]
        return [
            self._continued(draft, ask) if len(draft.ids) == len(raw.ids) else draft
            for raw, draft, ask in zip(*both, asks, strict=True)
        ]

    def _continued(self, draft: Draft, ask: Ask) -> Draft:
        """The draft, and what the text offers after it."""
        room = ask.n_max - len(draft.ids)
        if not draft.ids or room <= 0 or ask.seq not in self._chained or self._looks_up is None:
            return draft
        tail = self._looks_up.do(lambda drafter: _after(drafter, ask.seq, draft.ids, room))
        if tail is None or not tail.ids:
            return draft
        n_tail = len(tail.ids)
        whole = replace(draft, ids=draft.ids + tail.ids, p=draft.p + tail.p, kind=tail.kind, n_tail=n_tail)
        return cut(whole, ask, self._eog, self._matchers.get(ask.seq))

    def commit(self, commit: Commit, draft: Draft) -> None:
        """These ids became part of a text; `draft` is what had been submitted."""
        text = self._texts.get(commit.seq)
        if text is None:
            return
        text.written += commit.ids
        self.tally.judged(commit, draft)
        self.policy.do(lambda policy: policy.observe(commit))
        for one in self._drafters:
            one.do(lambda drafter: drafter.observe(commit))

    def decoded(self, passes: Sequence[tuple[int, int]], depth: int, seconds: float) -> None:
        """The round's decode of these passes (sequences, rows of each), `depth` positions after them on average, took
        this long.
        """
        self.policy.do(lambda policy: policy.observe(Decoded(passes, depth, seconds, self._asking)))


def check(draft: Draft, ask: Ask, n_vocab: int) -> None:
    """Raises ValueError for a draft that the target cannot decode, since its decode would fail instead."""
    ids, p = draft.ids, draft.p
    if ids and not (0 <= min(ids) <= max(ids) < n_vocab and len(p) == len(ids) <= ask.n_max):
        raise ValueError(
            f"{len(ids)} ids from {min(ids)} to {max(ids)} with {len(p)} beliefs, where {ask.n_max} were asked for"
        )
    if not all(0.0 <= belief < inf for belief in p):
        raise ValueError(f"an id is believed with a probability of {next(one for one in p if not 0.0 <= one < inf)}")


def cut(draft: Draft, ask: Ask, eog: frozenset[int], matcher: Matcher | None) -> Draft:
    """A draft as far as the target could draw it, or nothing where that is shorter than asked for.

    It ends before an id that ends the answer (of `eog`): the target writes that id itself, in the same decode, and a
    copy of an earlier turn would go on after it. It also ends before the first id that the constraint forbids. With the
    draft "yes", <end>, "user" only "yes" is left.
    """
    if not eog.isdisjoint(draft.ids):
        n = next(i for i, id_ in enumerate(draft.ids) if id_ in eog)
        draft = draft.first(n if n >= ask.n_min else 0)
    if matcher is not None and draft.ids:
        n = matcher.n_valid(draft.ids)
        draft = draft.first(n if n >= ask.n_min else 0)
    return draft


def _count(counts: list[int], n: int) -> None:
    """One more of n, in a list that is as long as it must be."""
    counts.extend([0] * (n + 1 - len(counts)))
    counts[n] += 1


def _after(drafter: Drafter, seq: int, ids: tuple[int, ...], n: int) -> Draft:
    assert isinstance(drafter, Continuing)
    return drafter.after(seq, ids, n)


class _GuardedPace:
    """The policy, as a drafter asks it while it drafts. What the policy raises ends drafting and waits here, as it is
    no failure of the drafter.
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
