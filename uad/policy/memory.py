"""What the automatic policy knows: costs, how far each kind of draft can be believed, what drafters cost, and the running texts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from uad.policy.calibration import Calibration
from uad.policy.machine import Machine
from uad.policy.protocol import Wish
from uad.policy.standing import CHEAP, FREE_TIMES, Habit, Standing
from uad.policy.text import RECKON, UNLIKELY, Text, Use
from uad.types import Origin

_MODEL: Final = Origin.MODEL  # members of an enum are slow to reach
_USUAL_IDS: Final = 18  # of a draft
_ENOUGH_CALLS: Final = 8  # of the draft model, to rely on what it costs where that was measured on a busy machine
_SHORT_BITS: Final = 9
_LONGER_SHIFT: Final = -0.7  # of a small model's odds in texts longer than known ones: it may be lost in them, and sure all the same
TYPICAL_ROUNDS: Final = 60  # of an answer: they share what reading the prompt costs
_USUAL_ANSWER: Final = 200.0  # ids of an answer, before any is seen
_ANSWER_RATE: Final = 0.1
_HOPE: Final = 0.5  # plain decodes that a round of a drafter may save that is unknown, or did not pay lately
_SURELY: Final = 1.5  # times what reading costs: what drafts must be expected to bring
_READ_OF_STEP: Final = 0.5  # of a draft step: what reading an id costs, before it is known
_READ_OF_PLAIN: Final = 0.05  # nor more than that of a plain decode, whatever was measured on a busy machine
TIMED_IDS: Final = 8  # that a draft model reads to find out what its calls cost now
_TIMING_SHARE: Final = 0.018  # of decoding, for that
_OFTEN: Final = 64  # ids between two such calls
STALE: Final = 200  # decodes alike, behind which a larger one shows what it costs now


def _length(n_prompt: int) -> int:
    """Prompts of equal length are alike: fewer than 512 ids, then fewer than four times as many, and so on."""
    return max(n_prompt.bit_length(), _SHORT_BITS) // 2


def kind_of(n_prompt: int, temperature: float) -> str:
    """That of a small model's drafts: "draft-simple", with "/drawn" where answers are drawn by lot, since it draws along, and with "/512",
    "/512/2048" and so on behind prompts of at least so many ids. There it may be as sure of itself, and right half as often: each length is
    learned by itself, from what is known of shorter ones."""
    lengths = [f"/{1 << 2 * length - 1}" for length in range(_SHORT_BITS // 2 + 1, _length(n_prompt) + 1)]
    return "".join([_MODEL, "/drawn" if temperature > 0 else "", *lengths])


class Memory:
    """Over all texts (costs, calibration) and per text (which drafters pay)."""

    def __init__(self, machine: Machine, weighed: Collection[Origin] = (), window: int = 0) -> None:
        """weighed: drafters that requests with a fixed policy do without. window: ids that the draft model reads of a text that it does not
        know (0: all)."""
        self.machine = machine
        self.weighed = weighed
        self.window = window
        self.usual_answer = _USUAL_ANSWER
        self._n_held: dict[int, int] = {}  # by sequence: ids of its last text that the draft model has read
        self.n_rounds = 0  # those that were planned, and rests between them
        self.n_ids = 0  # of all texts
        self.calibrations: dict[str, Calibration] = {}
        self.habits: dict[Origin, Habit] = {}
        self._standings: dict[tuple[Origin, int], Standing] = {}
        self._texts: dict[int, Text] = {}

    def calibration(self, kind: str) -> Calibration:
        """That of this kind of drafts; made when first asked for, with what is known of the kind before the slash."""
        calibration = self.calibrations.get(kind)
        if calibration is None:
            parent = kind.rpartition("/")[0]
            calibration = self.calibrations[kind] = Calibration(parent=self.calibration(parent) if parent else None)
        return calibration

    def habit(self, origin: Origin) -> Habit:
        """What this drafter's calls cost."""
        habit = self.habits.get(origin)
        if habit is None:
            habit = self.habits[origin] = Habit()
        return habit

    def _standing(self, origin: Origin, n_prompt: int) -> Standing:
        length = _length(n_prompt)
        standing = self._standings.get((origin, length))
        if standing is None:
            births = [one.birth for n in range(length) if (one := self._standings.get((origin, n))) is not None and one.birth]
            standing = Standing(is_new=not births or births[-1] > 0, first_shift=_LONGER_SHIFT if births and origin is _MODEL else 0.0)
            self._standings[origin, length] = standing
        return standing

    def text(self, seq: int) -> Text:
        """What is known of the text that runs in this sequence."""
        return self._texts[seq]

    def first_use(self, text: Text, origin: Origin, wish: Wish, n_seq: int) -> Use:
        """What this drafter is to a new text, which is one of n_seq: at first, what the drafter was to others."""
        plain_ms = self.machine.table((1,), wish.depth).upto(1)[1]
        its_ms = plain_ms if n_seq == 1 else self.machine.table((n_seq,), wish.depth).upto(1)[1] / n_seq
        standing = self._standing(origin, text.n_prompt)
        if standing.birth > text.usual:
            text.usual = standing.birth
        value = standing.birth * its_ms
        use = text.uses[origin] = Use(standing, text.is_drawn, value=value, promised=value)
        if origin is _MODEL:
            use.window, use.n_read = self.window, text.n_held
            use.is_far = self._is_far(use, text, its_ms, wish)
        can_win = self.could_win(origin, wish, n_seq)
        pays = standing.birth > 0 or (standing.is_new and standing.birth == 0)
        if not can_win or not pays or use.is_far:
            self._pay_or_sleep(text, origin, use, plain_ms, can_win)
        return use

    def _is_far(self, use: Use, text: Text, plain_ms: float, wish: Wish) -> bool:
        """Whether reading what is unread costs more than drafts can be expected to save in the rest of the answer.

        An answer goes on for as long as usual ones do, or as long again as it already did, and ends where the request says. A round that
        saves v plain decodes writes 1 + 2 v ids: half of what it gains pays for the draft.
        """
        unknown_ms = min(_READ_OF_STEP * self.machine.draft.ms(1), _READ_OF_PLAIN * plain_ms)
        per_id = use.read_ms(self.habit(_MODEL)) or unknown_ms
        saves = use.standing.birth if use.standing.birth > 0 else _HOPE
        n_left = min(max(self.usual_answer - text.n, text.n), wish.n_left)
        return per_id * use.backlog(text) * _SURELY > saves * plain_ms * n_left / (1.0 + 2.0 * saves)

    def wrote_answer(self, n_ids: int) -> None:
        """An answer had so many ids."""
        self.usual_answer += _ANSWER_RATE * (n_ids - self.usual_answer)

    def wakes(self, text: Text, origin: Origin, use: Use, plain_ms: float, wish: Wish, n_seq: int) -> bool:
        """Whether a drafter that was left alone is asked now, which is paid from its bucket; if that does not suffice, it sleeps on."""
        if text.n < use.due:
            return False
        use.book(text.n)
        can_win = self.could_win(origin, wish, n_seq)
        was_far, use.is_far = use.is_far, origin is _MODEL and self._is_far(use, text, plain_ms, wish)
        is_near = was_far or not use.is_new  # now; or it paid, until others filled the machine
        if can_win and use.value >= 0 and is_near and not use.is_far:
            use.due, use.reckon = 0, text.n + RECKON
            return True
        return self._pay_or_sleep(text, origin, use, plain_ms, can_win)

    def _pay_or_sleep(self, text: Text, origin: Origin, use: Use, plain_ms: float, can_win: bool) -> bool:
        habit, step_ms = self.habit(origin), self.step_ms(origin, 1)
        times = 1.0 if can_win else UNLIKELY
        use.n_early = 0 if use.due > 1 else use.n_early
        price = times * use.price(habit, use.backlog(text), step_ms)
        may_owe = can_win and not use.is_far
        use.is_paid = not use.ids_too_early(price, text, plain_ms) and use.standing.pay(price / plain_ms if plain_ms > 0 else 0.0, may_owe)
        if use.is_paid:
            use.reckon = text.n + RECKON  # if it pays until then, more is known of its costs
            return True
        use.sleep(text, habit, plain_ms, step_ms, times)
        return False

    def untimed(self, plain_ms: float) -> int:
        """Ids that may be written, over all texts, before the draft model is called to find out what it costs now.

        What is known of its costs decides whether it is asked, and asking is what teaches it: a machine that was disturbed for a while
        would leave it alone for ever.
        """
        habit = self.habit(_MODEL)
        if plain_ms <= 0:
            return _OFTEN
        if habit.n_calls and habit.usual_ms(paused=True) + TIMED_IDS * habit.read_ms < CHEAP * plain_ms:
            return _OFTEN  # asking it teaches more
        wait = min(max(habit.timed_share / _TIMING_SHARE, _OFTEN), _OFTEN * 2.0 ** max(habit.n_timed - FREE_TIMES + 1, 0))
        return max(int(wait) - (self.n_ids - habit.timed_at), 0)

    def still_wins(self, text: Text, origin: Origin, use: Use, plain_ms: float, wish: Wish, n_seq: int) -> bool:
        """Whether a drafter that pays could do so from here on; if not, it sleeps."""
        use.reckon = text.n + RECKON
        if self.could_win(origin, wish, n_seq):
            return True
        use.sleep(text, self.habit(origin), plain_ms, self.step_ms(origin, 1), UNLIKELY)
        return False

    def could_win(self, origin: Origin, wish: Wish, n_seq: int) -> bool:
        """Whether a drafter would save time if all its ids were right, and n_seq sequences shared its steps."""
        if origin is not _MODEL:
            return True
        habit, step_ms = self.habit(origin), self.step_ms(origin, n_seq)
        if self.machine.is_rough and habit.n_calls < _ENOUGH_CALLS:
            return True
        n = min(wish.params.longest, _USUAL_IDS)
        costs = self.machine.table((n_seq,), wish.depth).upto(n + 1)
        first_ms, per_step = habit.least_ms if habit.n_calls else step_ms, habit.ids_per_step
        return any(costs[k + 1] + first_ms + max(k / per_step - 1.0, 0.0) * step_ms < (k + 1) * costs[1] for k in range(1, n + 1))

    def step_ms(self, origin: Origin, n_seq: int) -> float:
        """Milliseconds of a draft step of so many sequences; nothing for drafters without a model. It is bounded by what calls take, each
        of which has such a step: steps are measured only while drafts are written."""
        if origin is not _MODEL:
            return 0.0
        draft = self.machine.draft
        if not self.habit(origin).n_calls or draft.ms(1) <= 0:
            return draft.ms(n_seq)
        return draft.ms(n_seq) * min(self.habit(origin).least_ms / draft.ms(1), 1.0)
