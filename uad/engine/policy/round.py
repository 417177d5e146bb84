"""One round: which drafters are asked, what their calls cost, and what is submitted of their guesses.

A request with a fixed policy drafts as far as it says, at any cost: its drafts are worth infinitely much up to n_max.
The first drafter with a guess writes for it. Arithmetic only: no clock, no model, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from uad.base.types import WRITERS, Ask, Draft, Origin
from uad.engine.policy.calibration import bin_of
from uad.engine.policy.choose import gains_of, merged, rows_of
from uad.engine.policy.drafter import FEW_IDS, asked_again
from uad.engine.policy.knowledge import Knowledge
from uad.engine.policy.machine import CostTable
from uad.engine.policy.members import Automatic, Candidate, Fixed
from uad.engine.policy.protocol import Chosen, Drafted, Wish
from uad.engine.policy.writing import Writing

# Share of a looked-up guess that is expected to be accepted, from which it spares asking the draft model. Without it
# 0.4 % are lost (lab/README).
_SURE: Final = 0.8


class Round:
    """The sequences of one round, and its drafters, which are asked one after the other."""

    def __init__(self, known: Knowledge, due: Sequence[Wish] = (), wishes: Sequence[Wish] = ()) -> None:
        """due: the sequences that may draft; wishes: all that write."""
        self._known = known
        self._n_writing = len(wishes)
        self._fixed = [Fixed(wish) for wish in due if known.drafts_as_said(wish)]
        self._groups: tuple[tuple[int, ...], ...] = ()  # sequences that share passes; none where all are fixed
        self._tables: list[CostTable] = []
        autos = [wish for wish in due if not known.drafts_as_said(wish)]
        self._autos = self._priced(autos, wishes) if autos else {}
        self._asked: tuple[Sequence[Fixed], Sequence[Automatic]] = ((), ())
        self._writing: Writing | None = None  # of the drafter that was asked last; None where it is not to write
        self._timed: Automatic | None = None  # it reads a few of its ids, to show what that costs
        self._n_read = 0  # ids that each may catch up with
        self._n_asked: dict[Origin, int] = {}  # sequences that share a call
        self._calls_ms = 0.0
        self._guesses_ms = 0.0  # what all candidates cost

    def _priced(self, autos: Sequence[Wish], wishes: Sequence[Wish]) -> dict[int, Automatic]:
        """The sequences that draft as far as it pays, with what rows cost in their groups."""
        machine = self._known.machine
        seqs = tuple([wish.seq for wish in wishes])
        depth = sum([wish.depth for wish in wishes]) // len(wishes)
        n_pending = max([wish.n_pending for wish in wishes])
        groups = self._groups = (seqs,) if machine.is_one_pass else groups_of(seqs)
        tables = self._tables = [machine.table((len(group),), depth, n_pending) for group in groups]
        sizes = tuple([len(group) for group in groups])
        self._table = tables[0] if len(groups) == 1 else machine.table(sizes, depth, n_pending)
        out = {}
        for wish in autos:
            i = next(i for i, group in enumerate(groups) if wish.seq in group)
            plain_ms = tables[i].upto(1)[1] / sizes[i]
            longest = min(wish.params.longest, wish.room)
            out[wish.seq] = Automatic(wish, self._known.states[wish.seq], longest, tables[i], sizes[i], plain_ms)
        return out

    # --- who is asked

    def asks(self, origin: Origin) -> Sequence[Ask]:
        """See `protocol.Policy`."""
        known, writes = self._known, origin in WRITERS
        self._timed = self._writing = None  # a call that failed showed nothing of what it was asked for
        if writes:
            known.asked_in[origin] = known.n_rounds
        fixed = [member for member in self._fixed if member.wish.may_ask(origin) and self._is_fixed_due(member, origin)]
        may = [member for member in self._autos.values() if member.wish.may_ask(origin)]
        due = [member for member in may if member.state.n >= known.use(member.state, origin, member.table).next_at]
        autos = [member for member in due if self._is_worth_asking(member, origin, len(due))]
        self._asked = fixed, autos
        cost = known.drafter(origin).cost
        self._n_read = cost.read_at_once(len(self._fixed) + len(self._autos)) if autos and writes else 0
        asks = [member.ask(writes) for member in fixed]
        for auto in autos:
            asks.append(Ask(auto.wish.seq, auto.longest if writes else auto.wish.room, n_read=self._n_read))
        if writes and asks:
            for auto in autos:
                auto.calibration, auto.p, auto.bins = known.calibration_of(auto.state, origin), 1.0, []
            self._writing = Writing(cost, self._table if autos else None, self._n_writing, autos)
        return asks if asks or not writes else self._timing(origin, may)

    def _is_fixed_due(self, member: Fixed, origin: Origin) -> bool:
        return not member.guess.ids and (bool(member.wish.params.types) or origin not in self._known.weighed)

    def _is_worth_asking(self, member: Automatic, origin: Origin, n_due: int) -> bool:
        """Whether the drafter pays, or its budget does; if not, when that is looked at again."""
        use, writes = member.state.uses[origin], origin in WRITERS
        gain, price = self._worth(member, origin, n_due)
        if writes and member.is_sure:
            return False
        is_best = not writes or self._is_best(member, origin, gain, n_due)
        use.next_at = asked_again(use, member.state.n, price, gain >= 0.0, is_best)
        return use.next_at <= member.state.n

    def _worth(self, member: Automatic, origin: Origin, n_due: int) -> tuple[float, float]:
        """Plain decodes that a round is expected to gain with this drafter, and that asking it takes, reading included.
        -1: reading is not earned back.
        """
        state, use = member.state, member.state.uses[origin]
        price = use.drafter.cost.price(member.plain_ms, n_due)
        gain = use.saved - price
        if origin not in WRITERS:
            return gain, price
        reading = use.drafter.cost.reading(state.unread(use), member.plain_ms)
        return gain if state.is_worth_reading(gain, reading, member.wish.n_left) else -1.0, price + reading

    def _is_best(self, member: Automatic, origin: Origin, gain: float, n_due: int) -> bool:
        """Whether no other drafter that writes is expected to gain more: one of them writes, the others only from their
        budgets. One that is off, left alone, or too expensive to read for, is no rival.
        """
        known, types, state = self._known, member.wish.params.types, member.state
        rivals = [rival for rival, last in known.asked_in.items() if rival is not origin and known.n_rounds - last <= 1]
        return all(
            self._worth(member, rival, n_due)[0] <= gain
            for rival in rivals
            if (not types or rival in types) and state.n >= known.use(state, rival, member.table).next_at
        )

    def _timing(self, origin: Origin, may: Sequence[Automatic]) -> list[Ask]:
        """Have a drafter that writes, and is left alone, read a few ids of the first sequence that has them, where
        nothing was seen of its costs for a while.
        """
        if not self._known.drafter(origin).cost.is_old:
            return []
        for member in may:
            if member.state.unread(member.state.uses[origin]) >= FEW_IDS:
                self._timed = member
                return [Ask(member.wish.seq, 0, n_read=2)]
        return []

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]], steps: Sequence[tuple[int, float]]
    ) -> Sequence[bool]:
        """See `protocol.Policy`."""
        # without a writing: guesses that were left over
        return self._writing.more(seqs, wrote, steps) if self._writing else [False] * len(seqs)

    # --- what calls cost, and what came of them

    def drafted(self, seen: Drafted) -> None:
        """A drafter answered what `asks` asked last."""
        (fixed, autos), origin, drafts = self._asked, seen.origin, seen.drafts
        ms = 1e3 * seen.seconds
        self._calls_ms += ms
        if self._timed is not None:
            self._time(self._timed, origin, drafts[0].n_read, ms)
        for member, draft in zip(fixed, drafts, strict=False):
            if draft.ids and origin is Origin.GRAMMAR:
                member.forced = draft
            elif draft.ids:
                member.guess = draft
        if autos:
            self._learn(origin, list(zip(autos, drafts[len(fixed) :], strict=False)), ms, len(fixed))

    def asked(self, ms: float) -> None:
        """Asking policy and drafters took so long in all: what is beside the drafters' calls is part of their price."""
        for origin in self._n_asked:
            self._known.drafter(origin).cost.asked(max(ms - self._calls_ms, 0.0) / len(self._n_asked))

    def _learn(self, origin: Origin, autos: Sequence[tuple[Automatic, Draft]], ms: float, n_fixed: int) -> None:
        """What the call cost the automatic requests. A fixed neighbour pays its share of the call, and the steps in
        which it drafted alone.
        """
        cost, n, writing = self._known.drafter(origin).cost, len(autos), self._writing
        steps_ms = 0.0
        if writing:
            steps_ms, steps = writing.steps_ms, self._known.machine.steps(origin)
            ms = max(ms - writing.all_steps_ms, 0.0) * n / (n + n_fixed) + steps_ms
            if writing.n_steps and steps.ms(1) > 0:
                steps.observe(int(writing.n_stepped / writing.n_steps + 0.5), 0, steps_ms / writing.n_steps)
            if any(member.bins for member, _ in autos):
                cost.stepped(writing.n_steps + 1)
        reading_ms = cost.called(ms - steps_ms, sum(draft.n_read for _, draft in autos), n)
        self._n_asked[origin] = n
        for member, draft in autos:
            state, use = member.state, member.state.uses[origin]
            if use.is_probe:
                use.drafter.pay((ms + cost.around_ms) / n / member.plain_ms, use.is_comparison)
            n_read = draft.n_read
            is_reading = n_read >= self._n_read or (not n_read and not draft.ids and state.unread(use) > FEW_IDS)
            if writing and is_reading:
                state.has_read(use, n_read)  # it reads on, before anything can be said of its drafts
                continue
            state.has_read(use)
            if writing:
                member.calibration.drafted(member.bins)
            self._weigh(member, origin, draft, (ms - reading_ms) / n)

    def _time(self, member: Automatic, origin: Origin, n_read: int, ms: float) -> None:
        """A drafter read so many ids of this sequence. Ids that its KV holds already say nothing about costs, and count
        as none.
        """
        use, self._timed = member.state.uses[origin], None
        if n_read:
            use.drafter.cost.timing(ms, n_read, member.plain_ms)
        member.state.has_read(use, n_read or None)

    def _weigh(self, member: Automatic, origin: Origin, draft: Draft, price_ms: float) -> None:
        """A guess for one sequence came: what may be accepted of it, and what it saves at its best length."""
        known = self._known
        calibration = member.calibration if origin in WRITERS else known.calibration_for(member.state, draft)
        bins = [bin_of(belief) for belief in draft.p]
        n = len(bins) - draft.n_tail
        use = member.state.uses[origin]
        use.follow(draft.ids[:n], bins[:n], calibration)
        chances = [calibration.chance(i) for i in bins[:n]]
        if draft.n_tail:
            tail = known.calibration(draft.kind)
            chances += [tail.chance(i) for i in bins[n:]]
        gains = gains_of(chances)
        costs = member.table.upto(len(gains))
        saved = [gain * costs[1] - cost + costs[1] for gain, cost in zip(gains, costs[1:], strict=False)]
        length = saved.index(max(saved))
        price = use.drafter.cost.price(member.plain_ms, self._n_asked[origin])
        saved_ms = saved[length] / member.size
        is_sure = saved_ms > price_ms and gains[length] >= _SURE * length
        self._guesses_ms += price_ms
        member.candidates.append(Candidate(origin, draft, gains, price, saved_ms, is_sure))

    # --- what is submitted

    def choose(self) -> Mapping[int, Chosen]:
        """See `protocol.Policy`."""
        chosen = self._automatic() if self._groups else {}
        for member in self._fixed:
            draft = max(member.guess, member.forced, key=lambda draft: len(draft.ids))
            if draft.ids:
                chosen[member.wish.seq] = Chosen(draft)
        return chosen

    def _automatic(self) -> dict[int, Chosen]:
        chosen: dict[int, Chosen] = {}
        gains = [self._gains(group) for group in self._groups]
        costs = [table.upto(len(gain)) for table, gain in zip(self._tables, gains, strict=True)]
        rows = rows_of(gains, costs, self._n_writing, self._guesses_ms)
        for group, table, n, gain in zip(self._groups, self._tables, rows, gains, strict=True):
            if n > 1:
                self._submit(chosen, group, n, table)
            self._judge(group, n, table, gain[n - 1])
        return chosen

    def _gains(self, group: Sequence[int]) -> list[float]:
        """Ids expected beyond one each, by the number of drafted rows of each sequence."""
        drafting = [self._autos[seq] for seq in group if seq in self._autos and self._autos[seq].candidates]
        return merged([merged([candidate.gains for candidate in member.candidates], max) for member in drafting], sum)

    def _submit(self, chosen: dict[int, Chosen], group: Sequence[int], n: int, table: CostTable) -> None:
        """Cut the group's drafts to so many rows."""
        n_rows = table.level(n)
        n_rows = n_rows if len(group) > 1 or n_rows > n else 0
        for seq in group:
            member = self._autos.get(seq)
            draft = _best_of(member.candidates, n - 1) if member is not None and member.candidates else Draft()
            if draft.ids or n_rows:
                chosen[seq] = Chosen(draft, n_rows)

    def _judge(self, group: Sequence[int], n: int, table: CostTable, total: float) -> None:
        """What each guess saved. Alone that is what its best length is expected to save. In a group it is a share of
        what the common number of rows is: but a drafter that is asked again counts as if the others' guesses were like
        its own, or several would never start together. total: ids that all guesses are expected to bring.
        """
        costs = table.upto(n)
        growth = (costs[n] - costs[1]) / total if total > 0 else 0.0  # of the decode, for each id that is expected
        for member in [self._autos[seq] for seq in group if seq in self._autos]:
            for candidate in member.candidates:
                use = member.state.uses[candidate.origin]
                saved_ms = candidate.saved_ms
                if len(group) > 1 and not use.is_probe:
                    saved_ms = candidate.gains[min(n - 1, len(candidate.gains) - 1)] * (member.plain_ms - growth)
                pays = use.judged(saved_ms / member.plain_ms, candidate.price)
                use.next_at = asked_again(use, member.state.n, candidate.price, pays, was_asked=True)


def _best_of(candidates: Sequence[Candidate], n: int) -> Draft:
    """The first n ids of the best candidate. Where the request's prediction has the same ids, they count as the
    prediction's.
    """
    best = max(candidates, key=lambda candidate: candidate.gains[min(n, len(candidate.gains) - 1)]).draft.first(n)
    same = [candidate.draft for candidate in candidates if candidate.draft.ids[: len(best.ids)] == best.ids]
    own = next((draft for draft in same if draft.origin is Origin.PREDICTION), None)
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
