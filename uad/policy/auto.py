"""Draft as far as it pays: expected ids per millisecond, from costs and calibrated acceptance. Length 0, no draft, is
one of the choices.

A drafter whose rounds cost more than they save is left alone, and asked again now and then (`probing.asked_again`).
`round.Round` decides a single round, `choose.rows_of` what it submits. Arithmetic only: no clock, no model, no I/O.

The rule is profile-guided expected value (jukofyork, llama.cpp discussion 10466), with calibration, several sequences,
and off as a choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from uad.policy.calibration import Calibration
from uad.policy.cost import CostCurve, CostSample
from uad.policy.drafter import FIRST_SAVED, CallCost, DrafterRecord
from uad.policy.machine import Machine
from uad.policy.probing import LONGEST_WAIT, SequenceDrafter
from uad.policy.protocol import Chosen, Decoded, Drafted, Ended, PolicyView, Seen, Wish, Worth
from uad.policy.round import STALE, Round
from uad.types import BY_REQUEST, WRITERS, Ask, Commit, Draft, Origin, SpecPolicy

# Temperature from which the draft model's guesses, which are drawn with the target's noise, are a kind of their own.
_WARM: Final = 0.5
# Ids of an answer before any is seen, and how much of each counts: a chat's answers are that long.
_USUAL_ANSWER: Final = 200.0
_ANSWER_RATE: Final = 0.1
# Times what reading costs: what drafts must be expected to bring. 1.5 loses 1 to 3 % (lab/README).
_SURELY: Final = 2.5
_ROWS_SHOWN: Final = 32
_DEPTHS_SHOWN: Final = (0, 512, 2048, 8192, 32768)


@dataclass(slots=True)
class SequenceState:
    """One running answer."""

    n_prompt: int
    is_sampled: bool = False
    """Whether the answer is drawn at a temperature at which guesses are a kind of their own."""
    n: int = 0
    """Ids of the answer so far."""
    window: int = 0
    """Of more ids than these the draft model reads the last ones (0: all)."""
    n_held: Mapping[Origin, int] = field(default_factory=dict)
    """Ids of the prompt that each drafter that writes read in an earlier request."""
    uses: dict[Origin, SequenceDrafter] = field(default_factory=dict)
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    """Of the kinds of drafts that come from what the request brought."""

    def unread(self, use: SequenceDrafter) -> int:
        """Ids that the draft model has yet to read."""
        n = self.n_prompt + self.n - use.n_read
        return min(n, self.window) if self.window else n

    def has_read(self, use: SequenceDrafter, n_ids: int | None = None) -> None:
        """The draft model read so many more of its unread ids, and more are left. None: it read the sequence up to its
        end. Accepted guesses are in its KV already, so what it read may be less than that.
        """
        use.n_read = self.n_prompt + self.n - (0 if n_ids is None else max(self.unread(use) - n_ids, 0))

    def n_plain(self) -> int:
        """How many ids may be written before any of its drafters may be asked again. A grammar's is asked where its
        guess is forced, and only there.
        """
        others = [use.next_at for origin, use in self.uses.items() if origin is not Origin.GRAMMAR]
        return max(min(others, default=0) - self.n, 0)


class AutoPolicy:
    """Decides the rounds of all sequences, and learns from their results.

    machine: what rounds cost; None: that is not known, and every request drafts as far as it says. weighed: drafters
    whose guesses are only compared: requests with a fixed policy do without them, unless they ask for them by name.
    window: see `SequenceState`.
    """

    def __init__(self, machine: Machine | None = None, weighed: Collection[Origin] = (), window: int = 0) -> None:
        self.machine = machine or Machine(CostCurve([CostSample(1, 0, 1.0)]))
        self.is_fixed = machine is None
        self.weighed = weighed
        self.calibrations: dict[str, Calibration] = {}
        self.drafters: dict[Origin, DrafterRecord] = {}
        self.asked_in: dict[Origin, int] = {}  # by drafters that write: the last round in which it could be asked
        self.n_rounds = 0
        self._window = window
        self._usual_answer = _USUAL_ANSWER
        self._states: dict[int, SequenceState] = {}
        self._n_held: dict[int, dict[Origin, int]] = {}  # by sequence: ids of its last text that they have read
        self._round = Round(self)

    # --- what the loop asks and reports: see `protocol.Policy`

    def begin(self, seq: int, n_prompt: int, temperature: float = 0.0, n_cached: int = 0) -> None:
        n_held = {origin: min(n, n_cached) for origin, n in self._n_held.get(seq, {}).items()}
        self._states[seq] = SequenceState(n_prompt, temperature >= _WARM, window=self._window, n_held=n_held)

    def plan(self, wishes: Sequence[Wish]) -> int:
        n_plain, due = LONGEST_WAIT, list[Wish]()
        is_stale = self.machine.target.n_alike(len(wishes)) >= STALE
        for wish in wishes:
            if not wish.params.enabled:
                continue
            if self.is_fixed or wish.params.policy is SpecPolicy.FIXED:
                n = 0
            else:
                state = self._states.get(wish.seq)  # None: nothing could draft for it
                if state is None or wish.params.longest <= 0 or wish.room == 0:
                    continue
                n = 0 if wish.is_forced or is_stale else state.n_plain()
            if not n:
                due.append(wish)
            n_plain = min(n_plain, n)
        if due:
            self.n_rounds += 1
            self._round = Round(self, due, wishes)
        return n_plain

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
                self._ended(seen.seq)

    def view(self, depth: int) -> PolicyView:
        if self.is_fixed:
            return PolicyView()
        target = self.machine.target
        plain_ms = target.ms(1, depth)
        worth = {origin: Worth(one.saved, one.cost.price(plain_ms, 1)) for origin, one in self.drafters.items()}
        curve = tuple(target.ms(n, depth) for n in range(1, _ROWS_SHOWN + 1))
        plain = () if self.machine.is_rough else tuple((n, target.ms(1, n)) for n in _DEPTHS_SHOWN)
        return PolicyView(curve, plain, worth)

    # --- what is known

    def calibration(self, kind: str) -> Calibration:
        """That of this kind of drafts; made when first asked for."""
        calibration = self.calibrations.get(kind)
        if calibration is None:
            calibration = self.calibrations[kind] = Calibration()
        return calibration

    def calibration_of(self, state: SequenceState, origin: Origin) -> Calibration:
        """That of what a drafter that writes writes for this sequence."""
        return self.calibration(f"{origin}/sampled" if state.is_sampled else str(origin))

    def calibration_for(self, state: SequenceState, draft: Draft) -> Calibration:
        """That of a draft of this sequence which was looked up. It starts afresh with each request that brings what is
        looked up: a useless prediction would be believed as far as the right one before it was.
        """
        if draft.origin not in BY_REQUEST:
            return self.calibration(draft.kind)
        return state.calibrations.setdefault(draft.kind, Calibration())

    def drafter(self, origin: Origin) -> DrafterRecord:
        """What is known of it over all sequences."""
        drafter = self.drafters.get(origin)
        if drafter is None:
            steps = self.machine.steps(origin) if origin in WRITERS else None
            drafter = self.drafters[origin] = DrafterRecord(CallCost(steps))
        return drafter

    def state(self, seq: int) -> SequenceState:
        """That of a running sequence."""
        return self._states[seq]

    def use(self, state: SequenceState, origin: Origin) -> SequenceDrafter:
        """A drafter in a running sequence: at first it is expected to gain what it gained in others, or what an unknown
        one does, where each request brings its own.
        """
        use = state.uses.get(origin)
        if use is None:
            drafter = self.drafter(origin)
            saved = FIRST_SAVED if origin in BY_REQUEST else drafter.saved
            use = state.uses[origin] = SequenceDrafter(drafter, saved, n_read=state.n_held.get(origin, 0))
        return use

    def is_worth_reading(self, state: SequenceState, gain: float, reading: float, n_left: int) -> bool:
        """Whether drafts can be expected to gain more in the rest of the answer than `reading` what is unread costs.

        An answer goes on for as long as usual ones do, or as long again as it already did, and ends where the request
        says. A round that gains g plain decodes writes 1 + 2 g ids: half of what it gains pays for the draft.
        """
        n = min(max(self._usual_answer - state.n, state.n), n_left)
        return reading * _SURELY <= max(gain, 0.0) * n / (1.0 + 2.0 * max(gain, 0.0))

    def _decoded(self, seen: Decoded) -> None:
        self.machine.decoded(seen.passes, seen.depth, 1e3 * seen.seconds)
        if seen.asking:
            self._round.asked(1e3 * seen.asking)

    def _committed(self, commit: Commit) -> None:
        state = self._states.get(commit.seq)
        if state is None:
            return
        state.n += len(commit.ids)
        self.machine.took_back(commit.n_drafted, commit.n_accepted)
        for use in state.uses.values():
            if use.trail:
                use.check(commit.ids)
            if use.next_at:
                use.drafter.idle(len(commit.ids))

    def _ended(self, seq: int) -> None:
        state = self._states.pop(seq, None)
        if state is None:
            return
        self._usual_answer += _ANSWER_RATE * (state.n - self._usual_answer)
        read = {origin: use.n_read for origin, use in state.uses.items() if origin in WRITERS}
        self._n_held[seq] = {**state.n_held, **read}
