"""Draft as far as it pays: expected ids per millisecond, from costs and calibrated acceptance. Length 0, no draft, is
one of the choices.

A drafter whose rounds cost more than they save is left alone, and asked again from a token bucket (`drafter.Use`).
`round.AutoRound` has the rule for a single round. Arithmetic only: no clock, no model, no I/O.

The rule is profile-guided expected value (jukofyork, llama.cpp discussion 10466), with calibration, several sequences,
and off as a choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from uad.policy.fixed import FixedRound
from uad.policy.protocol import Chosen, PolicyView, Round, Wish, Worth
from uad.policy.round import AutoRound
from uad.policy.sequences import STALE, Sequences
from uad.types import Ask, Commit, Draft, Origin, SpecPolicy

# temperature from which the draft model's guesses, which are drawn with the target's noise, are a kind of their own
_WARM: Final = 0.5
_ROWS_SHOWN: Final = 32
_DEPTHS_SHOWN: Final = (0, 512, 2048, 8192, 32768)
_FIXED: Final = SpecPolicy.FIXED  # members of an enum are slow to reach


class AutoPolicy(Sequences):
    """Decides the rounds of all sequences, and learns from their results."""

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        self.open(seq, n_prompt, temperature >= _WARM, n_cached)

    def end(self, seq: int) -> None:
        self.close(seq)

    def view(self, depth: int) -> PolicyView:
        target = self.machine.target
        plain_ms = target.ms(1, depth)
        worth = {origin: Worth(one.saved, self.price(origin, plain_ms, 1)) for origin, one in self.drafters.items()}
        curve = tuple(target.ms(n, depth) for n in range(1, _ROWS_SHOWN + 1))
        plain = () if self.machine.is_rough else tuple((n, target.ms(1, n)) for n in _DEPTHS_SHOWN)
        return PolicyView(curve, plain, worth)

    def plan(self, wishes: Sequence[Wish]) -> Round | None:
        enabled = [wish for wish in wishes if wish.params.enabled]
        fixed = [wish for wish in enabled if wish.params.policy is _FIXED]
        auto = [wish for wish in enabled if wish.params.policy is not _FIXED and self._is_due(wish, len(wishes))]
        if not fixed:
            return AutoRound(self, auto, wishes) if auto else None
        fixed_round = FixedRound(fixed, self.weighed)
        return _Both(fixed_round, AutoRound(self, auto, wishes)) if auto else fixed_round

    def _is_due(self, wish: Wish, n_writing: int) -> bool:
        if wish.params.longest <= 0 or wish.room == 0:
            return False
        state = self._states.get(wish.seq)
        if state is None:  # nothing could draft for it
            return False
        return wish.is_forced or state.n >= state.next_at or self.machine.target.n_alike(n_writing) >= STALE

    def decoded(self, passes: Sequence[tuple[int, int]], depth: int, seconds: float) -> None:
        self.machine.decoded(passes, depth, 1e3 * seconds)

    def plain_round(self, seconds: float) -> None:
        self.machine.plain_round(1e3 * seconds)

    def committed(self, commit: Commit) -> None:
        state = self._states.get(commit.seq)
        if state is None:
            return
        state.n += len(commit.ids)
        self.machine.took_back(commit.n_drafted, commit.n_accepted)
        for use in state.uses.values():
            if use.trail:
                use.check(commit.ids)
        self.book(state)


class _Both:
    """A round in which some requests fix their drafts and others leave them to the policy."""

    def __init__(self, fixed: FixedRound, auto: AutoRound) -> None:
        self._fixed, self._auto = fixed, auto
        self._n_fixed = 0
        self._n_auto = 0
        self._seqs: set[int] = set()
        self._is_auto = False  # whether the next draft step is one of an automatic request, too
        self._steps = self._auto_steps = 0.0  # seconds

    def asks(self, origin: Origin) -> Sequence[Ask]:
        self._steps = self._auto_steps = 0.0
        fixed = self._fixed.asks(origin)
        self._n_fixed = len(fixed)
        self._seqs.update(one.seq for one in fixed)
        auto = self._auto.asks(origin)
        self._n_auto = len(auto)
        return [*fixed, *auto]

    def proposed(self, origin: Origin, drafts: Sequence[Draft], seconds: float) -> None:
        self._fixed.proposed(origin, drafts[: self._n_fixed], seconds)
        rest = max(seconds - self._steps, 0.0) * self._n_auto / max(self._n_fixed + self._n_auto, 1)
        self._auto.proposed(origin, drafts[self._n_fixed :], rest + self._auto_steps)

    def choose(self) -> Mapping[int, Chosen]:
        return {**self._auto.choose(), **self._fixed.choose()}

    def wrote(self, seq: int, p: float) -> None:
        if seq not in self._seqs:
            self._auto.wrote(seq, p)

    def go_on(self, seqs: Sequence[int]) -> Sequence[bool]:
        mine = [seq for seq in seqs if seq not in self._seqs]
        answers = dict(zip(mine, self._auto.go_on(mine), strict=True)) if mine else {}
        self._is_auto = any(answers.values())
        return [answers.get(seq, True) for seq in seqs]

    def stepped(self, n_seq: int, seconds: float) -> None:
        self._steps += seconds
        if self._is_auto:
            self._auto_steps += seconds
            self._auto.stepped(n_seq, seconds)
