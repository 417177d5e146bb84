"""The state of the automatic policy: of the machine, of each drafter, of each kind of draft, and of the sequences that
run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from uad.policy.calibration import Calibration
from uad.policy.drafter import FEW_IDS, FIRST_SAVED, DrafterRecord, Use
from uad.policy.machine import Machine
from uad.types import BY_REQUEST, WRITERS, Draft, Origin

_MODEL: Final = Origin.MODEL  # members of an enum are slow to reach
_GRAMMAR: Final = Origin.GRAMMAR
_KINDS: Final = {origin: (str(origin), f"{origin}/sampled") for origin in WRITERS}
STALE: Final = 200  # decodes alike, after which a larger one shows what it costs now
_USUAL_ANSWER: Final = 200.0  # ids of an answer, before any is seen
_ANSWER_RATE: Final = 0.1
_SURELY: Final = 2.5  # times what reading costs: what drafts must be expected to bring
_READ_OF_STEP: Final = 0.5  # of a draft step: what reading an id costs, before it is known
_READ_OF_PLAIN: Final = 0.05  # nor more than that of a plain decode, whatever was measured on a busy machine


@dataclass(slots=True)
class SequenceState:
    """One running answer."""

    n_prompt: int
    is_sampled: bool = False
    """Whether the answer is drawn at a temperature at which guesses are a kind of their own."""
    n: int = 0
    """Ids of the answer so far."""
    next_at: int = 0
    """How many ids it has when a drafter is asked next."""
    window: int = 0
    """Of more ids than these the draft model reads the last ones (0: all)."""
    n_held: Mapping[Origin, int] = field(default_factory=dict)
    """Ids of the prompt that each drafter that writes read in an earlier request."""
    uses: dict[Origin, Use] = field(default_factory=dict)
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    """Of the kinds of drafts that come from what the request brought."""

    def unread(self, use: Use) -> int:
        """Ids that the draft model has yet to read."""
        n = self.n_prompt + self.n - use.n_read
        return min(n, self.window) if self.window else n

    def has_read(self, use: Use, n_ids: int) -> None:
        """The draft model read so many more of its unread ids, and more are left."""
        use.n_read = self.n_prompt + self.n - max(self.unread(use) - n_ids, 0)

    def has_read_all(self, use: Use) -> None:
        """It read the sequence up to its end. Accepted guesses are in its KV already, so what it read may be less than
        that.
        """
        use.n_read = self.n_prompt + self.n

    def planned(self) -> None:
        """All drafters that are to be asked in this round were asked. A grammar's is asked where its guess is forced,
        and only there.
        """
        self.next_at = min([use.next_at for origin, use in self.uses.items() if origin is not _GRAMMAR], default=0)


class Sequences:
    """What is known over all requests, and the running ones."""

    def __init__(self, machine: Machine, weighed: Collection[Origin] = (), window: int = 0) -> None:
        """weighed: drafters that requests with a fixed policy do without. window: see `SequenceState`."""
        self.machine = machine
        self.weighed = weighed
        self.calibrations: dict[str, Calibration] = {}
        self.drafters: dict[Origin, DrafterRecord] = {}
        self._window = window
        self._usual_answer = _USUAL_ANSWER
        self._states: dict[int, SequenceState] = {}
        self._n_held: dict[int, dict[Origin, int]] = {}  # by sequence: ids of its last text that they have read
        self.n_rounds = 0
        self.asked_in: dict[Origin, int] = {}  # by drafters that write: the last round in which it could be asked

    def calibration(self, kind: str) -> Calibration:
        """That of this kind of drafts; made when first asked for."""
        calibration = self.calibrations.get(kind)
        if calibration is None:
            calibration = self.calibrations[kind] = Calibration()
        return calibration

    def drafter(self, origin: Origin) -> DrafterRecord:
        """What is known of it over all sequences."""
        drafter = self.drafters.get(origin)
        if drafter is None:
            drafter = self.drafters[origin] = DrafterRecord()
        return drafter

    def state(self, seq: int) -> SequenceState:
        """That of a running sequence."""
        return self._states[seq]

    def open(self, seq: int, n_prompt: int, is_sampled: bool, n_cached: int) -> None:
        """An answer begins, after a prompt of which n_cached ids are those of the sequence's last text."""
        n_held = {origin: min(n, n_cached) for origin, n in self._n_held.get(seq, {}).items()}
        self._states[seq] = SequenceState(n_prompt, is_sampled, window=self._window, n_held=n_held)

    def calibration_for(self, state: SequenceState, draft: Draft) -> Calibration:
        """That of a draft of this sequence which was looked up. It starts afresh with each request that brings what is
        looked up: a useless prediction would be believed as far as the right one before it was.
        """
        if draft.origin not in BY_REQUEST:
            return self.calibration(draft.kind)
        return state.calibrations.setdefault(draft.kind, Calibration())

    def calibration_of(self, state: SequenceState, origin: Origin) -> Calibration:
        """That of what a drafter that writes writes for this sequence."""
        return self.calibration(_KINDS[origin][state.is_sampled])

    def close(self, seq: int) -> None:
        """The answer ends."""
        state = self._states.pop(seq, None)
        if state is None:
            return
        self.book(state)
        self._usual_answer += _ANSWER_RATE * (state.n - self._usual_answer)
        read = {origin: use.n_read for origin, use in state.uses.items() if origin in WRITERS}
        self._n_held[seq] = {**state.n_held, **read}

    def use(self, state: SequenceState, origin: Origin) -> Use:
        """A drafter in a running sequence: at first it is expected to gain what it gained in others, or what an unknown
        one does, where each request brings its own.
        """
        use = state.uses.get(origin)
        if use is None:
            drafter = self.drafter(origin)
            saved = FIRST_SAVED if origin in BY_REQUEST else drafter.saved
            use = state.uses[origin] = Use(drafter, saved, n_read=state.n_held.get(origin, 0))
        return use

    def book(self, state: SequenceState) -> None:
        """What was written without drafters pays for asking them again."""
        for use in state.uses.values():
            use.book(state.n)

    def step_ms(self, n: int, origin: Origin = _MODEL) -> float:
        """A step of a drafter that writes, for n sequences. Steps are measured only while drafts are written. A call
        has one, and costs more.
        """
        steps = self.machine.steps(origin)
        ms, call_ms = steps.ms(1), self.drafter(origin).cost.call_ms
        return steps.ms(n) * (min(call_ms / ms, 1.0) if call_ms and ms > 0 else 1.0)

    def price(self, origin: Origin, plain_ms: float, n_seq: int) -> float:
        """What a call of a drafter for n_seq sequences costs each of them beside reading, in plain decodes."""
        cost = self.drafter(origin).cost
        ms = cost.call_ms
        if origin in WRITERS:
            ms = (cost.call_ms or self.step_ms(1, origin)) + (cost.n_steps - 1.0) * self.step_ms(n_seq, origin)
        return ms / n_seq / plain_ms if plain_ms > 0 else 0.0

    def reading(self, state: SequenceState, use: Use, plain_ms: float, origin: Origin = _MODEL) -> float:
        """What it costs to read what is unread, in plain decodes. A few ids are part of the call."""
        if state.unread(use) <= FEW_IDS:
            return 0.0
        unknown_ms = min(_READ_OF_STEP * self.step_ms(1, origin), _READ_OF_PLAIN * plain_ms)
        ms = (use.drafter.cost.read_ms or unknown_ms) * state.unread(use)
        return ms / plain_ms if plain_ms > 0 else 0.0

    def is_worth_reading(
        self, state: SequenceState, use: Use, price: float, plain_ms: float, n_left: int, origin: Origin = _MODEL
    ) -> bool:
        """Whether drafts can be expected to save more in the rest of the answer than reading what is unread costs.

        An answer goes on for as long as usual ones do, or as long again as it already did, and ends where the request
        says. A round that saves s plain decodes writes 1 + 2 s ids: half of what it gains pays for the draft.
        """
        saved = max(use.saved - price, 0.0)
        n = min(max(self._usual_answer - state.n, state.n), n_left)
        return self.reading(state, use, plain_ms, origin) * _SURELY <= saved * n / (1.0 + 2.0 * saved)
