"""What a round submits of the guesses, and what each of them saved. Arithmetic only: no clock, no model, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uad.base.types import WRITERS, Draft, Origin
from uad.engine.policy.asking import PricedDraft
from uad.engine.policy.calibration import bin_of
from uad.engine.policy.choose import gains_of, merged, rows_of
from uad.engine.policy.knowledge import Knowledge
from uad.engine.policy.machine import CostTable
from uad.engine.policy.members import NO_DRAFT, Candidate, Round
from uad.engine.policy.probing import asked_again
from uad.engine.policy.protocol import Chosen


class Choosing:
    """Weighs the guesses of one round against what their rows cost."""

    def __init__(self, known: Knowledge, round_: Round) -> None:
        self._known = known
        self._round = round_
        self._guesses_ms = 0.0  # what all candidates cost

    def weigh(self, guess: PricedDraft) -> None:
        """A guess for one sequence came: what may be accepted of it, and what it saves at its best length."""
        known, member, origin, draft = self._known, guess.member, guess.origin, guess.draft
        state, table = member.state, member.table
        assert state is not None
        assert table is not None
        is_written = origin in WRITERS
        calibration = known.calibration_of(state, origin) if is_written else known.calibration_for(state, draft)
        bins = [bin_of(belief) for belief in draft.p]
        n = len(bins) - draft.n_tail
        use = state.uses[origin]
        use.follow(draft.ids[:n], bins[:n], calibration)
        chances = [calibration.chance(i) for i in bins[:n]]
        if draft.n_tail:
            tail = known.calibration(draft.kind)
            chances += [tail.chance(i) for i in bins[n:]]
        gains = gains_of(chances)
        costs = table.upto(len(gains))
        saved = [gain * costs[1] - cost + costs[1] for gain, cost in zip(gains, costs[1:], strict=False)]
        length = saved.index(max(saved))
        price = use.drafter.cost.price(member.plain_ms, guess.n_asked)
        value = saved[length] / member.size - guess.price_ms
        sure = gains[length] / length if length else 0.0
        self._guesses_ms += guess.price_ms
        member.candidates.append(Candidate(origin, draft, gains, guess.price_ms, price, value, sure))

    def choose(self) -> Mapping[int, Chosen]:
        """See `protocol.Policy`."""
        chosen = self._automatic() if self._round.groups else {}
        for seq, member in self._round.members.items():
            draft = max(member.guess, member.forced, key=lambda draft: len(draft.ids))
            if draft.ids:
                chosen[seq] = Chosen(draft)
        return chosen

    def _automatic(self) -> dict[int, Chosen]:
        groups, tables = self._round.groups, self._round.tables
        chosen: dict[int, Chosen] = {}
        gains = [self._gains(group) for group in groups]
        costs = [table.upto(len(gain)) for table, gain in zip(tables, gains, strict=True)]
        rows = rows_of(gains, costs, self._round.n_writing, self._guesses_ms)
        for group, table, n, gain in zip(groups, tables, rows, gains, strict=True):
            if n > 1:
                self._submit(chosen, group, n, table)
            self._judge(group, n, table, gain[n - 1])
        return chosen

    def _gains(self, group: Sequence[int]) -> list[float]:
        """Ids expected beyond one each, by the number of drafted rows of each sequence."""
        members = self._round.members
        drafting = [members[seq] for seq in group if seq in members and members[seq].candidates]
        return merged([merged([candidate.gains for candidate in member.candidates], max) for member in drafting], sum)

    def _submit(self, chosen: dict[int, Chosen], group: Sequence[int], n: int, table: CostTable) -> None:
        """Cut the group's drafts to so many rows."""
        n_rows = table.level(n)
        n_rows = n_rows if len(group) > 1 or n_rows > n else 0
        for seq in group:
            member, draft = self._round.members.get(seq), NO_DRAFT
            if member is not None and member.candidates:
                draft = _best_of(member.candidates, n - 1)
            if draft.ids or n_rows:
                chosen[seq] = Chosen(draft, n_rows)

    def _judge(self, group: Sequence[int], n: int, table: CostTable, total: float) -> None:
        """What each guess saved. Alone that is what its best length is expected to save. In a group it is a share of
        what the common number of rows is: but a drafter that is asked again counts as if the others' guesses were like
        its own, or several would never start together. total: ids that all guesses are expected to bring.
        """
        costs = table.upto(n)
        growth = (costs[n] - costs[1]) / total if total > 0 else 0.0  # of the decode, for each id that is expected
        members = self._round.members
        for member in [members[seq] for seq in group if seq in members]:
            state = member.state
            if state is None:
                continue
            for candidate in member.candidates:
                use = state.uses[candidate.origin]
                saved_ms = candidate.value + candidate.price_ms
                if len(group) > 1 and not use.is_probe:
                    saved_ms = candidate.gains[min(n - 1, len(candidate.gains) - 1)] * (member.plain_ms - growth)
                pays = use.judged(saved_ms / member.plain_ms, candidate.price)
                use.next_at = asked_again(use, state.n, candidate.price, pays, was_asked=True)


def _best_of(candidates: Sequence[Candidate], n: int) -> Draft:
    """The first n ids of the best candidate. Where the request's prediction has the same ids, they count as the
    prediction's.
    """
    best = max(candidates, key=lambda candidate: candidate.gains[min(n, len(candidate.gains) - 1)]).draft.first(n)
    same = [candidate.draft for candidate in candidates if candidate.draft.ids[: len(best.ids)] == best.ids]
    own = next((draft for draft in same if draft.origin is Origin.PREDICTION), None)
    return best if own is None else own.first(len(best.ids))
