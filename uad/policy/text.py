"""What a policy remembers of one running text: which drafters pay for it, when to ask them again, which guesses wait for their verdict.

Knows no cost curve; times are milliseconds, counts are target ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Final

from uad.policy.calibration import Calibration, TextOdds
from uad.policy.outlook import TextRun
from uad.policy.standing import MOST_OWED, Habit, Standing
from uad.types import Origin

DISPUTED: Final = "disputed"  # the kind of those ids at which what was looked up and the draft model differ
_VALUE_RATE: Final = 0.2
_SHARE: Final = 0.016  # of the time, at most, goes into asking drafters that do not pay
_MOST_AT_ONCE: Final = 0.1  # of a text's time so far may go into asking once, where the bucket holds less than the price
_FIRST_INTERVAL: Final = 2.0
_LAST_INTERVAL: Final = 16.0
_RICH: Final = 50.0  # times the price in the bucket: what drafts saved finds out sooner that they do again
_RICH_INTERVAL: Final = 10.0
_GROWTH: Final = 1.5
_PROBE_STEPS: Final = 2
_NOTHING: Final = 0.002  # of a plain decode
_LONGEST_SLEEP: Final = 32  # ids between two looks at the bucket
RECKON: Final = 32  # ids until it is reckoned again whether the draft model could win at all
UNLIKELY: Final = 4.0  # times the price for asking one that could not: what is known of it may be out of date
_TITHE: Final = 0.05  # of what drafts save
_MOST_BEATEN: Final = 16  # rounds
_CLEARLY: Final = 1.5
_MOST_LOST_AT_ONCE: Final = 3.0  # plain decodes that one round counts for: what it cost beyond is a disturbed machine's
_MOST_EARLY: Final = 2
_WOKEN: Final = 3.0  # times the price of asking that one good guess after a pause counts for
_STAKE: Final = 0.4  # plain decodes that a text may lose before its drafts are believed less
_MOST_LOST: Final = 2.5  # further ones that count
_HEARD: Final = 0.12  # of caution's logarithm: an id tells of its neighbours, too
_LEAST_CAUTION: Final = exp(-_MOST_LOST)


@dataclass(slots=True)
class Use:
    """One drafter in one text. value: milliseconds saved per round, lately, beside what reading its backlog took; promised: the same as if
    neighbours' drafts had been like its own. n_read: ids, those of the prompt too, that it has seen; of more than `window` unread ones it
    reads the last. is_far: reading costs more than drafts would bring. Asked again when `due` ids are written
    (1: at once), each of which pays a share of plain_ms into the drafter's bucket until then, booked up to `booked`. `reckon`: when to
    find out next whether it can win at all. n_beaten: rounds in a row in which a free guess was preferred. n_early: times that it was asked
    before that, for being right. is_paid: asking it in this round was paid from the bucket. is_hopeless: it could not win, though all its
    ids were right."""

    standing: Standing
    is_drawn: bool = False
    window: int = 0
    n_read: int = 0
    is_far: bool = False
    value: float = 0.0
    promised: float = 0.0
    due: int = 0
    reckon: int = 0
    interval: float = _FIRST_INTERVAL
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
            odds = self.odds_by_kind[kind] = self.standing.odds(kind, self.is_drawn)
        return odds

    def end(self, n: int) -> None:
        """The text is over after n ids: what it was like is a first guess for the next ones."""
        self.book(n)
        if not self.is_new:
            self.standing.is_new = False
        for kind, odds in self.odds_by_kind.items():
            self.standing.ended(kind, self.is_drawn, odds)

    @property
    def awake(self) -> bool:
        """Whether it is asked in every round."""
        return self.due == 0

    def backlog(self, text: Text) -> int:
        """Ids that it has yet to read."""
        n = text.n_prompt + text.n - self.n_read
        return min(n, self.window) if self.window else n

    def read(self, text: Text, n_ids: int) -> None:
        """It read so many more ids of this text, as it counts them."""
        self.n_read = text.n_prompt + text.n - max(self.backlog(text) - n_ids, 0)

    def read_ms(self, habit: Habit) -> float:
        """What reading an id of this text takes."""
        return self.standing.read_ms or habit.read_ms

    def timed(self, read_ms: float, text: Text, n_ids: int) -> None:
        """n_ids of this text were read, for so many milliseconds each at most."""
        self.read(text, n_ids)
        self.standing.read_ms = min(self.standing.read_ms, read_ms)

    def price(self, habit: Habit, n_ids: int, step_ms: float) -> float:
        """What asking once would cost, when n_ids are to be read first."""
        return habit.usual_ms(paused=True) + n_ids * self.read_ms(habit) + _PROBE_STEPS * step_ms

    def ids_too_early(self, price: float, text: Text, plain_ms: float) -> float:
        """How many ids until asking is a small part of what the text took so far (0: it is). It may end soon: reading a prompt can wait."""
        if plain_ms <= 0 or (self.standing.is_new and not self.is_far) or self.standing.bucket * plain_ms >= price:
            return 0.0
        return max(price / (_MOST_AT_ONCE * plain_ms) - text.n, 0.0)

    def judged(self, value: float, promised: float, text: Text, habit: Habit, plain_ms: float, step_ms: float) -> None:
        """A round was worth so much, and promised so much with neighbours like it: go on, or sleep until asking again costs little."""
        self.book(text.n)
        self.is_new = False
        self.n_beaten = 0
        value, promised = max(value, -_MOST_LOST_AT_ONCE * plain_ms), max(promised, -_MOST_LOST_AT_ONCE * plain_ms)
        if value > 0:
            self.standing.earn(_TITHE * value / plain_ms if plain_ms > 0 else 0.0)
        if value > 0 and not self.awake:
            self.value = min(0.5 * value, _WOKEN * self.price(habit, 0, step_ms))
        else:
            self.value += _VALUE_RATE * (value - self.value)
        self.promised = self.value if promised == value else self.promised + _VALUE_RATE * (promised - self.promised)
        if plain_ms > 0:
            self.standing.judged(value / plain_ms)
        if self.value >= 0:
            self.due, self.interval = 0, _FIRST_INTERVAL
        else:
            self.sleep(text, habit, plain_ms, step_ms)
            price = self.price(habit, 0, step_ms)
            last = _RICH_INTERVAL if self.standing.bucket * plain_ms > _RICH * price else _LAST_INTERVAL
            rarely = price / (_SHARE * plain_ms) if plain_ms > 0 else 0.0
            self.interval = min(self.interval * _GROWTH, max(last, rarely))

    def sleep(self, text: Text, habit: Habit, plain_ms: float, step_ms: float, times: float = 1.0) -> None:
        """Ask again after `interval` ids (at once where asking costs nothing to speak of), neither too early in the text nor before the
        bucket has so many times its price."""
        self.plain_ms, self.booked, self.is_hopeless = plain_ms, text.n, times > 1.0
        price = times * self.price(habit, self.backlog(text), step_ms)
        lacks_ms = self.standing.lacks(price / plain_ms, 0.0 if self.is_hopeless else 2 * MOST_OWED) * plain_ms if plain_ms > 0 else 0.0
        per_id = _SHARE * plain_ms - self.read_ms(habit)
        wait = lacks_ms / per_id if per_id > 0 else _LONGEST_SLEEP if lacks_ms else 0.0
        wait = max(wait, self.ids_too_early(price, text, plain_ms))
        interval = int(self.interval) if self.price(habit, 0, step_ms) > _NOTHING * plain_ms else 1
        self.due = text.n + max(interval, min(int(wait) + 1, _LONGEST_SLEEP))

    def book(self, n: int) -> None:
        """Pay for the ids that were written without it, up to the n-th of the text."""
        if self.due and n > self.booked:
            self.standing.earn(_SHARE * (n - self.booked))
            self.standing.fade(n - self.booked)
            self.booked = n

    def is_beaten(self, value: float) -> bool:
        """Whether a free and sure guess of this value spares asking: one that promises clearly more than this drafter's usually do, since
        those do better, too, where a text is copied. Asked all the same now and then, or what is known of it would never change."""
        if self.is_new or self.n_beaten >= _MOST_BEATEN or value <= _CLEARLY * max(self.promised, 0.0):
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

    def check(self, ids: Sequence[int], text: Text, silent: bool) -> None:
        """The text goes on with ids: learn from every guess up to the first wrong one; a drafter that was right while it was left alone is
        asked again at once, twice at most before it was asked at its time. silent: no draft was submitted."""
        at, calibration, odds = self.at, self.calibration, self.odds
        n = min(len(self.trail) - at, len(ids))
        if n <= 0 or calibration is None or odds is None:
            return
        guesses = self.trail[at : at + n]
        n_right = n if guesses == ids[:n] else next((i for i in range(n) if guesses[i] != ids[i]), n)
        if self.due and n_right == n and self.n_early < _MOST_EARLY and not self.is_hopeless:
            self.due = 1  # left alone, and right: asking it again cannot wait
            self.n_early += 1
        expected = calibration.judge(self.bins[at : at + min(n_right + 1, n)], n_right)
        if silent and text.caution < 1.0:
            text.heard(expected, n_right, odds.value)
        odds.judge(expected, n_right)
        if at <= self.disputed < at + min(n_right + 1, n):
            self.odds_of(DISPUTED).judge([self.disputed_p], int(self.disputed < at + n_right))
        if n_right < n:
            self.trail = ()
        self.at = at + n


@dataclass(slots=True)
class Text:
    """One running text. n counts its ids since its prompt; `due` is when the next drafter is; the draft model's KV holds n_held ids of the
    prompt from the text before. is_drawn: its ids are drawn by lot, often others than the likeliest. kind: that of the draft model's drafts
    (`memory.kind_of`).

    `saved` is the sum of what its drafts brought so far, in plain decodes; those that a drafter's own bucket paid cost it nothing.
    Below the stake it speaks against all that is believed of them: the odds of each id are multiplied by `caution`, until it recovers: by
    what drafts save, or by verdicts on those that were not submitted, which tell whether the belief or the caution is right.
    """

    n_prompt: int
    is_drawn: bool = False
    kind: str = Origin.MODEL
    n: int = 0
    due: int = 0
    n_held: int = 0
    uses: dict[Origin, Use] = field(default_factory=dict)
    run: TextRun = field(default_factory=TextRun)
    saved: float = 0.0
    caution: float = 1.0
    usual: float = 0.0  # plain decodes that a round of such texts saves
    spent_ms: float = 0.0  # in this round
    plain_ms: float = 0.0

    def settle(self, n_accepted: int) -> None:
        """The round is over, and so many drafted ids were accepted: each spared a plain decode."""
        if not self.spent_ms or self.plain_ms <= 0:
            return
        self.saved += n_accepted - self.spent_ms / self.plain_ms
        self.spent_ms = 0.0
        self._beware()

    def heard(self, predicted: list[float], n_right: int, odds: float) -> None:
        """Ids of these probabilities, by their kind, were judged in turn (`TextOdds.judge`) in a round that submitted nothing.

        A part of the logarithm of how much likelier belief makes that than caution does is added to `saved`; what speaks for caution,
        only as far as it counts.
        """
        cautious, least = odds * self.caution, min(self.saved, -_STAKE - _MOST_LOST)
        for k in range(min(n_right + 1, len(predicted))):
            p = predicted[k]
            rest = (1.0 + p * (cautious - 1.0)) / (1.0 + p * (odds - 1.0))
            self.saved += _HEARD * log(rest / self.caution if k < n_right else rest)
        if self.saved < least:
            self.saved = least
        self._beware()

    def _beware(self) -> None:
        left = self.saved + _STAKE
        self.caution = 1.0 if left >= 0 else exp(left) if left > -_MOST_LOST else _LEAST_CAUTION
