"""When a drafter stops writing: it goes on as long as a few further ids are expected to be worth their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from uad.engine.policy.calibration import bin_of
from uad.engine.policy.choose import may_continue
from uad.engine.policy.drafter import CallCost
from uad.engine.policy.machine import CostTable
from uad.engine.policy.members import Automatic

# Ids that a draft is expected to go on beyond the next one, while it is asked whether it should: on curves with steps
# one further row may cost more than it brings, and four pay. One id instead loses 1.8 % (lab/README).
_LOOK_AHEAD: Final = 4


class Writing:
    """A drafter that writes for some sequences side by side. A request with a fixed policy has its draft go on to the
    length that it says.
    """

    def __init__(self, cost: CallCost, table: CostTable | None, n_writing: int, autos: Sequence[Automatic]) -> None:
        """autos: those whose length is free; what does not change until all drafts are written is looked up once."""
        self._cost = cost
        self._n_writing = n_writing
        self._autos = {member.wish.seq: member for member in autos}
        self._hopes: list[float] = []  # ids expected of each step of all drafts together
        self._is_ours = False  # whether the next step is one of an automatic request, too
        self.all_steps_ms = 0.0
        self.steps_ms = 0.0  # of automatic requests
        self.n_steps = self.n_stepped = 0  # of these, and ids of all sequences in them
        if autos and table:
            self._step_ms = [cost.step_ms(n) for n in range(1, len(autos) + 1)]
            self._most = max([member.longest for member in autos])
            self._costs = table.upto(self._most + 1)[1:]

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
        autos, hopes = self._autos, self._hopes
        for seq, belief in wrote:
            if seq in autos:
                member, i = autos[seq], bin_of(belief)
                member.p *= member.calibration.chance(i)
                member.bins.append(i)
                k = len(member.bins)
                if k > len(hopes):
                    hopes.append(0.0)
                hopes[k - 1] += member.p
        live = [autos[seq] for seq in seqs if seq in autos]
        self._is_ours = bool(live) and self._may_continue(live)
        return [self._is_ours or seq not in autos for seq in seqs]

    def _may_continue(self, live: Sequence[Automatic]) -> bool:
        """Whether drafts some ids longer are expected to be worth more, though further steps take time."""
        hopes, ahead = [member.p for member in live], list[float]()
        kept = [member.calibration.next_chance(member.bins[-1]) if member.bins else 1.0 for member in live]
        for _ in range(min(_LOOK_AHEAD, self._most - len(self._hopes))):
            hopes = [hope * chance for hope, chance in zip(hopes, kept, strict=True)]
            ahead.append(sum(hopes))
        spent_ms, step_ms = self._cost.call_ms + self.steps_ms, self._step_ms[len(live) - 1]
        return may_continue(self._hopes, ahead, self._costs, self._n_writing, spent_ms, step_ms)
