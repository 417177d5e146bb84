"""One round: its drafters are asked one after the other (`asking`), then it is chosen what is submitted.

A request with a fixed policy drafts as far as it says, at any cost: its drafts are worth infinitely much up to n_max.
The first drafter with a guess writes for it. Arithmetic only: no clock, no model, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uad.base.types import Ask, Draft, Origin
from uad.engine.policy.asking import Asking
from uad.engine.policy.choose import merged, rows_of
from uad.engine.policy.drafter import CallCost
from uad.engine.policy.knowledge import Knowledge
from uad.engine.policy.machine import CostTable
from uad.engine.policy.members import Candidate, Members
from uad.engine.policy.protocol import Chosen, Drafted, Wish


class Round:
    """The sequences of one round, and what is submitted for them."""

    def __init__(self, known: Knowledge, due: Sequence[Wish] = (), wishes: Sequence[Wish] = ()) -> None:
        """See `Members`."""
        self._known = known
        self._members = Members(known, due, wishes)
        self._asking: Asking | None = None  # the drafter that was asked last
        self._asked: list[CallCost] = []  # of drafters that automatic requests asked
        self._calls_ms = 0.0

    def asks(self, origin: Origin) -> Sequence[Ask]:
        """See `protocol.Policy`."""
        self._asking = Asking(self._known, self._members, origin)
        return self._asking.asks()

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]], steps: Sequence[tuple[int, float]]
    ) -> Sequence[bool]:
        """See `protocol.Policy`."""
        return self._asking.more(seqs, wrote, steps) if self._asking else [False] * len(seqs)

    def drafted(self, seen: Drafted) -> None:
        """A drafter answered what `asks` asked last."""
        self._calls_ms += 1e3 * seen.seconds
        if self._asking is not None:
            self._asking.drafted(seen)
            if self._asking.autos:
                self._asked.append(self._known.drafter(seen.origin).cost)

    def asked(self, ms: float) -> None:
        """Asking policy and drafters took so long in all: what is beside the drafters' calls is part of their price."""
        for cost in self._asked:
            cost.asked(max(ms - self._calls_ms, 0.0) / len(self._asked))

    def choose(self) -> Mapping[int, Chosen]:
        """See `protocol.Policy`."""
        members = self._members
        chosen = self._automatic() if members.groups else {}
        for member in members.fixed:
            draft = max(member.guess, member.forced, key=lambda draft: len(draft.ids))
            if draft.ids:
                chosen[member.wish.seq] = Chosen(draft)
        return chosen

    def _automatic(self) -> dict[int, Chosen]:
        members, chosen = self._members, dict[int, Chosen]()
        gains = [self._gains(group) for group in members.groups]
        costs = [table.upto(len(gain)) for table, gain in zip(members.tables, gains, strict=True)]
        guesses_ms = sum([guess.ms for member in members.autos.values() for guess in member.candidates])
        rows = rows_of(gains, costs, members.n_writing, guesses_ms)
        for group, table, n, gain in zip(members.groups, members.tables, rows, gains, strict=True):
            if n > 1:
                self._submit(chosen, group, n, table)
            self._judge(group, n, table, gain[n - 1])
        return chosen

    def _gains(self, group: Sequence[int]) -> list[float]:
        """Ids expected beyond one each, by the number of drafted rows of each sequence."""
        autos = self._members.autos
        drafting = [autos[seq] for seq in group if seq in autos and autos[seq].candidates]
        return merged([merged([candidate.gains for candidate in member.candidates], max) for member in drafting], sum)

    def _submit(self, chosen: dict[int, Chosen], group: Sequence[int], n: int, table: CostTable) -> None:
        """Cut the group's drafts to n rows."""
        n_rows = table.level(n)
        n_rows = n_rows if len(group) > 1 or n_rows > n else 0
        for seq in group:
            member = self._members.autos.get(seq)
            draft = _best_of(member.candidates, n - 1) if member is not None and member.candidates else Draft()
            if draft.ids or n_rows:
                chosen[seq] = Chosen(draft, n_rows)

    def _judge(self, group: Sequence[int], n: int, table: CostTable, total: float) -> None:
        """Judge what each guess saved. Alone that is what its best length is expected to save. In a group it is a share
        of what the common number of rows is: but a drafter that is asked again counts as if the others' guesses were
        like its own, or several would never start together. total: ids that all guesses are expected to bring.
        """
        costs = table.upto(n)
        growth = (costs[n] - costs[1]) / total if total > 0 else 0.0  # of the decode, for each id that is expected
        autos = self._members.autos
        for member in [autos[seq] for seq in group if seq in autos]:
            for candidate in member.candidates:
                use, saved_ms, n_ids = candidate.use, candidate.saved_ms, candidate.n_ids
                if len(group) > 1 and not use.is_probe:
                    n_ids = candidate.gains[min(n - 1, len(candidate.gains) - 1)]
                    saved_ms = n_ids * (member.plain_ms - growth)
                use.judged(member.state.n, saved_ms / member.plain_ms, candidate.price, n_ids)


def _best_of(candidates: Sequence[Candidate], n: int) -> Draft:
    """The first n ids of the best candidate. Where the request's prediction has the same ids, they count as the
    prediction's.
    """
    best = max(candidates, key=lambda candidate: candidate.gains[min(n, len(candidate.gains) - 1)]).draft.first(n)
    same = [candidate.draft for candidate in candidates if candidate.draft.ids[: len(best.ids)] == best.ids]
    own = next((draft for draft in same if draft.origin is Origin.PREDICTION), None)
    return best if own is None else own.first(len(best.ids))
