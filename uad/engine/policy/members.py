"""What a round is about: the sequences that may draft, the guesses for them, and what their rows cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from uad.base.types import Draft, Origin, SpecPolicy
from uad.engine.policy.calibration import Calibration
from uad.engine.policy.knowledge import Knowledge, SequenceState
from uad.engine.policy.machine import CostTable
from uad.engine.policy.protocol import Wish

# Share of a looked-up guess that is expected to be accepted, from which it spares asking the draft model. Without it
# 0.4 % are lost (lab/README).
_SURE: Final = 0.8
NO_DRAFT: Final = Draft()


class Candidate(NamedTuple):
    """A drafter's guess for one sequence."""

    origin: Origin
    draft: Draft
    gains: list[float]
    """Ids expected to be accepted of the first k, by k."""
    price_ms: float
    """What asking for it took."""
    price: float
    """What asking for one takes on average, in plain decodes."""
    value: float
    """Milliseconds that it is expected to save at its best length, less what it took."""
    sure: float
    """The share of that length that is expected to be accepted."""


@dataclass(slots=True)
class Member:
    """A sequence that may draft in this round."""

    wish: Wish
    longest: int
    """Ids that a drafter may write for it."""
    is_fixed: bool
    table: CostTable | None = None
    """Costs of its group, which shares passes; None where nothing is known of the machine."""
    size: int = 1
    """Sequences in its group."""
    plain_ms: float = 0.0
    """The sequence's share of a round without drafts."""
    state: SequenceState | None = None
    """None: nobody began it."""
    candidates: list[Candidate] = field(default_factory=list)
    guess: Draft = NO_DRAFT
    """What the first drafter with a guess wrote, where the policy is fixed."""
    forced: Draft = NO_DRAFT
    """What a grammar forces, where the policy is fixed."""
    calibration: Calibration | None = None
    """The calibration of the drafter that writes for it now."""
    bins: list[int] = field(default_factory=list)
    """Bins of the beliefs that it wrote so far."""
    p: float = 1.0
    """The probability that all of these are accepted."""

    @property
    def is_sure(self) -> bool:
        """Whether a guess was found that is worth submitting, and expected to be accepted nearly whole. What a grammar
        forces says nothing of what comes after it.
        """
        return any(
            candidate.sure >= _SURE and candidate.value > 0
            for candidate in self.candidates
            if candidate.origin is not Origin.GRAMMAR
        )


class Round:
    """The sequences of one round, and what it costs."""

    def __init__(self, known: Knowledge, due: Sequence[Wish] = (), wishes: Sequence[Wish] = ()) -> None:
        """due: the sequences that may draft; wishes: all that write."""
        self.n_writing = len(wishes)
        self.members = {wish.seq: _member(known, wish) for wish in due}
        self.groups: tuple[tuple[int, ...], ...] = ()
        """Sequences that share passes; none where no costs are known."""
        self.tables: list[CostTable] = []
        autos = [member for member in self.members.values() if not member.is_fixed]
        if not autos:
            return
        seqs = tuple([wish.seq for wish in wishes])
        depth = sum([wish.depth for wish in wishes]) // len(wishes)
        n_pending = max([wish.n_pending for wish in wishes])
        groups = self.groups = (seqs,) if known.machine.is_one_pass else groups_of(seqs)
        self.tables = [known.machine.table((len(group),), depth, n_pending) for group in groups]
        sizes = tuple([len(group) for group in groups])
        self.table = self.tables[0] if len(groups) == 1 else known.machine.table(sizes, depth, n_pending)
        for member in autos:
            i = next(i for i, group in enumerate(groups) if member.wish.seq in group)
            member.table, member.size = self.tables[i], len(groups[i])
            member.plain_ms = self.tables[i].upto(1)[1] / member.size


def _member(known: Knowledge, wish: Wish) -> Member:
    params = wish.params
    is_fixed = known.is_fixed or params.policy is SpecPolicy.FIXED
    longest = min(params.longest, wish.room)
    return Member(wish, longest, is_fixed, state=None if is_fixed else known.state(wish.seq))


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
