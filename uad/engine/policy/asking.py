"""Which drafters to ask in a round, when they stop writing, and what their calls cost.

A request with a fixed policy drafts as far as it says, at any cost: its drafts are worth infinitely much up to n_max.
The first drafter with a guess writes for it. Arithmetic only: no clock, no model, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from uad.base.types import WRITERS, Ask, Draft, Origin
from uad.engine.policy.calibration import bin_of
from uad.engine.policy.choose import may_continue
from uad.engine.policy.drafter_record import FEW_IDS, CallCost
from uad.engine.policy.knowledge import Knowledge
from uad.engine.policy.members import Member, Round
from uad.engine.policy.probing import TIMED_IDS, asked_again
from uad.engine.policy.protocol import Drafted

# Ids that a draft is expected to go on beyond the next one, while it is asked whether it should: on curves with steps
# one further row may cost more than it brings, and four pay. One id instead loses 1.8 % (lab/README).
_LOOK_AHEAD: Final = 4
# Ids of a backlog that a request with a fixed policy reads in a round: its text goes on meanwhile, and others wait.
_READ_AT_ONCE: Final = 256


class PricedDraft(NamedTuple):
    """A draft for an automatic request, and what it cost."""

    member: Member
    origin: Origin
    draft: Draft
    price_ms: float
    n_asked: int
    """Sequences that shared the call."""


class Writing:
    """A drafter that writes for some sequences side by side."""

    def __init__(self, cost: CallCost, round_: Round, autos: Sequence[Member]) -> None:
        """autos: those whose length is free; what does not change until all drafts are written is looked up once."""
        self._cost = cost
        self._round = round_
        self._hopes: list[float] = []  # ids expected of each step of all drafts together
        self._is_ours = False  # whether the next step is one of an automatic request, too
        self.all_steps_ms = 0.0
        self.steps_ms = 0.0  # of automatic requests
        self.n_steps = self.n_stepped = 0  # of these, and ids of all sequences in them
        if autos:
            self._step_ms = [cost.step_ms(n) for n in range(1, len(autos) + 1)]
            most = max([member.longest for member in autos])
            by_rows = round_.table.upto(most + 2)
            self._most_steps = int(most / cost.ids_per_step + 0.999)
            rows = [int(k * cost.ids_per_step + 1.999) for k in range(self._most_steps + 1)]
            self._costs = [by_rows[min(n, most + 2)] for n in rows]

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]], steps: Sequence[tuple[int, float]]
    ) -> Sequence[bool]:
        """See `protocol.Policy`."""
        for n_seq, seconds in steps:
            self.all_steps_ms += 1e3 * seconds
            if self._is_ours:
                self.steps_ms += 1e3 * seconds
                self.n_steps += 1
                self.n_stepped += n_seq
        for seq, p in wrote:
            member = self._round.members[seq]
            if member.calibration is not None:  # of an automatic one
                i = bin_of(p)
                member.p *= member.calibration.chance(i)
                member.bins.append(i)
                k = len(member.bins)
                if k > len(self._hopes):
                    self._hopes.append(0.0)
                self._hopes[k - 1] += member.p * self._cost.ids_per_step
        members = [self._round.members[seq] for seq in seqs]
        live = [member for member in members if not member.is_fixed]
        self._is_ours = bool(live) and self._may_continue(live)
        return [member.is_fixed or self._is_ours for member in members]

    def _may_continue(self, live: Sequence[Member]) -> bool:
        """Whether drafts some ids longer are expected to be worth more, though further steps take time."""
        cost, n_steps = self._cost, len(self._hopes)
        hopes, ahead = [member.p * cost.ids_per_step for member in live], list[float]()
        kept = [
            member.calibration.next_chance(member.bins[-1]) if member.bins and member.calibration else 1.0
            for member in live
        ]
        for _ in range(min(_LOOK_AHEAD, self._most_steps - n_steps)):
            hopes = [hope * chance for hope, chance in zip(hopes, kept, strict=True)]
            ahead.append(sum(hopes))
        spent_ms, step_ms = cost.call_ms + self.steps_ms, self._step_ms[len(live) - 1]
        return may_continue(self._hopes, ahead, self._costs, self._round.n_writing, spent_ms, step_ms)


class Asking:
    """Asks the drafters of one round, one after the other."""

    def __init__(self, known: Knowledge, round_: Round) -> None:
        self._known = known
        self._round = round_
        self._asked: list[Member] = []
        self.writing: Writing | None = None
        """The writing of the drafter that was asked last; None where it is not to write."""
        self._timed: Member | None = None  # it reads a few of its ids, to show what that costs
        self._n_read = 0  # ids that each may catch up with
        self._n_asked: dict[Origin, int] = {}  # sequences that share a call
        self._calls_ms = 0.0

    def asks(self, origin: Origin) -> Sequence[Ask]:
        """See `protocol.Policy`."""
        known, writes, members = self._known, origin in WRITERS, self._round.members.values()
        self._timed = self.writing = None  # a call that failed showed nothing of what it was asked for
        if writes:
            known.asked_in[origin] = known.n_rounds
        may = [member for member in members if member.wish.may_ask(origin)]
        fixed = [member for member in may if member.is_fixed and self._is_fixed_due(member, origin)]
        due = [member for member in may if member.state and member.state.n >= known.use(member.state, origin).next_at]
        autos = [member for member in due if self._is_worth_asking(member, origin, len(due))]
        self._asked = fixed + autos
        cost = known.drafter(origin).cost
        self._n_read = cost.read_at_once(len(members)) if autos and writes else 0
        asks = [_fixed_ask(member, writes) for member in fixed]
        for asked in autos:
            asks.append(
                Ask(asked.wish.seq, asked.longest, n_read=self._n_read)
                if writes
                else Ask(asked.wish.seq, asked.wish.room)
            )
        if writes and asks:
            for member in autos:
                assert member.state is not None
                member.calibration, member.p, member.bins = known.calibration_of(member.state, origin), 1.0, []
            self.writing = Writing(cost, self._round, autos)
        return asks if asks or not writes else self._timing(origin, may)

    def _is_fixed_due(self, member: Member, origin: Origin) -> bool:
        is_named = bool(member.wish.params.types)
        return not member.guess.ids and (is_named or origin not in self._known.weighed)

    def _is_worth_asking(self, member: Member, origin: Origin, n_due: int) -> bool:
        """Whether the drafter pays, or its budget does; if not, when that is looked at again."""
        state = member.state
        assert state is not None
        use, writes = self._known.use(state, origin), origin in WRITERS
        gain, price = self._worth(member, origin, n_due)
        if writes and member.is_sure:
            return False
        is_best = not writes or self._is_best(member, origin, gain, n_due)
        use.next_at = asked_again(use, state.n, price, gain >= 0.0, is_best)
        return use.next_at <= state.n

    def _worth(self, member: Member, origin: Origin, n_due: int) -> tuple[float, float]:
        """Plain decodes that a round is expected to gain with this drafter, and that asking it takes, reading included.
        -1: reading is not earned back.
        """
        state, plain_ms = member.state, member.plain_ms
        assert state is not None
        use = self._known.use(state, origin)
        price = use.drafter.cost.price(plain_ms, n_due)
        gain = use.saved - price
        if origin not in WRITERS:
            return gain, price
        reading = use.drafter.cost.reading(state.unread(use), plain_ms)
        is_worth_it = state.is_worth_reading(gain, reading, member.wish.n_left)
        return gain if is_worth_it else -1.0, price + reading

    def _is_best(self, member: Member, origin: Origin, gain: float, n_due: int) -> bool:
        """Whether no other drafter that writes is expected to gain more: one of them writes, the others only from their
        budgets. One that is off, left alone, or too expensive to read for, is no rival.
        """
        known, types, state = self._known, member.wish.params.types, member.state
        assert state is not None
        rivals = [rival for rival, last in known.asked_in.items() if rival is not origin and known.n_rounds - last <= 1]
        return all(
            self._worth(member, rival, n_due)[0] <= gain
            for rival in rivals
            if (not types or rival in types) and state.n >= known.use(state, rival).next_at
        )

    def _timing(self, origin: Origin, may: Sequence[Member]) -> list[Ask]:
        """Have a drafter that writes, and is left alone, read a few ids of the first sequence that has them, where
        nothing was seen of its costs for a while.
        """
        if not self._known.drafter(origin).cost.is_old:
            return []
        for member in may:
            use = member.state.uses.get(origin) if member.state else None
            if use is not None and member.state and member.state.unread(use) >= 2 * TIMED_IDS:
                self._timed = member
                return [Ask(member.wish.seq, 0, n_read=TIMED_IDS)]
        return []

    def drafted(self, seen: Drafted) -> Iterator[PricedDraft]:
        """A drafter answered what `asks` asked last: guesses for automatic requests."""
        asked, origin, drafts = self._asked, seen.origin, seen.drafts
        ms = 1e3 * seen.seconds
        self._calls_ms += ms
        if self._timed is not None:
            self._time(self._timed, origin, drafts[0].n_read, ms)
        for member, draft in zip(asked, drafts, strict=False):
            if member.is_fixed and draft.ids:
                member.guess, member.forced = (
                    (member.guess, draft) if origin is Origin.GRAMMAR else (draft, member.forced)
                )
        autos = [(member, draft) for member, draft in zip(asked, drafts, strict=False) if not member.is_fixed]
        if autos:
            yield from self._learn(origin, autos, ms, len(asked))

    def asked(self, ms: float) -> None:
        """Asking policy and drafters took so long in all: what is beside the drafters' calls is part of their price."""
        for origin in self._n_asked:
            self._known.drafter(origin).cost.asked(max(ms - self._calls_ms, 0.0) / len(self._n_asked))

    def _learn(
        self, origin: Origin, autos: Sequence[tuple[Member, Draft]], ms: float, n_asked: int
    ) -> Iterator[PricedDraft]:
        """What the call cost the automatic requests. A fixed neighbour pays its share of the call, and the steps in
        which it drafted alone.
        """
        cost, n, writing = self._known.drafter(origin).cost, len(autos), self.writing
        steps_ms = 0.0
        if writing:
            steps_ms, steps = writing.steps_ms, self._known.machine.steps(origin)
            ms = max(ms - writing.all_steps_ms, 0.0) * n / n_asked + steps_ms
            if writing.n_steps and steps.ms(1) > 0:
                steps.observe(int(writing.n_stepped / writing.n_steps + 0.5), 0, steps_ms / writing.n_steps)
            if any(member.bins for member, _ in autos):
                cost.stepped(writing.n_steps + 1)
        reading_ms = cost.called(ms - steps_ms, sum(draft.n_read for _, draft in autos), n)
        self._n_asked[origin] = n
        for member, draft in autos:
            state = member.state
            assert state is not None
            use = state.uses[origin]
            if use.is_probe:
                use.drafter.pay((ms + cost.around_ms) / n / member.plain_ms, use.is_comparison)
            n_read = draft.n_read
            is_reading = n_read >= self._n_read or (not n_read and not draft.ids and state.unread(use) > FEW_IDS)
            if writing and is_reading:
                state.has_read(use, n_read)  # it reads on, before anything can be said of its drafts
                continue
            state.has_read(use)
            if writing and member.calibration is not None:
                n_written = len(draft.ids) - draft.n_tail
                if n_written < member.longest:
                    cost.wrote(len(member.bins), n_written)
                member.calibration.drafted(member.bins)
            yield PricedDraft(member, origin, draft, (ms - reading_ms) / n, n)

    def _time(self, member: Member, origin: Origin, n_read: int, ms: float) -> None:
        """A drafter read so many ids of this sequence. Ids that its KV holds already say nothing about costs, and count
        as none.
        """
        assert member.state is not None
        use, self._timed = member.state.uses[origin], None
        if n_read:
            use.drafter.cost.timing(ms, n_read, member.plain_ms)
        member.state.has_read(use, n_read or None)


def _fixed_ask(member: Member, writes: bool) -> Ask:
    """What is asked as the request says; nothing but reading where that is no draft. What looks texts up has sizes of
    its own.
    """
    wish, params = member.wish, member.wish.params
    if params.longest <= 0:
        return Ask(wish.seq, 0, n_read=_READ_AT_ONCE)
    if not writes:
        return Ask(wish.seq, wish.room)
    return Ask(wish.seq, member.longest, params.n_min, params.p_min, _READ_AT_ONCE)
