"""Knowledge of one drafter: what its calls cost, what they save, over all sequences and in one; and when it is asked
again where it does not pay. Arithmetic only.

Savings, prices and the budget are counted in plain decodes: what a sequence pays for an id without drafts. The savings
of a drafter are kept apart from its price, so that a disturbed machine spoils only the price, which the next call
shows. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from uad.engine.policy.calibration import Calibration
from uad.engine.policy.cost import SPEED_RATE, CostCurve

# Ids of a sequence that are read as part of a call; reading more is a cost of its own. A chunk of llama.cpp's smallest
# efficient batch.
FEW_IDS: Final = 16
# A measured cost counts as at most this many times the known one: a call of a suspended process took a thousand times
# it. And the known one counts as at most this many times a measured one: an idle machine shows itself in one call.
_MOST_TIMES: Final = 2.0
# The cost of reading an id before it is known, in steps: a batch computes twice as fast as single rows (SmolLM2-135M).
_READ_OF_STEP: Final = 0.5
# Nor more than this share of a plain decode, whatever was measured on a busy machine: 3.5 of 83 ms (lab/curves.py).
_READ_OF_PLAIN: Final = 0.05
# Milliseconds that others may wait while a backlog is read, as for a chunk of a prompt.
_STALL_MS: Final = 250.0
# Ids that are read at once at least, and while it is not known how long that takes.
_LEAST_READ: Final = 64
UNKNOWN_READ: Final = 256
# Ids between two calls that only show what calls cost, at least; and plain decodes per id that they may take: 1.8 %
# where calls are dear. The first ones may take longer.
_OFTEN: Final = 64.0
_TIMING: Final = 0.018
# Of what a round saved, into the mean over all sequences.
_SAVED_RATE: Final = 0.03
# Plain decodes per id that is written without a drafter, for asking it again. It bounds what probing costs: 0.4 %.
_PROBING: Final = 0.004
# Of what drafts save beyond their price, for the same: one that mostly pays is found again in the same text.
_FOR_PROBES: Final = 0.05
# Plain decodes in the budget at first, which is also the most that a probe may owe: a dear one on a disturbed machine
# would prevent others for long. And at most.
_FIRST_BUDGET: Final = 2.0
_MOST_BUDGET: Final = 20.0
# Of what a round gained, into the mean by which drafters that write are compared, at least, over all sequences and in
# one; and how many rounds the first guess counts for in all, and all in one. Shorter means have the last text decide
# the next.
_USUAL_RATE: Final = 0.02
_FEW_ROUNDS: Final = 5.0
_STEADY_RATE: Final = 0.05
_FEW_IN_SEQUENCE: Final = 8.0
# Rounds that count as if a drafter had gained as much as is hoped for. Without them an unlucky first text, with beliefs
# that are not calibrated yet, has the other drafter write for good.
_HOPE_ROUNDS: Final = 60.0
# Of what a round saved, into the mean of its sequence.
_SEQUENCE_RATE: Final = 0.2
# Ids that a drafter is left alone after a round that did not pay: two, then twice as many each time, up to this. Always
# two lose 0.03 in the worst category of sampled answers (lab/README).
_LONGEST_REST: Final = 16
# Ids between two looks at what has changed, at most.
LONGEST_WAIT: Final = 32


def learned(known: float, ms: float) -> float:
    """A mean with one more measurement. One call of a disturbed machine counts little, and one of an idle one ends
    that. 0: nothing is known yet.

    Known 10 ms: 12 ms make it 10.3, 1000 ms count as 20 and make it 11.5, and 1 ms makes it 2.
    """
    if not known:
        return ms
    return min(known + SPEED_RATE * (min(ms, _MOST_TIMES * known) - known), _MOST_TIMES * ms)


@dataclass(slots=True)
class CallCost:
    """Running means. A draft call reads what it has not read, and writes the first id; steps for further ids are known
    apart.
    """

    steps: CostCurve | None = None
    """The cost of a step, by sequences, for a drafter that writes. It is measured only while drafts are written."""
    call_ms: float = 0.0
    """Milliseconds of a call, beside its steps and the reading of many ids; 0: unknown."""
    around_ms: float = 0.0
    """Milliseconds of the round for asking this drafter, beside its call: what the policy and the loop take."""
    read_ms: float = 0.0
    """Milliseconds of reading one id."""
    n_steps: float = 1.0
    """Steps of a call, its first id included."""
    age: int = 0
    """Ids that were written since the last call."""
    wait: float = _OFTEN
    """Ids until a call is made to find out what calls cost: a machine that was disturbed would leave the drafter alone
    for ever.
    """
    n_dear: int = 0
    """How many of these calls in a row took longer than a plain decode."""

    def step_ms(self, n: int) -> float:
        """A step for n sequences. A call has one, and costs more: whatever was measured on a busy machine."""
        if self.steps is None:
            return 0.0
        ms = self.steps.ms(1)
        return self.steps.ms(n) * (min(self.call_ms / ms, 1.0) if self.call_ms and ms > 0 else 1.0)

    @property
    def is_old(self) -> bool:
        """Whether to find out what a call costs now."""
        return self.age >= self.wait

    def price(self, plain_ms: float, n_seq: int) -> float:
        """The cost to each of n_seq sequences of a call for all of them, beside reading, in plain decodes."""
        ms = self.around_ms + (self.call_ms or self.step_ms(1)) + (self.n_steps - 1.0) * self.step_ms(n_seq)
        return ms / n_seq / plain_ms if plain_ms > 0 else 0.0

    def reading(self, n_unread: int, plain_ms: float) -> float:
        """The cost of reading n_unread ids, in plain decodes. A few are part of the call."""
        if n_unread <= FEW_IDS or plain_ms <= 0:
            return 0.0
        read_ms = self.read_ms or min(_READ_OF_STEP * self.step_ms(1), _READ_OF_PLAIN * plain_ms)
        return read_ms * n_unread / plain_ms

    def read_at_once(self, n_sequences: int) -> int:
        """How many ids each of n_sequences sequences may read in a round for which others wait."""
        n = int(_STALL_MS / self.read_ms) if self.read_ms > 0 else UNKNOWN_READ
        return max(n // n_sequences, _LEAST_READ)

    def timing(self, ms: float, n_read: int, plain_ms: float) -> None:
        """A call that read n_read ids, and wrote nothing, took ms: at most four fifths of it went into reading. Where
        calls stay dear, this is found out less and less often.
        """
        self.read_ms = min(self.read_ms or 0.5 * ms / n_read, 0.8 * ms / n_read)
        self.called(ms - n_read * self.read_ms, 0)
        taken = ms / plain_ms
        self.n_dear = self.n_dear + 1 if taken > 1.0 else 0
        self.wait = min(max(taken / _TIMING, _OFTEN), _OFTEN * 2.0 ** min(max(self.n_dear - 2, 0), 16))

    def called(self, ms: float, n_read: int, n_sequences: int = 1) -> float:
        """Record that a call took ms beside its steps, and read n_read ids of n_sequences sequences; returns how much
        of it went into reading.
        """
        self.age = 0
        if n_read > FEW_IDS * n_sequences:
            reading_ms = max(ms - self.call_ms, 0.0)
            self.read_ms = learned(self.read_ms, reading_ms / n_read)
            return reading_ms
        self.call_ms = learned(self.call_ms, ms)
        return 0.0

    def asked(self, around_ms: float) -> None:
        """A round took so long for asking this drafter, beside its call."""
        self.around_ms = learned(self.around_ms, around_ms)

    def stepped(self, n_steps: int) -> None:
        """Record that a call took n_steps steps, its first id included."""
        self.n_steps += SPEED_RATE * (n_steps - self.n_steps)


@dataclass(slots=True)
class MeanGain:
    """A mean of rounds: the plain decodes that one gains, its price paid, and the drafted ids that it brings."""

    decodes: float = 0.0
    ids: float = 0.0

    def learn(self, decodes: float, ids: float, rate: float) -> None:
        """One more round."""
        self.decodes += rate * (decodes - self.decodes)
        self.ids += rate * (ids - self.ids)


@dataclass(slots=True)
class DrafterRecord:
    """One drafter over all sequences."""

    cost: CallCost = field(default_factory=CallCost)
    saved: float | None = None
    """Savings of a round in which it is asked, before its price: what a new sequence may expect. None: unknown."""
    usual: MeanGain = field(default_factory=MeanGain)
    """Gains of a round, for comparing it with others that write."""
    n_rounds: int = 0
    budget: float = _FIRST_BUDGET
    """A token bucket for asking it where it does not pay, in plain decodes."""

    def learn(self, saved: float, price: float, n_ids: float) -> None:
        """A round that brought n_ids drafted ids saved so much, at this price."""
        self.n_rounds += 1
        self.usual.learn(saved - price, n_ids, max(_USUAL_RATE, 1.0 / (self.n_rounds + _FEW_ROUNDS)))
        known = saved if self.saved is None else self.saved
        self.saved = known + _SAVED_RATE * (saved - known)
        if saved > price:
            self._deposit(_FOR_PROBES * (saved - price))

    def idle(self, n_ids: int) -> None:
        """n_ids more ids were written without it: they pay for asking it again."""
        self._deposit(_PROBING * n_ids)
        self.cost.age += n_ids

    def _deposit(self, n: float) -> None:
        self.budget = min(self.budget + n, _MOST_BUDGET)

    def pay(self, n: float) -> None:
        """Asking it once took so much. It may be more than there was: then the next time is later."""
        self.budget = max(self.budget - n, -_FIRST_BUDGET)


@dataclass(slots=True)
class SequenceDrafter:
    """One drafter in one sequence. It is asked in every round while it saves what that costs, else now and then."""

    drafter: DrafterRecord
    saved: float
    """Recent savings of a round, before its price."""
    steady: MeanGain = field(default_factory=MeanGain)
    """Gains of a round over a longer time, for comparing it with others that write."""
    n_rounds: int = 0
    next_at: int = 0
    """Ids of the answer after which it may be asked again; 0: in every round."""
    is_probe: bool = False
    """Asking it in this round is paid from the budget."""
    rest: int = 1
    """Ids that it was left alone after the last round that did not pay."""
    n_read: int = 0
    """Ids of the sequence that it has seen, those of the prompt too."""
    trail: Sequence[int] = ()
    """The drafter's last guess, as long as it was right, whether it was submitted or not."""
    bins: list[int] = field(default_factory=list)
    """Bins of the beliefs in it."""
    at: int = 0
    """How many ids of it were judged."""
    calibration: Calibration | None = None

    def gain_per_id(self, hope: float, price: float) -> float:
        """Plain decodes that it is expected to gain with each id of the answer, less than 1, at this price. hope: what
        a round gains as long as little is known of it.
        """
        share, steady = _HOPE_ROUNDS / (_HOPE_ROUNDS + self.drafter.n_rounds), self.steady
        decodes = steady.decodes + share * (hope - steady.decodes)
        return max(decodes, 0.0) / (1.0 + steady.ids + share * (hope + price - steady.ids))

    def is_due(self, n: int, price: float, pays: bool, is_best: bool) -> bool:
        """Whether to ask it now, n ids into the answer; if not, `next_at` is when that is looked at again.

        price: plain decodes that asking it takes, reading included. pays: whether it saves more than that. is_best: no
        other drafter saves more.

        A drafter that pays is asked in every round. One that does not has a budget, which each id pays into that is
        written without it: with a price of 0.4 plain decodes, and 0.1 in the budget, it is asked after 0.3 / 0.004 = 75
        ids, looked at again after 32 and 64 in case that prices fell. However bad it is, it costs no more than 0.4 %.
        """
        self.is_probe = False
        if not is_best:
            self.next_at = n + 1
        elif pays:
            self.next_at = 0
        else:
            missing = min(price, _MOST_BUDGET) - self.drafter.budget
            self.is_probe = missing <= 0
            self.next_at = n if self.is_probe else n + min(max(int(missing / _PROBING), 1), LONGEST_WAIT)
        return self.next_at <= n

    def judged(self, n: int, saved: float, price: float, n_ids: float) -> None:
        """A round in which it was asked, n ids into the answer, brought n_ids drafted ids, and saved so much at this
        price.
        """
        self.drafter.learn(saved, price, n_ids)
        self.saved += _SEQUENCE_RATE * (saved - self.saved)
        if self.drafter.cost.steps is not None:
            self.n_rounds += 1
            self.steady.learn(saved - price, n_ids, max(_STEADY_RATE, 1.0 / (self.n_rounds + _FEW_IN_SEQUENCE)))
        self.is_probe = False
        if self.saved >= price:
            self.rest, self.next_at = 1, 0
        else:
            self.rest = min(2 * self.rest, _LONGEST_REST)
            self.next_at = n + self.rest

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
