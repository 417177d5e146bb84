"""What a policy remembers of one running text: which drafters pay for it, when to ask them again, which guesses wait for their verdict.

Knows no cost curve; times are milliseconds, counts are target ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Final

from uad.policy.calibration import Calibration, TextOdds, TextRun
from uad.types import Origin

DISPUTED: Final = "disputed"  # the kind of those ids at which what was looked up and the draft model differ
_VALUE_RATE: Final = 0.2
_SHIFT_RATE: Final = 0.3  # of a text's odds, per text, into what the next ones begin with
_BIRTH_RATE: Final = 0.03
_SHARE: Final = 0.006  # of the time, at most, goes into asking drafters that do not pay
_MOST_SHARE: Final = 0.012  # of a text's own time, where others filled the account
_FIRST_INTERVAL: Final = 2.0
_LAST_INTERVAL: Final = 16.0
_GROWTH: Final = 1.5
_PROBE_STEPS: Final = 2
_NOTHING: Final = 0.002  # of a plain decode
_LONGEST_SLEEP: Final = 64  # ids between two looks at the account
RECKON: Final = 32  # ids until it is reckoned again whether the draft model could win at all
UNLIKELY: Final = 4.0  # times the price for asking one that could not: what is known of it may be out of date
_TITHE: Final = 0.05  # of what drafts save
_MOST_SAVED: Final = 100  # plain decodes
_MOST_BEATEN: Final = 16  # rounds
_CLEARLY: Final = 1.5
_FAST_READ: Final = 16  # ids; more are a backlog whose reading has a price of its own
_STALL_MS: Final = 250.0  # that others may wait for reading, as for a chunk of a prompt
_LEAST_READ: Final = 64  # ids
_UNKNOWN_READ: Final = 256
_COST_RATE: Final = 0.15
MOST_TIMES: Final = 3.0  # a measured cost counts as no more than so many times the expected one
_MOST_DEARER: Final = 10.0  # nor the first reading in texts of some length as more than so many times the usual one
_MOST_EARLY: Final = 2
_STAKE: Final = 1.0  # plain decodes that a text may lose before its drafts are believed less
_MOST_LOST: Final = 2.5  # further ones that count
_LEAST_CAUTION: Final = exp(-_MOST_LOST)


@dataclass(slots=True)
class Habit:
    """One drafter over all texts: what a call costs in round after round, and behind a pause, in which caches forget its weights (0: not
    known); what reading an id costs; how many target ids a step of it makes. called_at: the round of its last call."""

    call_ms: float = 0.0
    paused_ms: float = 0.0
    read_ms: float = 0.0
    ids_per_step: float = 1.0
    n_calls: int = 0
    n_paused: int = 0
    called_at: int = 0

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
        if self.n_calls and ms > MOST_TIMES * usual:
            ms = MOST_TIMES * usual
        self.n_calls += 1
        if paused:
            self.n_paused += 1
            self.paused_ms += max(_COST_RATE, 1 / self.n_paused) * (ms - self.paused_ms)
        else:
            self.call_ms += max(_COST_RATE, 1 / (self.n_calls - self.n_paused)) * (ms - self.call_ms)
        return 0.0

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
    return known_ms + _COST_RATE * (min(ms / n_ids, MOST_TIMES * known_ms) - known_ms) if known_ms else ms / n_ids


@dataclass(slots=True)
class Standing:
    """One drafter in texts with prompts of about one length: what a new text may expect of it (in plain decodes saved per round), what
    reading an id takes in them (0: not known), and what may be spent on asking it where it does not pay.

    Into the account, texts that leave it alone pay a small share of their time, texts in which it pays a share of what it saves; no short
    text could afford it by itself, and a drafter that failed in the first ones would never be asked again. By length, since a small model
    that is good at short texts may be lost in long ones, where asking it is dear: those are not to be paid by these. The first time is
    free, but not where it already failed in shorter texts, or could not win at all.
    """

    birth: float = 0.0
    read_ms: float = 0.0
    account_ms: float = 0.0
    is_new: bool = True
    shifts: dict[str, float] = field(default_factory=dict)

    def pay(self, ms: float, may_be_free: bool = True) -> bool:
        """Take the price of asking once from the account, if it is there."""
        if self.account_ms < ms and not (self.is_new and may_be_free):
            return False
        self.account_ms = max(self.account_ms - ms, 0.0)
        self.is_new = False
        return True

    def earn(self, ms: float, plain_ms: float) -> None:
        """Put ms into the account, as far as it goes."""
        self.account_ms = min(self.account_ms + ms, _MOST_SAVED * plain_ms)

    def read(self, ms: float, n_ids: int, habit: Habit) -> None:
        """Reading n_ids of such a text took ms."""
        if n_ids >= _FAST_READ:
            usual = habit.read_ms
            self.read_ms = _per_id(self.read_ms, min(ms, _MOST_DEARER * usual * n_ids) if usual else ms, n_ids)

    def odds(self, kind: str) -> TextOdds:
        """A new text's, at first as those of the texts before it were."""
        shift = self.shifts.get(kind, 0.0)
        return TextOdds(shift, value=exp(shift))

    def ended(self, kind: str, odds: TextOdds) -> None:
        """Those of a text that is over."""
        shift = self.shifts.get(kind, 0.0)
        self.shifts[kind] = shift + _SHIFT_RATE * odds.known / (odds.known + 1.0) * (odds.shift - shift)

    def judged(self, value: float) -> None:
        """A round of some text was worth so many plain decodes."""
        self.birth += _BIRTH_RATE * (min(max(value, -1.0), 3.0) - self.birth)


@dataclass(slots=True)
class Use:
    """One drafter in one text. value: milliseconds saved per round, lately, beside what reading its backlog took. n_read: ids, those of the
    prompt too, that it has seen. Asked again when `due` ids are written (1: at once), each of which pays a share of plain_ms into the
    drafter's account until then, booked up to `booked`. `reckon`: when to find out next whether it can win at all. n_beaten: rounds in a
    row in which a free guess was preferred. n_early: times that it was asked before that, for being right. is_paid: asking it in this
    round was paid from the account. is_hopeless: it could not win, though all its ids were right."""

    standing: Standing
    value: float = 0.0
    due: int = 0
    reckon: int = 0
    interval: float = _FIRST_INTERVAL
    n_read: int = 0
    booked: int = 0
    plain_ms: float = 0.0
    n_beaten: int = 0
    n_early: int = 0
    is_new: bool = True
    is_paid: bool = False
    is_hopeless: bool = False
    odds_by_kind: dict[str, TextOdds] = field(default_factory=dict)
    trail: Sequence[int] = ()
    bins: list[int] = field(default_factory=list)
    at: int = 0
    calibration: Calibration | None = None
    odds: TextOdds | None = None
    disputed: int = -1  # where it differs from the draft model's
    disputed_p: float = 0.0

    def odds_of(self, kind: str) -> TextOdds:
        """This text's odds for drafts of a kind."""
        odds = self.odds_by_kind.get(kind)
        if odds is None:
            odds = self.odds_by_kind[kind] = self.standing.odds(kind)
        return odds

    def end(self, n: int) -> None:
        """The text is over after n ids: what it was like is a first guess for the next ones."""
        self.book(n)
        for kind, odds in self.odds_by_kind.items():
            self.standing.ended(kind, odds)

    @property
    def awake(self) -> bool:
        """Whether it is asked in every round."""
        return self.due == 0

    def backlog(self, text: Text) -> int:
        """Ids that it has yet to read."""
        return text.n_prompt + text.n - self.n_read

    def read_ms(self, habit: Habit) -> float:
        """What reading an id of this text takes."""
        return self.standing.read_ms or habit.read_ms

    def price(self, habit: Habit, n_ids: int, step_ms: float) -> float:
        """What asking once would cost, when n_ids are to be read first."""
        return habit.usual_ms(paused=True) + n_ids * self.read_ms(habit) + _PROBE_STEPS * step_ms

    def judged(self, value: float, text: Text, habit: Habit, plain_ms: float, step_ms: float) -> None:
        """A round was worth so much: go on, or sleep until asking again costs little."""
        self.book(text.n)
        self.is_new = False
        self.n_beaten = 0
        if value > 0:
            self.standing.earn(_TITHE * value, plain_ms)
        if value > 0 and not self.awake:
            self.value = 0.5 * value
        else:
            self.value += _VALUE_RATE * (value - self.value)
        if plain_ms > 0:
            self.standing.judged(value / plain_ms)
        if self.value >= 0:
            self.due, self.interval = 0, _FIRST_INTERVAL
        else:
            self.sleep(text, habit, plain_ms, step_ms)
            rarely = self.price(habit, 0, step_ms) / (_MOST_SHARE * plain_ms) if plain_ms > 0 else 0.0
            self.interval = min(self.interval * _GROWTH, max(_LAST_INTERVAL, rarely))

    def sleep(self, text: Text, habit: Habit, plain_ms: float, step_ms: float, times: float = 1.0) -> None:
        """Ask again after `interval` ids (at once where asking costs nothing to speak of), and not before the account has so many times its
        price."""
        self.plain_ms, self.booked, self.is_hopeless = plain_ms, text.n, times > 1.0
        owed = max(times * self.price(habit, self.backlog(text), step_ms) - self.standing.account_ms, 0.0)
        per_id = _SHARE * plain_ms - self.read_ms(habit)
        wait = owed / per_id if per_id > 0 else _LONGEST_SLEEP if owed else 0.0
        interval = int(self.interval) if self.price(habit, 0, step_ms) > _NOTHING * plain_ms else 1
        self.due = text.n + max(interval, min(int(wait) + 1, _LONGEST_SLEEP))

    def book(self, n: int) -> None:
        """Pay for the ids that were written without it, up to the n-th of the text."""
        if self.due and n > self.booked:
            self.standing.earn(_SHARE * self.plain_ms * (n - self.booked), self.plain_ms)
            self.booked = n

    def is_beaten(self, value: float) -> bool:
        """Whether a free and sure guess of this value spares asking: one that promises clearly more than this drafter's usually do, since
        those do better, too, where a text is copied. Asked all the same now and then, or what is known of it would never change."""
        if self.is_new or self.n_beaten >= _MOST_BEATEN or value <= _CLEARLY * max(self.value, 0.0):
            return False
        self.n_beaten += 1
        return True

    def follow(self, ids: Sequence[int], bins: list[int], calibration: Calibration, odds: TextOdds) -> None:
        """Wait for the verdict on this draft, submitted or not; bins are those of its beliefs."""
        self.trail, self.bins, self.at = ids, bins, 0
        self.calibration, self.odds = calibration, odds
        self.disputed = -1

    def dispute(self, at: int, p: float) -> None:
        """The draft that waits differs there first from the draft model's; p is expected of its id where nothing was learned of such."""
        self.disputed, self.disputed_p = at, p

    def check(self, ids: Sequence[int]) -> None:
        """The text goes on with ids: learn from every guess up to the first wrong one; a drafter that was right while it was left alone is
        asked again at once, twice at most before it was asked at its time."""
        at, calibration, odds = self.at, self.calibration, self.odds
        n = min(len(self.trail) - at, len(ids))
        if n <= 0 or calibration is None or odds is None:
            return
        guesses = self.trail[at : at + n]
        n_right = n if guesses == ids[:n] else next((i for i in range(n) if guesses[i] != ids[i]), n)
        if self.due and n_right == n and self.n_early < _MOST_EARLY and not self.is_hopeless:
            self.due = 1  # left alone, and right: asking it again cannot wait
            self.n_early += 1
        odds.judge(calibration.judge(self.bins[at : at + min(n_right + 1, n)], n_right), n_right)
        if at <= self.disputed < at + min(n_right + 1, n):
            self.odds_of(DISPUTED).judge([self.disputed_p], int(self.disputed < at + n_right))
        if n_right < n:
            self.trail = ()
        self.at = at + n


@dataclass(slots=True)
class Text:
    """One running text. n counts its ids since its prompt; `due` is when the next drafter is; reading_ms what the draft model took for
    n_reading ids of the prompt that it read while the target did.

    `saved` is the account of what its drafts brought so far, in plain decodes; those that a drafter's own account paid cost it nothing.
    Below the stake it speaks against all that is believed of them: the odds of each id are multiplied by `caution`, until it recovers.
    """

    n_prompt: int
    n: int = 0
    due: int = 0
    reading_ms: float = 0.0
    n_reading: int = 0
    uses: dict[Origin, Use] = field(default_factory=dict)
    run: TextRun = field(default_factory=TextRun)
    saved: float = 0.0
    caution: float = 1.0
    spent_ms: float = 0.0  # in this round
    plain_ms: float = 0.0

    def settle(self, n_accepted: int) -> None:
        """The round is over, and so many drafted ids were accepted: each spared a plain decode."""
        if not self.spent_ms or self.plain_ms <= 0:
            return
        self.saved += n_accepted - self.spent_ms / self.plain_ms
        self.spent_ms = 0.0
        left = self.saved + _STAKE
        self.caution = 1.0 if left >= 0 else exp(left) if left > -_MOST_LOST else _LEAST_CAUTION
