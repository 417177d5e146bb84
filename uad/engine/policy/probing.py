"""One drafter in one sequence, and when it is asked again. Arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from uad.engine.policy.calibration import Calibration
from uad.engine.policy.drafter_record import MOST_BUDGET, PROBING, DrafterRecord

# Of what a round saved, into the mean of its sequence; and of a round that was paid from the budget: those are rare.
_SEQUENCE_RATE: Final = 0.2
_PROBE_RATE: Final = 0.5
# Ids that a drafter is left alone after a round that did not pay; after each further one longer, up to the most. Always
# two ids lose 0.03 in the worst category of sampled answers (lab/README).
_FIRST_REST: Final = 2.0
_LONGER: Final = 1.5
_LONGEST_REST: Final = 16.0
# Ids between two looks at what has changed, at most.
LONGEST_WAIT: Final = 32
# Ids that a drafter which writes reads to find out what its calls cost now.
TIMED_IDS: Final = 8


@dataclass(slots=True)
class SequenceDrafter:
    """One drafter in one sequence. It is asked in every round while it saves what that costs, else now and then."""

    drafter: DrafterRecord
    saved: float
    """What a round saved of late, before its price."""
    next_at: int = 0
    """Ids of the answer after which it may be asked again; 0: in every round."""
    is_probe: bool = False
    """Asking it in this round is paid from the budget, or from the credit for comparisons."""
    is_comparison: bool = False
    """It is paid from the latter."""
    compared: int = 0
    """Ids of the answer when it was last decided whether to ask it beside a better one."""
    rest: float = _FIRST_REST
    """Ids that it is left alone after a round that does not pay."""
    n_read: int = 0
    """Ids of the sequence that it has seen, those of the prompt too."""
    trail: Sequence[int] = ()
    """The drafter's last guess, as long as it was right, whether it was submitted or not."""
    bins: list[int] = field(default_factory=list)
    """Bins of the beliefs in it."""
    at: int = 0
    """How many ids of it were judged."""
    calibration: Calibration | None = None

    def judged(self, saved: float, price: float) -> bool:
        """A round in which it was asked saved so much at this price; whether it pays to ask it on."""
        self.drafter.learn(saved, price)
        self.saved += (_PROBE_RATE if self.is_probe else _SEQUENCE_RATE) * (saved - self.saved)
        self.is_probe = False
        return self.saved >= price

    def follow(self, ids: Sequence[int], bins: list[int], calibration: Calibration) -> None:
        """Wait for the verdict on this guess; bins are those of its beliefs."""
        self.trail, self.bins, self.at, self.calibration = ids, bins, 0, calibration

    def check(self, ids: Sequence[int]) -> None:
        """The answer goes on with ids: learn from the guess up to its first wrong id."""
        at, calibration = self.at, self.calibration
        n = min(len(self.trail) - at, len(ids))
        if n <= 0 or calibration is None:
            return
        guesses = self.trail[at : at + n]
        n_right = n if guesses == ids[:n] else next((i for i in range(n) if guesses[i] != ids[i]), n)
        calibration.judge(self.bins[at : at + min(n_right + 1, n)], n_right)
        if n_right < n:
            self.trail = ()
        self.at = at + n


def asked_again(
    use: SequenceDrafter, n: int, price: float, pays: bool, is_best: bool = True, was_asked: bool = False
) -> int:
    """After how many ids of the answer, which has n now, a drafter is to be asked. 0: now, and in every round. n: now,
    paid from its budget.

    price: plain decodes that asking it takes, reading included. pays: whether it saves more than that, and no other
    drafter more than it. was_asked: in this round, so that this is what it showed.

    A drafter that pays is asked in every round. One that does not has a budget, which each id pays into that is
    written without it: with a price of 0.4 plain decodes, and 0.1 in the budget, it is asked after 0.3 / 0.004 = 75
    ids, looked at again after 32 and 64 in case that prices fell. So however bad it is, it costs no more than 0.4 %.
    """
    use.is_comparison = use.is_probe = False
    if not is_best:
        use.is_comparison = use.is_probe = use.drafter.can_compare(n - use.compared, price)
        use.compared = n
        return n if use.is_probe else n + 1
    if pays:
        use.rest = _FIRST_REST if was_asked else use.rest
        return 0
    if was_asked:
        rest, use.rest = int(use.rest), min(use.rest * _LONGER, _LONGEST_REST)
        return n + rest
    missing = min(price, MOST_BUDGET) - use.drafter.budget
    use.is_probe = missing <= 0
    return n if use.is_probe else n + min(max(int(missing / PROBING), 1), LONGEST_WAIT)
