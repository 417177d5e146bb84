"""What the automatic policy knows: costs, how far each kind of draft can be believed, what drafters cost, and the running texts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from uad.policy.calibration import Calibration
from uad.policy.machine import Machine
from uad.policy.text import Habit, Standing, Text, Use
from uad.types import Origin

_MODEL: Final = Origin.MODEL  # members of an enum are slow to reach
_SHORT_BITS: Final = 9  # prompts of fewer than 512 ids are alike
TYPICAL_ROUNDS: Final = 60  # of an answer: what drafting saves in them must pay for reading the prompt


class Memory:
    """Over all texts (costs, calibration) and per text (which drafters pay)."""

    def __init__(self, machine: Machine, weighed: Collection[Origin] = ()) -> None:
        """weighed: drafters that requests with a fixed policy do without."""
        self.machine = machine
        self.weighed = weighed
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
        length = max(n_prompt.bit_length(), _SHORT_BITS) // 2
        standing = self._standings.get((origin, length))
        if standing is None:
            shorter = [self._standings[origin, n] for n in range(_SHORT_BITS // 2, length) if (origin, n) in self._standings]
            standing = self._standings[origin, length] = Standing(is_new=not shorter or shorter[-1].birth >= 0)
        return standing

    def text(self, seq: int) -> Text:
        """What is known of the text that runs in this sequence."""
        return self._texts[seq]

    def use(self, text: Text, origin: Origin, depth: int) -> Use:
        """What this drafter is to this text; a new text starts with what the drafter was to others."""
        use = text.uses.get(origin)
        if use is None:
            use = text.uses[origin] = self._first_use(text, origin, depth)
        return use

    def _first_use(self, text: Text, origin: Origin, depth: int) -> Use:
        habit = self.habit(origin)
        plain_ms = self.machine.table((1,), depth).upto(1)[1]
        standing = self._standing(origin, text.n_prompt)
        use = Use(standing, value=standing.birth * plain_ms)
        step_ms = self.step_ms(origin, 1)
        pays = 0 <= use.value >= use.read_ms(habit) * use.backlog(text) / TYPICAL_ROUNDS
        if not pays and not standing.pay(use.price(habit, use.backlog(text), step_ms)):
            use.sleep(text, habit, plain_ms, step_ms)
        return use

    def wakes(self, text: Text, origin: Origin, use: Use, plain_ms: float) -> bool:
        """Whether a drafter that was left alone is asked now, which is paid from its account; if that does not suffice, it sleeps on."""
        if text.n < use.due:
            return False
        use.book(text.n)
        habit, step_ms = self.habit(origin), self.step_ms(origin, 1)
        if use.standing.pay(use.price(habit, use.backlog(text), step_ms)):
            return True
        use.sleep(text, habit, plain_ms, step_ms)
        return False

    def step_ms(self, origin: Origin, n_seq: int) -> float:
        """Milliseconds of a draft step of so many sequences; nothing for drafters without a model."""
        return self.machine.draft.ms(n_seq) if origin is _MODEL else 0.0
