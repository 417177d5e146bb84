"""Knowledge of the machine, of each drafter, of each kind of draft, and of the sequences that run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from uad.base.types import BY_REQUEST, WRITERS, Draft, Origin, SpecPolicy
from uad.engine.policy.calibration import Calibration
from uad.engine.policy.cost import CostCurve, CostSample
from uad.engine.policy.drafter import CallCost, DrafterRecord, MeanGain, SequenceDrafter
from uad.engine.policy.machine import CostTable, Machine
from uad.engine.policy.protocol import Wish

# Ids that an answer is expected to have: a chat's answers are that long. Learning it earns nothing (lab/README).
_USUAL_ANSWER: Final = 200
# Temperature from which the draft model's guesses, which are drawn with the target's noise, are a kind of their own.
_WARM: Final = 0.5
# Times what reading costs: what drafts must be expected to bring. 1.5 loses 1 to 3 % (lab/README).
_SURELY: Final = 2.5
# Times what the best drafter that writes gains: what is hoped of a new one beside it. A dearer one would not be there
# if it did not bring more.
_HOPE: Final = 1.3


@dataclass(slots=True)
class SequenceState:
    """One running answer."""

    n_prompt: int
    is_sampled: bool = False
    """Whether the answer is drawn at a temperature at which guesses are a kind of their own."""
    n: int = 0
    """Ids of the answer so far."""
    window: int = 0
    """The draft model reads at most this many ids, the last ones (0: all)."""
    n_held: Mapping[Origin, int] = field(default_factory=dict)
    """Ids of the prompt that each drafter that writes read in an earlier request."""
    uses: dict[Origin, SequenceDrafter] = field(default_factory=dict)
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    """Calibrations by the kind of drafts, for those that come from what the request brought."""

    def unread(self, use: SequenceDrafter) -> int:
        """Ids that the draft model has yet to read."""
        n = self.n_prompt + self.n - use.n_read
        return min(n, self.window) if self.window else n

    def has_read(self, use: SequenceDrafter, n_ids: int | None = None) -> None:
        """Record that the draft model read n_ids more of its unread ids, and more are left. None: it read the sequence
        up to its end. Accepted guesses are in its KV already, so what it read may be less than that.
        """
        use.n_read = self.n_prompt + self.n - (0 if n_ids is None else max(self.unread(use) - n_ids, 0))

    def is_worth_reading(self, gain: float, reading: float, n_left: int) -> bool:
        """Whether drafts can be expected to gain more in the rest of the answer than `reading` what is unread costs.

        A round that gains g plain decodes writes 1 + 2 g ids: half of what it gains pays for the draft.
        """
        return reading * _SURELY <= max(gain, 0.0) * self.n_rest(n_left) / (1.0 + 2.0 * max(gain, 0.0))

    def n_rest(self, n_left: int) -> int:
        """Ids that are expected to follow. An answer goes on for as long as usual ones do, or as long again as it
        already did, and ends where the request says.
        """
        return min(max(_USUAL_ANSWER - self.n, self.n), n_left)

    def n_plain(self) -> int:
        """How many ids may be written before any of its drafters may be asked again; 0 or less: none. A grammar's is
        asked where its guess is forced, and only there.
        """
        others = [use.next_at for origin, use in self.uses.items() if origin is not Origin.GRAMMAR]
        return min(others, default=0) - self.n


class Knowledge:
    """Knowledge over all requests, and of the running ones.

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
        self.window = window
        self.states: dict[int, SequenceState] = {}
        self.n_held: dict[int, dict[Origin, int]] = {}  # by sequence: ids of its last text that they have read

    def calibration(self, kind: str) -> Calibration:
        """The calibration for this kind of drafts; made when first asked for."""
        calibration = self.calibrations.get(kind)
        if calibration is None:
            calibration = self.calibrations[kind] = Calibration()
        return calibration

    def calibration_of(self, state: SequenceState, origin: Origin) -> Calibration:
        """The calibration for what a writing drafter writes for this sequence."""
        return self.calibration(f"{origin}/sampled" if state.is_sampled else str(origin))

    def calibration_for(self, state: SequenceState, draft: Draft) -> Calibration:
        """The calibration for a draft of this sequence which was looked up. It starts afresh with each request that
        brings what is looked up: a useless prediction would be believed as far as the right one before it was.
        """
        if draft.origin not in BY_REQUEST:
            return self.calibration(draft.kind)
        return state.calibrations.setdefault(draft.kind, Calibration())

    def drafter(self, origin: Origin) -> DrafterRecord:
        """The record of a drafter over all sequences."""
        drafter = self.drafters.get(origin)
        if drafter is None:
            steps = self.machine.steps(origin) if origin in WRITERS else None
            drafter = self.drafters[origin] = DrafterRecord(CallCost(steps))
        return drafter

    def drafts_as_said(self, wish: Wish) -> bool:
        """Whether this request drafts as far as it says, at any cost."""
        return self.is_fixed or wish.params.policy is SpecPolicy.FIXED

    def begin(self, seq: int, n_prompt: int, temperature: float, n_cached: int) -> None:
        """See `protocol.Policy`."""
        n_held = {origin: min(n, n_cached) for origin, n in self.n_held.get(seq, {}).items()}
        self.states[seq] = SequenceState(n_prompt, temperature >= _WARM, window=self.window, n_held=n_held)

    def use(self, state: SequenceState, origin: Origin, table: CostTable) -> SequenceDrafter:
        """A drafter in a running sequence: at first it is expected to gain what it gained in others. An unknown one,
        and one that each request brings, saves what usual guesses do where rows cost this.
        """
        use = state.uses.get(origin)
        if use is None:
            drafter = self.drafter(origin)
            if drafter.saved is None:
                drafter.saved = table.usual_saving()
            if not drafter.n_rounds and origin in WRITERS:
                price = drafter.cost.price(table.upto(1)[1], 1)
                gain = max(table.usual_saving() - price, self.hope)
                drafter.usual = MeanGain(gain, gain + price)
            saved = table.usual_saving() if origin in BY_REQUEST else drafter.saved
            use = SequenceDrafter(drafter, saved, replace(drafter.usual), n_read=state.n_held.get(origin, 0))
            state.uses[origin] = use
        return use

    @property
    def hope(self) -> float:
        """Plain decodes that a round of a drafter that writes is hoped to gain, if little is known of it."""
        return _HOPE * max([self.drafter(origin).usual.decodes for origin in self.asked_in], default=0.0)

    def wrote(self) -> None:
        """A drafter that writes was called: no other one need be called only to show what calls cost."""
        for origin in self.asked_in if len(self.asked_in) > 1 else ():
            self.drafter(origin).cost.age = 0

    def end(self, seq: int) -> None:
        """The answer of this sequence is over."""
        state = self.states.pop(seq, None)
        if state is None:
            return
        read = {origin: use.n_read for origin, use in state.uses.items() if origin in WRITERS}
        self.n_held[seq] = {**state.n_held, **read}
