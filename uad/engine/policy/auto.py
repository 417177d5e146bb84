"""Draft as far as it pays: expected ids per millisecond, from costs and calibrated acceptance. Length 0, no draft, is
one of the choices.

A drafter whose rounds cost more than they save is left alone, and asked again now and then (`drafter.SequenceDrafter`).
A single round is a `round.Round`: who is asked, and what is submitted. Arithmetic only: no clock, no model, no I/O.

The rule is profile-guided expected value (jukofyork, llama.cpp discussion 10466), with calibration, several sequences,
and off as a choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from uad.base.types import Ask, Commit, Origin
from uad.engine.policy.drafter import LONGEST_WAIT
from uad.engine.policy.knowledge import Knowledge
from uad.engine.policy.machine import Machine
from uad.engine.policy.protocol import Chosen, Decoded, Drafted, Ended, PolicyView, Restored, Seen, Wish, Worth
from uad.engine.policy.round import Round

_ROWS_SHOWN: Final = 32
_DEPTHS_SHOWN: Final = (0, 512, 2048, 8192, 32768)


class AutoPolicy:
    """Decides the rounds of all sequences, and learns from their results."""

    def __init__(self, machine: Machine | None = None, weighed: Collection[Origin] = (), window: int = 0) -> None:
        """See `Knowledge`."""
        self.known = Knowledge(machine, weighed, window)
        self._round = Round(self.known)

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        self.known.begin(seq, n_prompt, temperature, n_cached)

    def plan(self, wishes: Sequence[Wish]) -> int:
        known, n_plain, due = self.known, LONGEST_WAIT, list[Wish]()
        for wish in wishes:
            if not wish.params.enabled:
                continue
            if known.drafts_as_said(wish):
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
            self._round = Round(known, due, wishes)
        return max(n_plain, 0)

    def asks(self, origin: Origin) -> Sequence[Ask]:
        return self._round.asks(origin)

    def more(
        self, seqs: Sequence[int], wrote: Sequence[tuple[int, float]] = (), steps: Sequence[tuple[int, float]] = ()
    ) -> Sequence[bool]:
        return self._round.more(seqs, wrote, steps)

    def choose(self) -> Mapping[int, Chosen]:
        return self._round.choose()

    def observe(self, seen: Seen) -> None:
        match seen:
            case Drafted():
                self._round.drafted(seen)
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
            origin: Worth(record.saved or 0.0, record.cost.price(plain_ms, 1))
            for origin, record in known.drafters.items()
        }
        curve = tuple(target.ms(n, depth) for n in range(1, _ROWS_SHOWN + 1))
        plain = () if known.machine.is_rough else tuple((n, target.ms(1, n)) for n in _DEPTHS_SHOWN)
        return PolicyView(curve, plain, worth)

    def _decoded(self, seen: Decoded) -> None:
        self.known.machine.decoded(seen.passes, seen.depth, 1e3 * seen.seconds)
        if seen.asking:
            self._round.asked(1e3 * seen.asking)

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
