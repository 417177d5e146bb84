"""One round: which drafters to ask, when to stop drafting, how much to submit.

A request with a fixed policy drafts as far as it says, at any cost: its drafts are worth infinitely much up to n_max.
The first drafter with a guess writes for it. Arithmetic only: no clock, no model, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from uad.base.types import WRITERS, Ask, Draft, Origin, SpecPolicy
from uad.engine.policy.calibration import Calibration, bin_of
from uad.engine.policy.choose import gains_of, may_continue, merged, rows_of
from uad.engine.policy.drafter_record import FEW_IDS, CallCost
from uad.engine.policy.knowledge import Knowledge, SequenceState
from uad.engine.policy.machine import CostTable
from uad.engine.policy.probing import TIMED_IDS, asked_again
from uad.engine.policy.protocol import Chosen, Drafted, Wish

# Ids that a draft is expected to go on beyond the next one, while it is asked whether it should: on curves with steps
# one further row may cost more than it brings, and four pay. One id instead loses 1.8 % (lab/README).
_LOOK_AHEAD: Final = 4
# Share of a looked-up guess that is expected to be accepted, from which it spares asking the draft model. Without it
# 0.4 % are lost (lab/README).
_SURE: Final = 0.8
# Ids of a backlog that a request with a fixed policy reads in a round: its text goes on meanwhile, and others wait.
_READ_AT_ONCE: Final = 256
# Decodes alike, after which one of two rows shows what larger ones cost now: a machine that was disturbed while they
# were measured would never be seen otherwise (tests/unit/policy/test_policy_recovery.py).
STALE: Final = 200
NO_DRAFT = Draft()


class Candidate(NamedTuple):
    """A drafter's guess for one sequence."""

    origin: Origin
    draft: Draft
    gains: list[float]
    """Ids expected to be accepted of the first k, by k."""
    price_ms: float
    """What asking for it cost."""
    value: float
    """Milliseconds that it is expected to save at its best length, less the price."""
    sure: float
    """The share of that length that is expected to be accepted."""


@dataclass(slots=True)
class Member:
    """A sequence that may draft in this round."""

    wish: Wish
    longest: int
    """Ids that a drafter may write for it."""
    is_fixed: bool
    table: CostTable | None = None
    """Costs of its group, which shares passes; None where nothing is known of the machine."""
    size: int = 1
    """Sequences in its group."""
    plain_ms: float = 0.0
    """Its share of a round without drafts."""
    state: SequenceState | None = None
    """None: nobody began it."""
    candidates: list[Candidate] = field(default_factory=list)
    guess: Draft = NO_DRAFT
    """Of a fixed one: what the first drafter with a guess wrote."""
    forced: Draft = NO_DRAFT
    """Of a fixed one: what a grammar forces."""
    calibration: Calibration | None = None
    """Of the drafter that writes for it now."""
    bins: list[int] = field(default_factory=list)
    """Of the beliefs that it wrote so far."""
    p: float = 1.0
    """That all of these are accepted."""

    @property
    def is_sure(self) -> bool:
        """Whether a guess was found that is worth submitting, and expected to be accepted nearly whole. What a grammar
        forces says nothing of what comes after it.
        """
        return any(one.sure >= _SURE and one.value > 0 for one in self.candidates if one.origin is not Origin.GRAMMAR)


class Round:
    """The decisions of one round, and what comes of the drafts."""

    def __init__(self, policy: Knowledge, due: Sequence[Wish] = (), wishes: Sequence[Wish] = ()) -> None:
        """due: the sequences that may draft; wishes: all that write."""
        self._policy = policy
        self._n_writing = len(wishes)
        self._members = {wish.seq: _member(self._policy, wish) for wish in due}
        autos = [member for member in self._members.values() if not member.is_fixed]
        self._groups: tuple[tuple[int, ...], ...] = ()
        if autos:
            self._look_up_costs(autos, wishes)
        self._asked: list[Member] = []
        self._timed: Member | None = None  # it reads a few of its ids, to show what that costs
        self._n_read = 0  # ids that each may catch up with
        self._n_asked: dict[Origin, int] = {}  # sequences that share a call
        self._guesses_ms = 0.0  # what all candidates cost
        self._calls_ms = 0.0  # what all calls took

    def _look_up_costs(self, autos: Sequence[Member], wishes: Sequence[Wish]) -> None:
        """Of the decode, all in all and by group."""
        table = self._policy.machine.table
        depth = sum([wish.depth for wish in wishes]) // len(wishes)
        n_pending = max([wish.n_pending for wish in wishes])
        seqs = tuple([wish.seq for wish in wishes])
        groups = self._groups = (seqs,) if self._policy.machine.is_one_pass else groups_of(seqs)
        self._table = table(tuple([len(group) for group in groups]), depth, n_pending)
        alone = len(groups) == 1
        self._tables = [self._table] if alone else [table((len(group),), depth, n_pending) for group in groups]
        for member in autos:
            i = next(i for i, group in enumerate(groups) if member.wish.seq in group)
            member.table, member.size = self._tables[i], len(groups[i])
            member.plain_ms = self._tables[i].upto(1)[1] / member.size

    # --- which drafters to ask

    def asks(self, origin: Origin) -> Sequence[Ask]:
        """See `protocol.Policy`."""
        policy, writes = self._policy, origin in WRITERS
        self._timed = None  # a call that failed showed nothing of what it was asked for
        if writes:
            policy.asked_in[origin] = policy.n_rounds
        may = [member for member in self._members.values() if member.wish.may_ask(origin)]
        fixed = [one for one in may if one.is_fixed and _is_fixed_due(self._policy, one, origin)]
        due = [one for one in may if one.state and one.state.n >= policy.use(one.state, origin).next_at]
        autos = [one for one in due if self._is_worth_asking(one, origin, len(due))]
        self._asked = fixed + autos
        self._n_read = policy.drafter(origin).cost.read_at_once(len(self._members)) if autos and writes else 0
        asks = [_fixed_ask(one, writes) for one in fixed]
        for one in autos:
            asks.append(
                Ask(one.wish.seq, one.longest, n_read=self._n_read) if writes else Ask(one.wish.seq, one.wish.room)
            )
        if writes and asks:
            self._begin_writing(origin, autos)
        return asks if asks or not writes else self._timing(origin, may)

    def _is_worth_asking(self, member: Member, origin: Origin, n_due: int) -> bool:
        """Whether the drafter pays, or its budget does; if not, when that is looked at again."""
        policy, state = self._policy, member.state
        assert state is not None
        use = policy.use(state, origin)
        gain, price = _worth(self._policy, member, origin, n_due)
        writes = origin in WRITERS
        if writes and member.is_sure:
            return False
        is_best = not writes or _is_best(self._policy, member, origin, gain, n_due)
        use.next_at = asked_again(use, state.n, price, gain >= 0.0, is_best)
        return use.next_at <= state.n

    def _timing(self, origin: Origin, may: Sequence[Member]) -> list[Ask]:
        """Have a drafter that writes, and is left alone, read a few ids of the first sequence that has them, where
        nothing was seen of its costs for a while.
        """
        if not self._policy.drafter(origin).cost.is_old:
            return []
        for member in may:
            use = member.state.uses.get(origin) if member.state else None
            if use is not None and member.state and member.state.unread(use) >= 2 * TIMED_IDS:
                self._timed = member
                return [Ask(member.wish.seq, 0, n_read=TIMED_IDS)]
        return []

    # --- while a drafter writes

    def _begin_writing(self, origin: Origin, autos: Sequence[Member]) -> None:
        """Look up once what does not change until all drafts are written."""
        cost = self._policy.drafter(origin).cost
        for member in autos:
            assert member.state is not None
            member.calibration, member.p = self._policy.calibration_of(member.state, origin), 1.0
            member.bins = []
        self._cost: CallCost = cost
        self._hopes: list[float] = []  # ids expected of each step of all drafts together
        self._is_ours = False  # whether the next step is one of an automatic request, too
        self._steps_ms = self._all_steps_ms = 0.0
        self._n_steps = self._n_stepped = 0  # steps of automatic requests, and ids of all sequences in them
        if autos:
            self._step_ms = [cost.step_ms(n) for n in range(1, len(autos) + 1)]
            most = max([member.longest for member in autos])
            by_rows = self._table.upto(most + 2)
            self._most_steps = int(most / cost.ids_per_step + 0.999)
            rows = [int(k * cost.ids_per_step + 1.999) for k in range(self._most_steps + 1)]
            self._costs = [by_rows[min(n, most + 2)] for n in rows]

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]] = (), steps: Sequence[tuple[int, float]] = ()
    ) -> Sequence[bool]:
        """See `protocol.Policy`."""
        if self._timed is not None:  # guesses that were left over
            return [False] * len(seqs)
        for n_seq, seconds in steps:
            self._all_steps_ms += 1e3 * seconds
            if self._is_ours:
                self._steps_ms += 1e3 * seconds
                self._n_steps += 1
                self._n_stepped += n_seq
        for seq, p in wrote:
            member = self._members[seq]
            if member.calibration is not None:  # of an automatic one
                i = bin_of(p)
                member.p *= member.calibration.chance(i)
                member.bins.append(i)
                k = len(member.bins)
                if k > len(self._hopes):
                    self._hopes.append(0.0)
                self._hopes[k - 1] += member.p * self._cost.ids_per_step
        members = [self._members[seq] for seq in seqs]
        live = [one for one in members if not one.is_fixed]
        self._is_ours = bool(live) and self._may_continue(live)
        return [one.is_fixed or self._is_ours for one in members]

    def _may_continue(self, live: Sequence[Member]) -> bool:
        """Whether drafts some ids longer are expected to be worth more, though further steps take time."""
        cost, n_steps = self._cost, len(self._hopes)
        hopes, ahead = [one.p * cost.ids_per_step for one in live], list[float]()
        kept = [one.calibration.next_chance(one.bins[-1]) if one.bins and one.calibration else 1.0 for one in live]
        for _ in range(min(_LOOK_AHEAD, self._most_steps - n_steps)):
            hopes = [hope * chance for hope, chance in zip(hopes, kept, strict=True)]
            ahead.append(sum(hopes))
        spent_ms, step_ms = cost.call_ms + self._steps_ms, self._step_ms[len(live) - 1]
        return may_continue(self._hopes, ahead, self._costs, self._n_writing, spent_ms, step_ms)

    # --- what came of it

    def drafted(self, seen: Drafted) -> None:
        """A drafter answered what `asks` asked last."""
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
            self._learn(origin, autos, ms, len(asked))

    def asked(self, ms: float) -> None:
        """Asking policy and drafters took so long in all: what is beside the drafters' calls is part of their price."""
        for origin in self._n_asked:
            self._policy.drafter(origin).cost.asked(max(ms - self._calls_ms, 0.0) / len(self._n_asked))

    def _learn(self, origin: Origin, autos: Sequence[tuple[Member, Draft]], ms: float, n_asked: int) -> None:
        """What the call cost the automatic requests, and what each draft may be worth. A fixed neighbour pays its share
        of the call, and the steps in which it drafted alone.
        """
        policy, cost, n, writes = self._policy, self._policy.drafter(origin).cost, len(autos), origin in WRITERS
        steps_ms = 0.0
        if writes:
            steps_ms, steps = self._steps_ms, policy.machine.steps(origin)
            ms = max(ms - self._all_steps_ms, 0.0) * n / n_asked + steps_ms
            if self._n_steps and steps.ms(1) > 0:
                steps.observe(int(self._n_stepped / self._n_steps + 0.5), 0, steps_ms / self._n_steps)
            if any(member.bins for member, _ in autos):
                cost.stepped(self._n_steps + 1)
        call_ms = ms - steps_ms
        reading_ms = cost.called(call_ms, sum(draft.n_read for _, draft in autos), n)
        self._n_asked[origin] = n
        price_ms = (ms - reading_ms) / n
        for member, draft in autos:
            state = member.state
            assert state is not None
            use = state.uses[origin]
            if use.is_probe:
                use.drafter.pay((ms + cost.around_ms) / n / member.plain_ms, use.is_comparison)
            n_read = draft.n_read
            is_reading = n_read >= self._n_read or (not n_read and not draft.ids and state.unread(use) > FEW_IDS)
            if writes and is_reading:
                state.has_read(use, n_read)  # it reads on, before anything can be said of its drafts
                continue
            state.has_read(use)
            if writes and member.calibration is not None:
                n_written = len(draft.ids) - draft.n_tail
                if n_written < member.longest:
                    cost.wrote(len(member.bins), n_written)
                member.calibration.drafted(member.bins)
            self._guesses_ms += price_ms
            member.candidates.append(_candidate(self._policy, member, origin, draft, price_ms))

    def _time(self, member: Member, origin: Origin, n_read: int, ms: float) -> None:
        """A drafter read so many ids of this sequence. Ids that its KV holds already say nothing about costs, and count
        as none.
        """
        assert member.state is not None
        use, self._timed = member.state.uses[origin], None
        if n_read:
            use.drafter.cost.timing(ms, n_read, member.plain_ms)
        member.state.has_read(use, n_read or None)

    def choose(self) -> Mapping[int, Chosen]:
        """See `protocol.Policy`."""
        chosen = self._choose_auto() if self._groups else {}
        for seq, member in self._members.items():
            draft = max(member.guess, member.forced, key=lambda one: len(one.ids))
            if draft.ids:
                chosen[seq] = Chosen(draft)
        return chosen

    def _choose_auto(self) -> dict[int, Chosen]:
        chosen: dict[int, Chosen] = {}
        gains = [_gains(self._members, group) for group in self._groups]
        costs = [table.upto(len(one)) for table, one in zip(self._tables, gains, strict=True)]
        rows = rows_of(gains, costs, self._n_writing, self._guesses_ms)
        for group, table, n in zip(self._groups, self._tables, rows, strict=True):
            if n > 1:
                _submit(self._members, chosen, group, n, table)
            self._judge(group, n, table)
        machine = self._policy.machine
        if not chosen and machine.n_free > 0 and machine.target.n_alike(self._n_writing) >= STALE:
            return dict.fromkeys(self._groups[0], Chosen(NO_DRAFT, 2))
        return chosen

    def _judge(self, group: Sequence[int], n: int, table: CostTable) -> None:
        """What each guess saved. Alone that is what its best length is expected to save. In a group it is a share of
        what the common number of rows is: but a drafter that is asked again counts as if the others' guesses were like
        its own, or several would never start together.
        """
        costs, total = table.upto(n), _gains(self._members, group)[n - 1]
        growth = (costs[n] - costs[1]) / total if total > 0 else 0.0  # of the decode, for each id that is expected
        for member in [self._members[seq] for seq in group if seq in self._members]:
            state = member.state
            if state is None:
                continue
            for one in member.candidates:
                use = state.uses[one.origin]
                saved_ms = one.value + one.price_ms
                if len(group) > 1 and not use.is_probe:
                    saved_ms = one.gains[min(n - 1, len(one.gains) - 1)] * (member.plain_ms - growth)
                price = use.drafter.cost.price(member.plain_ms, self._n_asked[one.origin])
                pays = use.judged(saved_ms / member.plain_ms, price)
                use.next_at = asked_again(use, state.n, price, pays, was_asked=True)


def _worth(policy: Knowledge, member: Member, origin: Origin, n_due: int) -> tuple[float, float]:
    """Plain decodes that a round is expected to gain with this drafter, and that asking it takes, reading included.
    -1: reading is not earned back.
    """
    state, plain_ms = member.state, member.plain_ms
    assert state is not None
    use = policy.use(state, origin)
    price = use.drafter.cost.price(plain_ms, n_due)
    gain = use.saved - price
    if origin not in WRITERS:
        return gain, price
    reading = use.drafter.cost.reading(state.unread(use), plain_ms)
    is_worth_it = policy.is_worth_reading(state, gain, reading, member.wish.n_left)
    return gain if is_worth_it else -1.0, price + reading


def _is_best(policy: Knowledge, member: Member, origin: Origin, gain: float, n_due: int) -> bool:
    """Whether no other drafter that writes is expected to gain more: one of them writes, the others only from their
    budgets. One that is off, left alone, or too expensive to read for, is no rival.
    """
    types, state = member.wish.params.types, member.state
    assert state is not None
    rivals = [one for one, last in policy.asked_in.items() if one is not origin and policy.n_rounds - last <= 1]
    return all(
        _worth(policy, member, one, n_due)[0] <= gain
        for one in rivals
        if (not types or one in types) and state.n >= policy.use(state, one).next_at
    )


def _candidate(policy: Knowledge, member: Member, origin: Origin, draft: Draft, price_ms: float) -> Candidate:
    state, table = member.state, member.table
    assert state is not None
    assert table is not None
    writes = origin in WRITERS
    calibration = policy.calibration_of(state, origin) if writes else policy.calibration_for(state, draft)
    bins = [bin_of(belief) for belief in draft.p]
    n = len(bins) - draft.n_tail
    state.uses[origin].follow(draft.ids[:n], bins[:n], calibration)
    chances = [calibration.chance(i) for i in bins[:n]]
    if draft.n_tail:
        tail = policy.calibration(draft.kind)
        chances += [tail.chance(i) for i in bins[n:]]
    gains = gains_of(chances)
    costs = table.upto(len(gains))
    saved = [gain * costs[1] - cost + costs[1] for gain, cost in zip(gains, costs[1:], strict=False)]
    length = saved.index(max(saved))
    sure = gains[length] / length if length else 0.0
    return Candidate(origin, draft, gains, price_ms, saved[length] / member.size - price_ms, sure)


def _gains(members: Mapping[int, Member], group: Sequence[int]) -> list[float]:
    """Ids expected beyond one each, by the number of drafted rows of each sequence."""
    drafting = [members[seq] for seq in group if seq in members and members[seq].candidates]
    return merged([merged([one.gains for one in member.candidates], max) for member in drafting], sum)


def _member(policy: Knowledge, wish: Wish) -> Member:
    params = wish.params
    is_fixed = policy.is_fixed or params.policy is SpecPolicy.FIXED
    longest = min(params.longest, wish.room)
    return Member(wish, longest, is_fixed, state=None if is_fixed else policy.state(wish.seq))


def _submit(
    members: Mapping[int, Member], chosen: dict[int, Chosen], group: Sequence[int], n: int, table: CostTable
) -> None:
    """Cut the group's drafts to so many rows."""
    n_rows = table.level(n)
    n_rows = n_rows if len(group) > 1 or n_rows > n else 0
    for seq in group:
        member, draft = members.get(seq), NO_DRAFT
        if member is not None and member.candidates:
            draft = _best_of(member.candidates, n - 1)
        if draft.ids or n_rows:
            chosen[seq] = Chosen(draft, n_rows)


def _is_fixed_due(policy: Knowledge, member: Member, origin: Origin) -> bool:
    is_named = bool(member.wish.params.types)
    return not member.guess.ids and (is_named or origin not in policy.weighed)


def _fixed_ask(member: Member, writes: bool) -> Ask:
    """As its request says; nothing but reading where that is no draft. What looks texts up has sizes of its own."""
    wish, params = member.wish, member.wish.params
    if params.longest <= 0:
        return Ask(wish.seq, 0, n_read=_READ_AT_ONCE)
    if not writes:
        return Ask(wish.seq, wish.room)
    return Ask(wish.seq, member.longest, params.n_min, params.p_min, _READ_AT_ONCE)


def _best_of(candidates: Sequence[Candidate], n: int) -> Draft:
    """Of the guesses the n ids that gain most. Where the request's prediction has the same ids, they count as its."""
    best = max(candidates, key=lambda one: one.gains[min(n, len(one.gains) - 1)]).draft.first(n)
    same = [one.draft for one in candidates if one.draft.ids[: len(best.ids)] == best.ids]
    own = next((one for one in same if one.origin is Origin.PREDICTION), None)
    return best if own is None else own.first(len(best.ids))


@lru_cache(maxsize=256)
def groups_of(seqs: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Consecutively numbered sequences, which share passes."""
    out: list[list[int]] = []
    for seq in sorted(seqs):
        if out and seq == out[-1][-1] + 1:
            out[-1].append(seq)
        else:
            out.append([seq])
    return tuple(map(tuple, out))
