"""What is known of one drafter: what calls cost, what it gains, and what may be spent on asking it where it does not
pay. Arithmetic only.

What is saved, prices and the budget are counted in plain decodes: what the sequence pays for an id without drafts. What
a drafter saves is kept apart from its price, so that a disturbed machine spoils only the price, which the next call
shows. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from uad.policy.calibration import Calibration

TIMED_IDS: Final = 8  # that a draft model reads to find out what its calls cost now
FIRST_SAVED: Final = 0.5  # plain decodes that a round of an unknown drafter is expected to save
_COST_RATE: Final = 0.15  # of a measured cost, into the known one
_MOST_TIMES: Final = 3.0  # a measured cost counts as no more than so many times the known one
_LEAST_TIMES: Final = 1.5  # and the known one, from then on, as no more than so many times the measured one
_TIMING: Final = 0.018  # plain decodes per id, for finding out what a call costs now
_MOST_OF_READ: Final = 0.8  # of the time of such a call
_OFTEN: Final = 64.0  # ids between two such calls at least
_FREE_TIMES: Final = 2  # that they are expensive, before they become rarer
_MOST_DEAR: Final = 16
FEW_IDS: Final = 16  # of a sequence: reading more than these is a cost of its own; fewer are part of the call
_STALL_MS: Final = 250.0  # that others may wait for reading, as for a chunk of a prompt
_LEAST_READ: Final = 64  # ids
_UNKNOWN_READ: Final = 256
_SAVED_RATE: Final = 0.03  # of what a round saved, into the mean over all sequences
_FEW_ROUNDS: Final = 5.0  # after which a round counts for more
_MANY_ROUNDS: Final = 40.0
_SEQUENCE_RATE: Final = 0.2  # the same, into the mean of its sequence
_PROBE_RATE: Final = 0.5
_PROBING: Final = 0.004  # plain decodes per id that is written without the drafter, for asking it again
_FOR_PROBES: Final = 0.05  # of what drafts save beyond their price, for the same
_FIRST_BUDGET: Final = 2.0
_MOST_BUDGET: Final = 20.0
_MOST_OWED: Final = 3.0  # else the debt of one probe on a disturbed machine would prevent others for long
_COMPARING: Final = 0.002  # plain decodes per id, for asking one that pays beside one that is expected to gain more
_FIRST_CREDIT: Final = 10.0  # enough to read a prompt, and to see some rounds, once in the life of a server
_MOST_CREDIT: Final = 2.0
_FADING: Final = 0.99  # per id, of how many rounds are known of a drafter that is not asked
_FIRST_WAIT: Final = 2.0  # ids
_LONGER: Final = 1.5
_LONGEST_WAIT: Final = 16.0
_LONGEST_LOOK: Final = 32  # ids between two looks at the budget


@dataclass(slots=True)
class CallCost:
    """Running means. A draft call reads what it has not read, and writes the first id; steps for further ids are known
    apart.
    """

    call_ms: float = 0.0
    """Of a call, beside its steps and the reading of many ids; 0: unknown."""
    read_ms: float = 0.0
    """Of reading one id."""
    n_steps: float = 1.0
    """Steps of a call, its first id included."""
    ids_per_step: float = 1.0
    """Target ids that a step of the draft model makes."""
    age: int = 0
    """Ids that were written since the last call."""
    timed: float = 0.0
    """Plain decodes that the last call took which was made to find out what calls cost."""
    n_dear: int = 0
    """How many of these in a row took longer than a plain decode."""

    @property
    def is_old(self) -> bool:
        """Whether to find out what a call costs now. A machine that was disturbed would leave the drafter alone for
        ever; where calls stay expensive, that is asked less and less often.
        """
        wait = max(self.timed / _TIMING, _OFTEN)
        return self.age >= min(wait, _OFTEN * 2.0 ** max(self.n_dear - _FREE_TIMES, 0))

    def timing(self, ms: float, n_read: int, plain_ms: float) -> None:
        """A call that read n_read ids, and wrote nothing, took ms."""
        self.read_ms = min(self.read_ms or 0.5 * ms / n_read, _MOST_OF_READ * ms / n_read)
        self.called(ms - n_read * self.read_ms, 0)
        self.timed = ms / plain_ms
        self.n_dear = min(self.n_dear + 1, _MOST_DEAR) if self.timed > 1.0 else 0

    def read_at_once(self, n_sequences: int) -> int:
        """How many ids each of so many sequences may read in a round for which others wait."""
        n = int(_STALL_MS / self.read_ms) if self.read_ms > 0 else _UNKNOWN_READ
        return max(n // n_sequences, _LEAST_READ)

    def called(self, ms: float, n_read: int, n_sequences: int = 1) -> float:
        """A call took ms beside its steps, and read n_read ids of so many sequences; returns how much of it went into
        reading.
        """
        self.age = 0
        if n_read > FEW_IDS * n_sequences:
            reading_ms = max(ms - self.call_ms, 0.0)
            self.read_ms = _learned(self.read_ms, reading_ms / n_read)
            return reading_ms
        self.call_ms = _learned(self.call_ms, ms)
        return 0.0

    def stepped(self, n_steps: int) -> None:
        """A call took so many steps, its first id included."""
        self.n_steps += _COST_RATE * (n_steps - self.n_steps)

    def wrote(self, n_steps: int, n_ids: int) -> None:
        """n_steps ids of the draft, not cut to a length, became n_ids of the target."""
        if n_steps > 1:
            self.ids_per_step += 0.05 * (min(max(n_ids / n_steps, 0.25), 4.0) - self.ids_per_step)


def _learned(known: float, ms: float) -> float:
    """The mean with one more measurement. One call of a disturbed machine counts little, and one of an idle one ends
    that.
    """
    if not known:
        return ms
    return min(known + _COST_RATE * (min(ms, _MOST_TIMES * known) - known), _LEAST_TIMES * ms)


@dataclass(slots=True)
class DrafterRecord:
    """One drafter over all sequences."""

    cost: CallCost = field(default_factory=CallCost)
    saved: float = FIRST_SAVED
    """What a round saves in which it is asked, before its price: what a new sequence may expect."""
    n_rounds: float = 0.0
    budget: float = _FIRST_BUDGET
    """A token bucket for asking it where it does not pay, in plain decodes."""
    credit: float = _FIRST_CREDIT
    """The same for asking it beside another drafter that writes, which is expected to gain more."""
    wanted: float = 0.0
    """The last price that it could not pay: the bucket may hold that much, however long the prompt is."""

    def learn(self, saved: float, price: float) -> None:
        """A round saved so much, at this price."""
        self.n_rounds = min(self.n_rounds + 1.0, _MANY_ROUNDS)
        self.saved += max(_SAVED_RATE, 1.0 / (self.n_rounds + _FEW_ROUNDS)) * (saved - self.saved)
        if saved > price:
            self._deposit(_FOR_PROBES * (saved - price))

    def _deposit(self, n: float) -> None:
        self.budget = min(self.budget + n, max(_MOST_BUDGET, self.wanted))

    def withdraw(self, n: float) -> None:
        """What asking it once took. It may be more than there was: then the next time is later."""
        self.budget = max(self.budget - n, -_MOST_OWED)

    def compare(self, n_ids: int, price: float) -> bool:
        """Whether it may be asked beside a better one at this price, n_ids after the last time that this was asked."""
        self.credit = min(self.credit + _COMPARING * n_ids, max(self.credit, _MOST_CREDIT, price))
        return self.credit >= price

    def idle(self, n_ids: int) -> None:
        """So many ids were written without it: they pay for asking it again."""
        self._deposit(_PROBING * n_ids)
        self.n_rounds *= _FADING**n_ids
        self.cost.age += n_ids


@dataclass(slots=True)
class Use:
    """One drafter in one sequence. It is asked in every round while it saves what that costs, else again after some
    ids, if the budget pays for that.
    """

    drafter: DrafterRecord
    saved: float
    """What a round saved of late, before its price."""
    next_at: int = 0
    """Ids of the answer after which it may be asked again; 0: in every round."""
    is_probe: bool = False
    """Asking it in this round was paid from the budget, or from the credit for comparisons."""
    is_comparison: bool = False
    """It was paid from the latter."""
    wait: float = _FIRST_WAIT
    booked: int = 0
    """Ids of the answer up to which what was written without it is booked."""
    compared: int = 0
    """Ids of the answer when it was last decided whether to ask it beside a better one."""
    n_read: int = 0
    """Ids of the sequence that it has seen, those of the prompt too."""
    trail: Sequence[int] = ()
    """Its last guess, as long as it was right, whether it was submitted or not."""
    bins: list[int] = field(default_factory=list)
    at: int = 0
    """How many ids of it were judged."""
    calibration: Calibration | None = None

    def can_pay(self, n: int, price: float) -> bool:
        """Whether the budget has so many plain decodes for asking it after n ids; if not, when to look again."""
        missing = price - self.drafter.budget
        self.is_probe = missing <= 0
        if not self.is_probe:
            self.drafter.wanted = price
            self._put_off(n, int(missing / _PROBING))
        return self.is_probe

    def can_compare(self, n: int, price: float) -> bool:
        """Whether to ask it after n ids though another one is expected to gain more: that may have changed."""
        self.is_probe = self.is_comparison = self.drafter.compare(n - self.compared, price)
        self.compared = n
        return self.is_probe

    def pay(self, n: float) -> None:
        """Asking it in this round took n plain decodes."""
        if self.is_comparison:
            self.drafter.credit -= n
        elif self.is_probe:
            self.drafter.withdraw(n)
        self.is_comparison = False

    def _put_off(self, n: int, n_ids: int) -> None:
        if not self.next_at:
            self.booked = n
        self.next_at = n + max(min(n_ids, _LONGEST_LOOK), 1)

    def judged(self, saved: float, price: float, n: int) -> None:
        """A round in which it was asked, after n ids, saved so much at this price."""
        self.drafter.learn(saved, price)
        self.saved += (_PROBE_RATE if self.is_probe else _SEQUENCE_RATE) * (saved - self.saved)
        self.is_probe = False
        if self.saved >= price:
            self.next_at, self.wait = 0, _FIRST_WAIT
        else:
            self._put_off(n, int(self.wait))
            self.wait = min(self.wait * _LONGER, _LONGEST_WAIT)

    def book(self, n: int) -> None:
        """The answer has n ids: those that were written without it count."""
        if self.next_at and n > self.booked:
            self.drafter.idle(n - self.booked)
            self.booked = n

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
