"""What is known of a drafter over all texts: what asking it costs, what others had from it, and what may be spent on asking it.

Knows no cost curve and no running text; times are milliseconds, counts are target ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import Final

from uad.policy.calibration import TextOdds

_SHIFT_RATE: Final = 0.3  # of a text's odds, per text, into what the next ones begin with
_BIRTH_RATE: Final = 0.03
_FEW_ROUNDS: Final = 5.0  # behind which a round counts for more, since what was known has faded
_MANY_ROUNDS: Final = 40.0
_MOST_WORTH: Final = 3.0  # plain decodes, won or lost, that one round counts for
_MOST_SAVED: Final = 100  # plain decodes
MOST_OWED: Final = 4.0  # plain decodes that the bucket may owe for calls that show what they cost; as many again for asking
_FAST_READ: Final = 16  # ids; more are a backlog whose reading has a price of its own
_STALL_MS: Final = 250.0  # that others may wait for reading, as for a chunk of a prompt
_LEAST_READ: Final = 64  # ids
_UNKNOWN_READ: Final = 256
_COST_RATE: Final = 0.15
MOST_TIMES: Final = 3.0  # a measured cost counts as no more than so many times the expected one
_LEAST_TIMES: Final = 1.5  # and the expected one, from then on, as no more than so many times the measured one
_MOST_OF_READ: Final = 0.8  # of the time of a call that reads eight ids
FREE_TIMES: Final = 3  # that such calls in a row are dear, before they have to be paid
CHEAP: Final = 1.0  # plain decodes: a call that reads a few ids and takes less
_FADING: Final = 0.99  # of what is held against a drafter, per id that is written without it
_MOST_DEARER: Final = 10.0  # nor the first reading in texts of some length as more than so many times the usual one


@dataclass(slots=True)
class Habit:
    """One drafter over all texts: what a call costs in round after round, and behind a pause, in which caches forget its weights (0: not
    known); what reading an id costs; how many target ids a step of it makes. called_at: the round of its last call; timed_at: how many ids
    all texts had then. n_timed: calls in a row that only showed what they cost, and were dear; timed_share: of the last one, in plain
    decodes."""

    call_ms: float = 0.0
    paused_ms: float = 0.0
    read_ms: float = 0.0
    ids_per_step: float = 1.0
    n_calls: int = 0
    n_paused: int = 0
    called_at: int = 0
    timed_at: int = 0
    n_timed: int = 0
    timed_share: float = 0.0

    def read_at_once(self, n_texts: int) -> int:
        """How many ids each of so many texts may read in a round for which others wait."""
        n = int(_STALL_MS / self.read_ms) if self.read_ms > 0 else _UNKNOWN_READ
        return max(n // n_texts, _LEAST_READ)

    def usual_ms(self, paused: bool) -> float:
        """What a call costs beside draft steps and reading."""
        return (self.paused_ms or self.call_ms) if paused else (self.call_ms or self.paused_ms)

    @property
    def least_ms(self) -> float:
        """The lesser of both prices: the other may be of a time when the machine was busy."""
        return min(self.usual_ms(True), self.usual_ms(False))

    def called(self, ms: float, backlog: int, paused: bool = False) -> float:
        """A call took ms beside its draft steps, for texts that had `backlog` ids to be read first: how much of it went into reading."""
        usual = self.usual_ms(paused)
        if backlog > _FAST_READ:
            reading_ms = max(ms - usual, 0.0)
            self.read(reading_ms, backlog)
            return reading_ms
        known = ms
        if self.n_calls and ms > MOST_TIMES * usual:
            ms = MOST_TIMES * usual
        self.n_calls += 1
        if paused:
            self.n_paused += 1
            self.paused_ms += max(_COST_RATE, 1 / self.n_paused) * (ms - self.paused_ms)
        else:
            self.call_ms += max(_COST_RATE, 1 / (self.n_calls - self.n_paused)) * (ms - self.call_ms)
        self.call_ms = min(self.call_ms, _LEAST_TIMES * known)
        if paused:
            self.paused_ms = min(self.paused_ms, _LEAST_TIMES * known)
        return 0.0

    def timed(self, ms: float, n_ids: int, plain_ms: float) -> None:
        """A call that read n_ids, and wrote nothing, took ms: most of it went into reading at most."""
        self.read_ms = min(self.read_ms, _MOST_OF_READ * ms / n_ids)
        self.called(ms - n_ids * self.read_ms, 0, paused=True)
        self.timed_share = ms / plain_ms
        self.n_timed = self.n_timed + 1 if self.timed_share > CHEAP else 0

    def read(self, ms: float, n_ids: int) -> None:
        """Reading n_ids took ms."""
        if n_ids >= _FAST_READ:
            self.read_ms = _per_id(self.read_ms, ms, n_ids)

    def wrote(self, n_steps: int, n_ids: int) -> None:
        """n_steps ids of the draft became n_ids of the target."""
        if n_steps > 1:
            self.ids_per_step += 0.05 * (min(max(n_ids / n_steps, 0.25), 4.0) - self.ids_per_step)


def _per_id(known_ms: float, ms: float, n_ids: int) -> float:
    """What reading an id takes, by what was known of it (0: nothing) and a reading of n_ids in ms."""
    if not known_ms:
        return ms / n_ids
    return min(known_ms + _COST_RATE * (min(ms / n_ids, MOST_TIMES * known_ms) - known_ms), _LEAST_TIMES * ms / n_ids)


@dataclass(slots=True)
class Standing:
    """One drafter in texts with prompts of about one length: what a new text may expect of it (in plain decodes saved per round), what
    reading an id takes in them (0: not known), and what may be spent on asking it where it does not pay.

    bucket: a token bucket, in plain decodes. Texts that leave it alone put a small share of their time in, texts in which it pays a share
    of what it saves. No short text could afford it by itself, and a drafter that failed in the first ones would never be asked again. By
    length, since a small model that is good at short texts may be lost in long ones, where asking it is dear: those are not to be paid by
    these. In the first text it is free, but not where it already failed in shorter texts, or could not win at all. first_shift: of its
    odds, until more is known.
    """

    birth: float = 0.0
    read_ms: float = 0.0
    bucket: float = 0.0
    is_new: bool = True
    n_judged: float = _MANY_ROUNDS
    first_shift: float = 0.0
    shifts: dict[tuple[str, bool], float] = field(default_factory=dict)

    def pay(self, price: float, may_be_free: bool = True) -> bool:
        """Take the price of asking once, in plain decodes, from the bucket, if it is there, or will be soon."""
        is_free = self.is_new and may_be_free
        most_owed = 2 * MOST_OWED if may_be_free else 0.0
        if self.lacks(price, most_owed) > 0 and not is_free:
            return False
        self.bucket = max(self.bucket - price, 0.0 if is_free else -most_owed)
        self.is_new = False
        return True

    def lacks(self, price: float, most_owed: float) -> float:
        """What the bucket lacks to pay so many plain decodes, where it may owe some."""
        return max(price - self.bucket - most_owed, 0.0)

    def charge(self, price: float) -> None:
        """A call that showed what calls cost took so many plain decodes. What it leaves owing has a limit: asking would wait for long."""
        self.bucket = min(self.bucket, max(self.bucket - price, -MOST_OWED))

    def earn(self, n: float) -> None:
        """Put what n plain decodes take into the bucket, as far as it goes."""
        self.bucket = min(self.bucket + n, _MOST_SAVED)

    def read(self, ms: float, n_ids: int, habit: Habit) -> None:
        """Reading n_ids of such a text took ms."""
        if n_ids >= _FAST_READ:
            usual = habit.read_ms
            self.read_ms = _per_id(self.read_ms, min(ms, _MOST_DEARER * usual * n_ids) if usual else ms, n_ids)

    def odds(self, kind: str, is_drawn: bool) -> TextOdds:
        """A new text's, at first as those of the texts before it were that are drawn by lot, or not, as it is."""
        shift = self._shift(kind, is_drawn)
        return TextOdds(shift, value=exp(shift))

    def ended(self, kind: str, is_drawn: bool, odds: TextOdds) -> None:
        """Those of a text that is over."""
        shift = self._shift(kind, is_drawn)
        self.shifts[kind, is_drawn] = shift + _SHIFT_RATE * odds.known / (odds.known + 1.0) * (odds.shift - shift)

    def _shift(self, kind: str, is_drawn: bool) -> float:
        return self.shifts.get((kind, is_drawn), self.shifts.get((kind, not is_drawn), self.first_shift))

    def fade(self, n_ids: int) -> None:
        """So many ids were written without the drafter: what spoke against it is of another time, and the machine may be another."""
        kept = _FADING**n_ids
        self.n_judged *= kept
        if self.birth < 0:
            self.birth *= kept

    def judged(self, value: float) -> None:
        """A round of some text was worth so many plain decodes."""
        self.n_judged = min(self.n_judged + 1.0, _MANY_ROUNDS)
        self.birth += max(_BIRTH_RATE, 1.0 / (self.n_judged + _FEW_ROUNDS)) * (min(max(value, -_MOST_WORTH), _MOST_WORTH) - self.birth)
