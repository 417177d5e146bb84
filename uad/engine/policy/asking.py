"""Asking one drafter in a round: for which sequences, what its call costs, and what its guesses are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from uad.base.types import WRITERS, Ask, Draft, Origin
from uad.engine.policy.calibration import bin_of
from uad.engine.policy.choose import gains_of
from uad.engine.policy.drafter import FEW_IDS, SequenceDrafter
from uad.engine.policy.knowledge import Knowledge
from uad.engine.policy.members import Automatic, Candidate, Fixed, Members
from uad.engine.policy.protocol import Drafted
from uad.engine.policy.writing import Writing

# Share of a looked-up guess that is expected to be accepted, from which it spares asking the draft model. Without it
# 0.4 % are lost (lab/README).
_SURE: Final = 0.8


class Asking:
    """The asks made of one drafter. A call that failed shows nothing: its asks are forgotten."""

    def __init__(self, known: Knowledge, members: Members, origin: Origin) -> None:
        self._known = known
        self._origin = origin
        self._writes = origin in WRITERS
        if self._writes:
            known.asked_in[origin] = known.n_rounds
        self._cost = cost = known.drafter(origin).cost
        self._fixed = [member for member in members.fixed if member.wish.may_ask(origin) and self._is_fixed_due(member)]
        self._may = [member for member in members.autos.values() if member.wish.may_ask(origin)]
        uses = [known.use(member.state, origin, member.table) for member in self._may]
        due = [member for member, use in zip(self._may, uses, strict=True) if member.state.n >= use.next_at]
        self.autos = autos = [member for member in due if self._is_worth_asking(member, len(due))]
        # ids that each may catch up with
        self._n_read = cost.read_at_once(members.n_due) if autos and self._writes else 0
        self._timed: Automatic | None = None  # it reads a few of its ids, to show what that costs
        self._writing: Writing | None = None  # None where it is not to write
        if self._writes and (autos or self._fixed):
            for auto in autos:
                auto.calibration, auto.p, auto.bins = known.calibration_of(auto.state, origin), 1.0, []
            self._writing = Writing(cost, members.table if autos else None, members.n_writing, autos)

    def asks(self) -> Sequence[Ask]:
        """See `protocol.Policy`."""
        if self._writes and self._writing is None:
            return self._timing()
        asks = [member.ask(self._writes) for member in self._fixed]
        for auto in self.autos:
            asks.append(Ask(auto.wish.seq, auto.longest if self._writes else auto.wish.room, n_read=self._n_read))
        return asks

    def _is_fixed_due(self, member: Fixed) -> bool:
        return not member.guess.ids and (bool(member.wish.params.types) or self._origin not in self._known.weighed)

    def _is_worth_asking(self, member: Automatic, n_due: int) -> bool:
        """Whether the drafter pays, or its budget does."""
        if self._writes and member.is_sure:
            return False
        use = member.state.uses[self._origin]
        gain, price = member.worth(use, n_due)
        is_best = not self._writes or self._is_best(member, use, n_due)
        return use.is_due(member.state.n, price, gain >= 0.0, is_best)

    def _is_best(self, member: Automatic, own: SequenceDrafter, n_due: int) -> bool:
        """Whether no other drafter that writes is worth more to the rest of the answer: one of them writes. One that is
        off, left alone, or too expensive to read for, is no rival.
        """
        known, types, state = self._known, member.wish.params.types, member.state
        rivals = []
        for origin, last in known.asked_in.items():
            if origin is self._origin or known.n_rounds - last > 1 or (types and origin not in types):
                continue
            use = known.use(state, origin, member.table)
            if state.n >= use.next_at:
                rivals.append(use)
        if not rivals:
            return True
        hope = known.hope
        return max([member.value(use, n_due, hope) for use in rivals]) <= member.value(own, n_due, hope)

    def _timing(self) -> list[Ask]:
        """Have a drafter that writes, and is left alone, read a few ids of the first sequence that has them, where
        nothing was seen of its costs for a while.
        """
        for member in self._may if self._cost.is_old else ():
            if member.state.unread(member.state.uses[self._origin]) >= FEW_IDS:
                self._timed = member
                return [Ask(member.wish.seq, 0, n_read=2)]
        return []

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]], steps: Sequence[tuple[int, float]]
    ) -> Sequence[bool]:
        """See `protocol.Policy`."""
        # without a writing: guesses that were left over
        return self._writing.more(seqs, wrote, steps) if self._writing else [False] * len(seqs)

    # --- what came of it

    def drafted(self, seen: Drafted) -> None:
        """The drafter answered."""
        drafts, ms = seen.drafts, 1e3 * seen.seconds
        if self._timed is not None:
            self._time(self._timed, drafts[0].n_read, ms)
        for member, draft in zip(self._fixed, drafts, strict=False):
            if draft.ids and self._origin is Origin.GRAMMAR:
                member.forced = draft
            elif draft.ids:
                member.guess = draft
        if self.autos:
            self._learn(list(zip(self.autos, drafts[len(self._fixed) :], strict=False)), ms)

    def _time(self, member: Automatic, n_read: int, ms: float) -> None:
        """Record that it read n_read ids of this sequence. Ids that its KV already holds say nothing about costs, and
        do not count.
        """
        if n_read:
            self._cost.timing(ms, n_read, member.plain_ms)
        member.state.has_read(member.state.uses[self._origin], n_read or None)

    def _learn(self, autos: Sequence[tuple[Automatic, Draft]], ms: float) -> None:
        """Learn what the call cost the automatic requests. A fixed neighbour pays its share of the call, and the steps
        in which it drafted alone.
        """
        cost, n, writing = self._cost, len(autos), self._writing
        steps_ms = 0.0
        if writing:
            self._known.wrote()
            steps_ms, steps = writing.steps_ms, self._known.machine.steps(self._origin)
            ms = max(ms - writing.all_steps_ms, 0.0) * n / (n + len(self._fixed)) + steps_ms
            if writing.n_steps and steps.ms(1) > 0:
                steps.observe(int(writing.n_stepped / writing.n_steps + 0.5), 0, steps_ms / writing.n_steps)
            if any(member.bins for member, _ in autos):
                cost.stepped(writing.n_steps + 1)
        n_ids = sum(draft.n_read for _, draft in autos)
        is_call = n_ids > 0 or not writing  # else guesses that were left over are handed over, without a decode
        reading_ms = cost.called(ms - steps_ms, n_ids, n) if is_call else 0.0
        for member, draft in autos:
            state, use = member.state, member.state.uses[self._origin]
            if use.is_probe:
                use.drafter.pay((ms + cost.around_ms) / n / member.plain_ms)
            n_read = draft.n_read
            is_reading = n_read >= self._n_read or (not n_read and not draft.ids and state.unread(use) > FEW_IDS)
            if writing and is_reading:
                state.has_read(use, n_read)  # it reads on, before anything can be said of its drafts
                continue
            state.has_read(use)
            if writing:
                member.calibration.drafted(member.bins)
            self._weigh(member, draft, (ms - reading_ms) / n)

    def _weigh(self, member: Automatic, draft: Draft, price_ms: float) -> None:
        """A guess for one sequence came: what may be accepted of it, and what it saves at its best length."""
        known, use = self._known, member.state.uses[self._origin]
        calibration = member.calibration if self._writes else known.calibration_for(member.state, draft)
        bins = [bin_of(belief) for belief in draft.p]
        n = len(bins) - draft.n_tail
        use.follow(draft.ids[:n], bins[:n], calibration)
        chances = [calibration.chance(i) for i in bins[:n]]
        if draft.n_tail:
            tail = known.calibration(draft.kind)
            chances += [tail.chance(i) for i in bins[n:]]
        gains = gains_of(chances)
        costs = member.table.upto(len(gains))
        saved = [gain * costs[1] - cost + costs[1] for gain, cost in zip(gains, costs[1:], strict=False)]
        length = saved.index(max(saved))
        price = self._cost.price(member.plain_ms, len(self.autos))
        saved_ms = saved[length] / member.size
        is_sure = self._origin is not Origin.GRAMMAR and saved_ms > price_ms and gains[length] >= _SURE * length
        member.candidates.append(Candidate(use, draft, gains, price_ms, price, saved_ms, gains[length], is_sure))
