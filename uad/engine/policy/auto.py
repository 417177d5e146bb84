"""Draft as far as it pays: expected ids per millisecond, from costs and calibrated acceptance. Length 0, no draft, is
one of the choices.

A drafter whose rounds cost more than they save is left alone, and asked again now and then (`probing.asked_again`).
Of a single round `asking.Asking` says who drafts and how far, `choosing.Choosing` what is submitted. Arithmetic only:
no clock, no model, no I/O.

The rule is profile-guided expected value (jukofyork, llama.cpp discussion 10466), with calibration, several sequences,
and off as a choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from uad.base.types import Ask, Commit, Origin, SpecPolicy
from uad.engine.policy.asking import Asking
from uad.engine.policy.choosing import Choosing
from uad.engine.policy.knowledge import Knowledge, SequenceState
from uad.engine.policy.machine import Machine
from uad.engine.policy.members import Round
from uad.engine.policy.probing import LONGEST_WAIT
from uad.engine.policy.protocol import Chosen, Decoded, Drafted, Ended, PolicyView, Restored, Seen, Wish, Worth

# Temperature from which the draft model's guesses, which are drawn with the target's noise, are a kind of their own.
_WARM: Final = 0.5
_ROWS_SHOWN: Final = 32
_DEPTHS_SHOWN: Final = (0, 512, 2048, 8192, 32768)


class AutoPolicy:
    """Decides the rounds of all sequences, and learns from their results."""

    def __init__(self, machine: Machine | None = None, weighed: Collection[Origin] = (), window: int = 0) -> None:
        """See `Knowledge`."""
        self.known = Knowledge(machine, weighed, window)
        round_ = Round(self.known)
        self._asking = Asking(self.known, round_)
        self._choosing = Choosing(self.known, round_)

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        known = self.known
        n_held = {origin: min(n, n_cached) for origin, n in known.n_held.get(seq, {}).items()}
        known.states[seq] = SequenceState(n_prompt, temperature >= _WARM, window=known.window, n_held=n_held)

    def plan(self, wishes: Sequence[Wish]) -> int:
        known, n_plain, due = self.known, LONGEST_WAIT, list[Wish]()
        for wish in wishes:
            if not wish.params.enabled:
                continue
            if known.is_fixed or wish.params.policy is SpecPolicy.FIXED:
                n = 0
            else:
                state = known.states.get(wish.seq)  # None: nothing could draft for it
                if state is None or wish.params.longest <= 0 or wish.room == 0:
                    continue
                n = 0 if wish.is_forced else state.n_plain()
            if n <= 0:
                due.append(wish)
            n_plain = min(n_plain, n)
        if due:
            known.n_rounds += 1
            round_ = Round(known, due, wishes)
            self._asking, self._choosing = Asking(known, round_), Choosing(known, round_)
        return max(n_plain, 0)

    def asks(self, origin: Origin) -> Sequence[Ask]:
        return self._asking.asks(origin)

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]] = (), steps: Sequence[tuple[int, float]] = ()
    ) -> Sequence[bool]:
        writing = self._asking.writing
        return writing.more(seqs, wrote, steps) if writing else [False] * len(seqs)  # guesses that were left over

    def choose(self) -> Mapping[int, Chosen]:
        return self._choosing.choose()

    def observe(self, seen: Seen) -> None:
        match seen:
            case Drafted():
                for guess in self._asking.drafted(seen):
                    self._choosing.weigh(guess)
            case Decoded():
                self._decoded(seen)
            case Commit():
                self._committed(seen)
            case Ended():
                self.known.end(seen.seq)
            case Restored():
                self.known.n_held[seen.seq] = dict(seen.n_held)

    def view(self, depth: int) -> PolicyView:
        known = self.known
        if known.is_fixed:
            return PolicyView()
        target = known.machine.target
        plain_ms = target.ms(1, depth)
        worth = {
            origin: Worth(record.saved, record.cost.price(plain_ms, 1)) for origin, record in known.drafters.items()
        }
        curve = tuple(target.ms(n, depth) for n in range(1, _ROWS_SHOWN + 1))
        plain = () if known.machine.is_rough else tuple((n, target.ms(1, n)) for n in _DEPTHS_SHOWN)
        return PolicyView(curve, plain, worth)

    def _decoded(self, seen: Decoded) -> None:
        self.known.machine.decoded(seen.passes, seen.depth, 1e3 * seen.seconds)
        if seen.asking:
            self._asking.asked(1e3 * seen.asking)

    def _committed(self, commit: Commit) -> None:
        state = self.known.states.get(commit.seq)
        if state is None:
            return
        state.n += len(commit.ids)
        for use in state.uses.values():
            if use.trail:
                use.check(commit.ids)
            if use.next_at:
                use.drafter.idle(len(commit.ids))
