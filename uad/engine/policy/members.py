"""The sequences of a round that may draft, what rows cost in their groups, and the guesses for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from uad.base.types import Ask, Draft
from uad.engine.policy.calibration import Calibration
from uad.engine.policy.drafter import UNKNOWN_READ, SequenceDrafter
from uad.engine.policy.knowledge import Knowledge, SequenceState
from uad.engine.policy.machine import CostTable
from uad.engine.policy.protocol import Wish


class Candidate(NamedTuple):
    """A drafter's guess for one sequence."""

    use: SequenceDrafter
    draft: Draft
    gains: list[float]
    """Ids expected to be accepted of the first k, by k."""
    ms: float
    """Milliseconds that asking for this one took."""
    price: float
    """Average cost of asking for one, in plain decodes."""
    saved_ms: float
    """Milliseconds that it is expected to save at its best length, before its price."""
    n_ids: float
    """Ids that it is expected to bring at that length."""
    is_sure: bool
    """Whether that is more than asking for it took, and it is expected to be accepted nearly whole. Never of what a
    grammar forces, which says nothing of what comes after it.
    """


# Of what reading costs, against a drafter that has read already: what it reads now serves the next turn, too.
_SWITCHING: Final = 0.7


@dataclass(slots=True)
class Fixed:
    """A sequence in this round that drafts as its request says."""

    wish: Wish
    guess: Draft = field(default_factory=Draft)
    """The draft of the first drafter with a guess."""
    forced: Draft = field(default_factory=Draft)
    """The draft that a grammar forces."""

    def ask(self, writes: bool) -> Ask:
        """The ask that its request specifies. If it allows no draft, drafters only read. Look-up drafters have sizes of
        their own.
        """
        wish, params = self.wish, self.wish.params
        if params.longest <= 0:
            return Ask(wish.seq, 0, n_read=UNKNOWN_READ)
        if not writes:
            return Ask(wish.seq, wish.room)
        return Ask(wish.seq, min(params.longest, wish.room), params.n_min, params.p_min, UNKNOWN_READ)


@dataclass(slots=True)
class Automatic:
    """A sequence in this round that drafts as far as it pays."""

    wish: Wish
    state: SequenceState
    longest: int
    """Ids that a drafter may write for it."""
    table: CostTable
    """Costs of its group, which shares passes."""
    size: int
    """Sequences in its group."""
    plain_ms: float
    """The sequence's share of a round without drafts."""
    candidates: list[Candidate] = field(default_factory=list)
    calibration: Calibration = field(default_factory=Calibration)
    """The calibration of the drafter that writes for it now."""
    bins: list[int] = field(default_factory=list)
    """Bins of the beliefs that it wrote so far."""
    p: float = 1.0
    """The probability that all of these are accepted."""

    @property
    def is_sure(self) -> bool:
        """Whether there is a sure guess."""
        return any(candidate.is_sure for candidate in self.candidates)

    def worth(self, use: SequenceDrafter, n_due: int) -> tuple[float, float]:
        """Plain decodes that a round is expected to gain with this drafter, and that asking it takes, reading included.
        -1: reading is not earned back. n_due: sequences that share the call.
        """
        price = use.drafter.cost.price(self.plain_ms, n_due)
        gain = use.saved - price
        reading = use.drafter.cost.reading(self.state.unread(use), self.plain_ms)
        return gain if self.state.is_worth_reading(gain, reading, self.wish.n_left) else -1.0, price + reading

    def value(self, use: SequenceDrafter, n_due: int, hope: float) -> float:
        """Plain decodes that the rest of the answer is expected to gain with this drafter alone, what it has to read
        counted. -1: a round gains nothing, or reading is not earned back. hope: see `SequenceDrafter.gain_per_id`.
        """
        gain, whole = self.worth(use, n_due)
        price = use.drafter.cost.price(self.plain_ms, n_due)
        rest = use.gain_per_id(hope, price) * self.state.n_rest(self.wish.n_left)
        return rest - _SWITCHING * (whole - price) if gain >= 0.0 else -1.0


class Members:
    """The sequences of one round."""

    def __init__(self, known: Knowledge, due: Sequence[Wish], wishes: Sequence[Wish]) -> None:
        """due: the sequences that may draft; wishes: all that write."""
        self.n_writing = len(wishes)
        self.n_due = len(due)
        self.fixed = [Fixed(wish) for wish in due if known.drafts_as_said(wish)]
        self.autos: dict[int, Automatic] = {}
        self.groups: tuple[tuple[int, ...], ...] = ()  # sequences that share passes; none where all are fixed
        self.tables: list[CostTable] = []  # of each group
        self.table: CostTable | None = None  # of all together
        autos = [wish for wish in due if not known.drafts_as_said(wish)]
        if autos:
            self._price(known, autos, wishes)

    def _price(self, known: Knowledge, autos: Sequence[Wish], wishes: Sequence[Wish]) -> None:
        machine = known.machine
        seqs = tuple([wish.seq for wish in wishes])
        depth = sum([wish.depth for wish in wishes]) // len(wishes)
        n_pending = max([wish.n_pending for wish in wishes])
        groups = self.groups = (seqs,) if machine.is_one_pass else groups_of(seqs)
        tables = self.tables = [machine.table((len(group),), depth, n_pending) for group in groups]
        sizes = tuple([len(group) for group in groups])
        self.table = tables[0] if len(groups) == 1 else machine.table(sizes, depth, n_pending)
        for wish in autos:
            i = next(i for i, group in enumerate(groups) if wish.seq in group)
            plain_ms = tables[i].upto(1)[1] / sizes[i]
            longest = min(wish.params.longest, wish.room)
            self.autos[wish.seq] = Automatic(wish, known.states[wish.seq], longest, tables[i], sizes[i], plain_ms)


@lru_cache(maxsize=256)
def groups_of(seqs: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Consecutively numbered sequences, which share passes."""
    out: list[list[int]] = []
    for seq in sorted(seqs):
        if out and seq == out[-1][-1] + 1:
            out[-1].append(seq)
        else:
            out.append([seq])
    return tuple(map(tuple, out))
