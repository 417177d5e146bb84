"""One round of the automatic policy: which drafters to ask, when to stop drafting, how much to submit.

With k drafted rows a round costs T(1 + k), and the drafting. It is expected to bring 1 + sum over i <= k of p1 p2 … pi
ids, where pi is the calibrated probability of the i-th id. The draft is written as long as a further id is expected to
raise ids per millisecond; the number of rows is submitted at which they are highest. Arithmetic only: no clock, no
model, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from uad.policy.calibration import Calibration, bin_of
from uad.policy.drafter import FEW_IDS, TIMED_IDS
from uad.policy.gains import Candidate, best_level, best_of, gains_of, merged, own_of
from uad.policy.machine import RoundTable
from uad.policy.member import Member
from uad.policy.protocol import Chosen, Wish
from uad.policy.sequences import STALE, Sequences
from uad.types import WRITERS, Ask, Draft, Origin

_LOOK_AHEAD: Final = 4  # ids: on curves with steps one further row may cost more than it brings, and four pay
_HOPELESS: Final = 0.02  # a guess less likely than this is not worth looking beyond
# times the rate without drafts: else a curve on which single rows are too expensive has every guess submitted, for ever
_CLEAR: Final = 1.03
_NO_GAIN: Final = 1 + 1e-9
_LITTLE: Final = 0.1  # plain decodes: a drafter that saves less would not pay at any cost that is worth finding out
_ALL: Final = 1 << 30  # ids: look-ups read at once
_MODEL: Final = Origin.MODEL  # members of an enum are slow to reach
_GRAMMAR: Final = Origin.GRAMMAR
_NONE: Final = Calibration()  # of a drafter that does not write
NO_DRAFT: Final = Draft()
_TWO_ROWS: Final = Chosen(NO_DRAFT, 2)


class AutoRound:
    """The decisions of one round."""

    def __init__(self, policy: Sequences, due: Sequence[Wish], wishes: Sequence[Wish]) -> None:
        self._policy = policy
        policy.n_rounds += 1
        machine = policy.machine
        self._n_writing = len(wishes)
        depth = sum([wish.depth for wish in wishes]) // len(wishes)
        self._groups = groups_of(tuple([wish.seq for wish in wishes]))
        n_pending = max([wish.n_pending for wish in wishes])
        self._table = machine.table(tuple([len(group) for group in self._groups]), depth, n_pending)
        alone = len(self._groups) == 1
        self._tables = (
            [self._table] if alone else [machine.table((len(group),), depth, n_pending) for group in self._groups]
        )
        self._members = {wish.seq: self._member(wish) for wish in due}
        self._asked: list[Member] = []
        self._timed: Member | None = None  # a drafter reads a few of its ids, to show what that costs
        self._n_asked: dict[Origin, int] = {}  # sequences that share a call
        self._n_read = 0  # ids that each may catch up with
        self._most = 0  # ids of the drafter that writes, for any
        self._guesses_ms = 0.0  # what all candidates cost
        self._spent_ms = 0.0  # on drafts of the drafter that writes, so far
        self._steps_ms = 0.0  # of that, in its steps
        self._n_steps = self._n_stepped = 0  # and ids of all sequences in them

    def _member(self, wish: Wish) -> Member:
        state = self._policy.state(wish.seq)
        i = next(i for i, group in enumerate(self._groups) if wish.seq in group)
        return Member(wish, state, self._tables[i], len(self._groups[i]), _NONE)

    # --- which drafters to ask

    def asks(self, origin: Origin) -> Sequence[Ask]:
        self._asked, self._timed, asks = [], None, []  # a call that failed showed nothing of what it was asked for
        writes = origin in WRITERS
        if writes:
            self._policy.asked_in[origin] = self._policy.n_rounds
        self._n_read = self._policy.drafter(origin).cost.read_at_once(len(self._members)) if writes else _ALL
        due = [member for member in self._members.values() if self._is_due(member, origin)]
        for member in due:
            if not self._is_asked(member, origin, len(due)):
                continue
            wish = member.wish
            self._asked.append(member)
            asks.append(Ask(wish.seq, member.longest, 0, 0.0, self._n_read) if writes else Ask(wish.seq, wish.room))
            self._most = max(self._most, member.longest)
        if writes:
            if not self._asked:
                return self._timing(origin)
            self._begin_writing(origin)
        return asks

    def _is_due(self, member: Member, origin: Origin) -> bool:
        return member.wish.may_ask(origin) and member.state.n >= self._policy.use(member.state, origin).next_at

    def _is_asked(self, member: Member, origin: Origin, n_due: int) -> bool:
        policy, state, plain_ms = self._policy, member.state, member.plain_ms
        use = policy.use(state, origin)
        price, reading = policy.price(origin, plain_ms, n_due), 0.0
        use.is_probe = use.is_comparison = False
        pays = use.saved >= price
        if origin in WRITERS:
            if member.is_sure:
                return False
            pays = pays and policy.is_worth_reading(state, use, price, plain_ms, member.wish.n_left, origin)
            reading = policy.reading(state, use, plain_ms, origin)
            if len(policy.asked_in) > 1 and not self._is_best(member, origin, use.saved - price, n_due):
                return use.can_compare(state.n, price + reading)
        return pays or use.can_pay(state.n, price + reading)

    def _is_best(self, member: Member, origin: Origin, gain: float, n_due: int) -> bool:
        """Whether no other drafter that writes is expected to gain more plain decodes in a round: one of them writes,
        the others only from their budgets. One that is off, or too expensive to read for, is no rival.
        """
        types, policy = member.wish.params.types, self._policy
        return all(
            self._gain(member, one, n_due) <= gain
            for one, last in policy.asked_in.items()
            if one is not origin and policy.n_rounds - last <= 1 and (not types or one in types)
        )

    def _gain(self, member: Member, origin: Origin, n_due: int) -> float:
        """Plain decodes that a round is expected to gain with this drafter, where it pays."""
        policy, state, plain_ms = self._policy, member.state, member.plain_ms
        use, price = policy.use(state, origin), policy.price(origin, plain_ms, n_due)
        if state.n < use.next_at:
            return 0.0
        pays = policy.is_worth_reading(state, use, price, plain_ms, member.wish.n_left, origin)
        return use.saved - price if pays else 0.0

    def _timing(self, origin: Origin) -> list[Ask]:
        """Have a drafter that writes, and is left alone, read a few ids of the first sequence that has them, where
        nothing was seen of its costs for a while: a machine that was disturbed would leave it alone for ever.
        """
        if not self._policy.drafter(origin).cost.is_old:
            return []
        for member in self._members.values():
            use, state = member.state.uses.get(origin), member.state
            if use is not None and use.saved > _LITTLE and state.unread(use) >= 2 * TIMED_IDS:
                self._timed = member
                return [Ask(member.wish.seq, 0, 0, 0.0, TIMED_IDS)]
        return []

    # --- while a drafter writes

    def _begin_writing(self, origin: Origin) -> None:
        """Look up once what does not change until all drafts are written."""
        cost = self._policy.drafter(origin).cost
        for member in self._asked:
            member.begin(self._policy.calibration_of(member.state, origin))
        self._steps_ms, self._n_steps, self._n_stepped = 0.0, 0, 0
        self._step_ms = [self._policy.step_ms(n, origin) for n in range(1, len(self._asked) + 1)]
        self._per_step = cost.ids_per_step
        self._costs, self._n_costs = self._table.upto(self._most + 2), self._most + 2
        self._spent_ms = cost.call_ms
        self._by_step: list[float] = []  # ids expected from the k-th id of all drafts together
        self._start_over()

    def _start_over(self) -> None:
        """No id is part of the best so far."""
        self._n_seen = 0
        self._total = self._best_ids = float(self._n_writing)
        self._best_ms = self._costs[1]

    def wrote(self, seq: int, p: float) -> None:
        member = self._members[seq]
        if member is self._timed:
            return
        i = bin_of(p)
        member.bins.append(i)
        member.p *= member.calibration.chance(i)
        k, hope = len(member.bins), member.p * self._per_step
        if k > len(self._by_step):
            self._by_step.append(hope)
            return
        self._by_step[k - 1] += hope
        if k <= self._n_seen:
            self._start_over()

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        self._look_back()
        members = [self._members[seq] for seq in seqs]
        live = [one for one in members if one.p > _HOPELESS]
        if not live or not self._can_rise(live):
            return [False] * len(members)
        return [True] * len(members) if len(live) == len(members) else [one.p > _HOPELESS for one in members]

    def _ms(self, n_steps: float) -> float:
        """The decode of drafts of so many steps."""
        n = int(n_steps * self._per_step + 1.999)
        return self._costs[n] if n < self._n_costs else self._costs[self._n_costs]

    def _look_back(self) -> None:
        """The best length so far, by the cost of its decode and of all drafting."""
        spent = self._spent_ms
        for k in range(self._n_seen, len(self._by_step)):
            self._total += self._by_step[k]
            ms = self._ms(k + 1.0)
            if self._total * (self._best_ms + spent) > self._best_ids * (ms + spent):
                self._best_ids, self._best_ms = self._total, ms
        self._n_seen = len(self._by_step)

    def _can_rise(self, live: list[Member]) -> bool:
        """Whether a draft some ids longer is expected to be worth more than the best so far, though it costs further
        steps.
        """
        n_steps = max([len(one.bins) for one in live])
        step_ms, ids, spent = self._step_ms[len(live) - 1], self._total, self._spent_ms
        best_ids, best_ms = self._best_ids, self._best_ms + spent
        hopes = [one.p * self._per_step for one in live]
        kept = [one.calibration.next_chance(one.bins[-1]) if one.bins else 1.0 for one in live]
        for h in range(1, min(_LOOK_AHEAD, int(self._most / self._per_step + 0.999) - n_steps) + 1):
            spent += step_ms
            hopes = [p * chance for p, chance in zip(hopes, kept, strict=True)]
            ids += sum(hopes)
            if ids * best_ms > best_ids * (self._ms(float(n_steps + h)) + spent):
                return True
        return False

    def stepped(self, n_seq: int, seconds: float) -> None:
        ms = 1e3 * seconds
        self._spent_ms += ms
        self._steps_ms += ms
        self._n_steps += 1
        self._n_stepped += n_seq

    # --- what came of it

    def proposed(self, origin: Origin, drafts: Sequence[Draft], seconds: float) -> None:
        policy, asked, cost = self._policy, self._asked, self._policy.drafter(origin).cost
        if self._timed is not None:
            self._time(self._timed, origin, drafts[0].n_read, 1e3 * seconds)
        if not asked:
            return
        writes = origin in WRITERS
        steps_ms, steps = (self._steps_ms if writes else 0.0), policy.machine.steps(origin)
        if writes and self._n_steps and steps.ms(1) > 0:
            steps.observe(int(self._n_stepped / self._n_steps + 0.5), 0, steps_ms / self._n_steps)
        call_ms = max(1e3 * seconds - steps_ms, 0.0)
        reads = [draft.n_read for draft in drafts]
        reading_ms = cost.called(call_ms, sum(reads), len(asked))
        self._n_asked[origin] = len(asked)
        price_ms = (call_ms - reading_ms + steps_ms) / len(asked)
        if writes and any(member.bins for member in asked):
            cost.stepped(self._n_steps + 1)
        for member, draft, n_read in zip(asked, drafts, reads, strict=True):
            state, use = member.state, member.state.uses[origin]
            if use.is_probe:
                use.pay(1e3 * seconds / len(asked) / member.plain_ms)
            if writes and (n_read >= self._n_read or (not n_read and not draft.ids and state.unread(use) > FEW_IDS)):
                state.has_read(use, n_read)  # it reads on, before anything can be said of its drafts
                use.is_probe = False
                continue
            state.has_read_all(use)
            if writes:
                n_written = len(draft.ids) - draft.n_tail
                if n_written < member.longest:
                    cost.wrote(len(member.bins), n_written)
                member.calibration.drafted(member.bins)
            self._guesses_ms += price_ms
            member.candidates.append(self._candidate(member, origin, draft, price_ms))

    def _time(self, member: Member, origin: Origin, n_read: int, ms: float) -> None:
        """A drafter read so many ids of this sequence. Ids that its KV holds already say nothing about costs, and count
        as none.
        """
        use, state, self._timed = member.state.uses[origin], member.state, None
        if n_read:
            use.drafter.cost.timing(ms, n_read, member.plain_ms)
            state.has_read(use, n_read)
        else:
            state.has_read_all(use)

    def _candidate(self, member: Member, origin: Origin, draft: Draft, price_ms: float) -> Candidate:
        calibration = member.calibration if origin in WRITERS else self._policy.calibration_for(member.state, draft)
        bins = [bin_of(belief) for belief in draft.p]
        if draft.n_tail:
            n = len(bins) - draft.n_tail
            member.state.uses[origin].follow(draft.ids[:n], bins[:n], calibration)
            its = self._policy.calibration(draft.kind)
            gains = gains_of([calibration.chance(i) for i in bins[:n]] + [its.chance(i) for i in bins[n:]])
        else:
            member.state.uses[origin].follow(draft.ids, bins, calibration)
            gains = gains_of([calibration.chance(i) for i in bins])
        costs = member.table.upto(len(gains))
        saved = [gain * costs[1] - cost + costs[1] for gain, cost in zip(gains, costs[1:], strict=False)]
        length = saved.index(max(saved))
        sure = gains[length] / length if length else 0.0
        return Candidate(origin, draft, gains, price_ms, saved[length] / member.size - price_ms, sure)

    def choose(self) -> Mapping[int, Chosen]:
        chosen: dict[int, Chosen] = {}
        for group, table, level in zip(self._groups, self._tables, self._levels(), strict=True):
            if level > 1:
                self._submit(chosen, group, level, table)
            self._judge(group, level, table)
        if (
            not chosen
            and self._groups
            and self._policy.machine.n_free > 0
            and self._policy.machine.target.n_alike(self._n_writing) >= STALE
        ):
            return dict.fromkeys(self._groups[0], _TWO_ROWS)
        return chosen

    def _judge(self, group: Sequence[int], level: int, table: RoundTable) -> None:
        """What each guess saved. Alone that is what its best length is expected to save. In a group it is a share of
        what the common level is: but a drafter that is asked again counts as if the others' guesses were like its own,
        or several would never start together.
        """
        costs, total = table.upto(level), self._gains(group)[level - 1]
        growth = (costs[level] - costs[1]) / total if total > 0 else 0.0  # of the decode, for each id that is expected
        for member in [self._members[seq] for seq in group if seq in self._members]:
            for one in member.candidates:
                use = member.state.uses[one.origin]
                saved_ms = one.value + one.price_ms
                if len(group) > 1 and not use.is_probe:
                    gain = one.gains[min(level - 1, len(one.gains) - 1)]
                    saved_ms = gain * (member.plain_ms - growth)
                price = self._policy.price(one.origin, member.plain_ms, self._n_asked[one.origin])
                use.judged(saved_ms / member.plain_ms, price, member.state.n)
            member.state.planned()

    def _levels(self) -> list[int]:
        """Rows of each sequence, by group: the highest ids per millisecond over all groups (Dinkelbach's iteration), or
        one each.
        """
        groups = [self._gains(group) for group in self._groups]
        costs = [table.upto(len(gains)) for table, gains in zip(self._tables, groups, strict=True)]
        fixed_ms = self._guesses_ms - self._policy.machine.overhead_ms * (len(groups) - 1)
        levels, ms = [1] * len(groups), fixed_ms + sum([cost[1] for cost in costs])
        if ms <= 0:
            return levels
        rate = _CLEAR * self._n_writing / ms
        while True:
            better, ids, ms = [], float(self._n_writing), fixed_ms
            for gains, cost in zip(groups, costs, strict=True):
                n = best_level(gains, cost, rate)
                better.append(n)
                ids += gains[n - 1]
                ms += cost[n]
            if ms <= 0 or ids <= rate * ms * _NO_GAIN:
                return levels
            levels, rate = better, ids / ms

    def _gains(self, group: Sequence[int]) -> list[float]:
        """Ids expected beyond one each, by the number of drafted rows of each sequence."""
        drafting = [self._members[seq] for seq in group if seq in self._members and self._members[seq].candidates]
        return merged([merged([one.gains for one in member.candidates], max) for member in drafting], sum)

    def _submit(self, chosen: dict[int, Chosen], group: Sequence[int], level: int, table: RoundTable) -> None:
        """Cut the group's drafts to this level."""
        n_rows = table.level(level)
        n_rows = n_rows if len(group) > 1 or n_rows > level else 0
        for seq in group:
            member, draft = self._members.get(seq), NO_DRAFT
            if member is not None and member.candidates:
                draft = own_of(member.candidates, best_of(member.candidates, level - 1).draft.first(level - 1))
            if draft.ids or n_rows:
                chosen[seq] = Chosen(draft, n_rows)


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
