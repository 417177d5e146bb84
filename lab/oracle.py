"""What drafting could have gained at best: recorded rounds replayed by a policy that knows how many ids the target will
accept.

Arithmetic on counts and costs; knows no engine and no clock. Ids of a recorded round may be cut into shorter drafts,
down to none at all, where the costs make that quicker; a round never yields more than was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from uad.engine.policy.cost import CostCurve

_REFINEMENTS = 6  # of the exchange rate between ids and milliseconds; it settles after two or three


@dataclass(frozen=True, slots=True)
class Round:
    """One decode of one sequence: how many ids came out, what was believed of those that were submitted, how many were
    accepted.
    """

    n_ids: int
    beliefs: tuple[float, ...] = ()
    n_accepted: int = 0

    @property
    def n_drafted(self) -> int:
        return len(self.beliefs)


class Costs(Protocol):
    """What a machine takes for the two things that a round consists of."""

    def target_ms(self, n: int, depth: int) -> float:
        """Milliseconds of one pass of n rows of the target, each after about `depth` positions."""
        ...

    def draft_ms(self, n: int, n_seq: int = 1) -> float:
        """Milliseconds of writing drafts of n ids for n_seq sequences side by side (0 for none)."""
        ...


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """What rounds consist of, at the machine's speed of one moment. draft: None without a draft model, a call of which
    writes the first id of each sequence in call_ms (0: not known), each step a further one.
    """

    target: CostCurve
    draft: CostCurve | None
    call_ms: float = 0.0
    speed: float = 1.0

    def target_ms(self, n: int, depth: int) -> float:
        """One pass of n rows of the target, each after about `depth` positions."""
        return self.target.ms(n, depth) * self.speed / self.target.speed

    def draft_ms(self, n: int, n_seq: int = 1) -> float:
        """Drafts of n ids for n_seq sequences side by side."""
        if n <= 0 or self.draft is None:
            return 0.0
        step_ms = self.draft.ms(n_seq)
        return (self.call_ms or step_ms) + (n - 1) * step_ms


def speed_up(runs: Sequence[Sequence[int]], depth: int, costs: Costs, plain_ms: float) -> float:
    """How many times faster than plain the oracle is.

    runs[s]: ids per recorded round of sequence s, accepted ones and the target's own. depth: positions at the start.
    plain_ms: how long plain decoding took for the same ids; what the costs do not explain of it is overhead, the same
    for every round of the oracle, too. Where it was quicker than they say, so are the oracle's rounds without drafts.
    """
    lengths = [sum(run) for run in runs]
    if not any(lengths) or plain_ms <= 0:
        raise ValueError("the oracle needs at least one id and the time that plain decoding took")
    machine = Machine.anchored(costs, lengths, depth, plain_ms)
    oracle_ms = _alone(runs[0], depth, machine) if len(runs) == 1 else _together(runs, depth, machine, plain_ms)
    return plain_ms / min(oracle_ms, plain_ms)


def passes(rows: Sequence[int]) -> Iterator[int]:
    """Sizes of the passes that a batch makes, for sequences with these numbers of rows: llama.cpp computes equal
    lengths together.
    """
    done = 0
    for length in sorted(set(rows)):
        yield (length - done) * sum(1 for n in rows if n >= length)
        done = length


@dataclass(frozen=True, slots=True)
class Machine:
    """Costs brought into line with the plain run that was measured beside them: `undrafted` times those of rounds
    without drafts, which say nothing of passes with more rows, and `overhead` milliseconds per round.
    """

    costs: Costs
    undrafted: float = 1.0
    overhead: float = 0.0

    @classmethod
    def anchored(cls, costs: Costs, lengths: Sequence[int], depth: int, plain_ms: float) -> Machine:
        n_rounds = max(lengths)
        expected = sum(costs.target_ms(sum(1 for n in lengths if n > t), depth + t) for t in range(n_rounds))
        return cls(costs, min(plain_ms / expected, 1.0), max(plain_ms - expected, 0.0) / n_rounds)

    def round_ms(self, ids: Sequence[int], depth: int) -> float:
        """A round in which each sequence gets that many ids, all but one of them drafted; drafts are written side by
        side.
        """
        apart = sum(self.costs.target_ms(size, depth) for size in passes(ids))
        if max(ids) == 1:
            return self.overhead + self.undrafted * apart
        target = min(apart, self.costs.target_ms(len(ids) * max(ids), depth))  # or with dummy rows, all in one pass
        return self.overhead + target + self.costs.draft_ms(max(ids) - 1, sum(n > 1 for n in ids))


def _alone(run: Sequence[int], depth: int, machine: Machine) -> float:
    """One sequence: each recorded round is cut in the quickest of all ways."""
    total = 0.0
    for n in run:
        once = [machine.round_ms([k], depth) for k in range(1, n + 1)]
        best = [0.0]
        for length in range(1, n + 1):
            best.append(min(once[k - 1] + best[length - k] for k in range(1, length + 1)))
        total += best[n]
        depth += n
    return total


def _together(runs: Sequence[Sequence[int]], depth: int, machine: Machine, plain_ms: float) -> float:
    """Several sequences in one batch: in each round the cap on all drafts that wins most over the average rate found
    before.
    """
    n_ids = sum(map(sum, runs))
    best = plain_ms
    for _ in range(_REFINEMENTS):
        best = min(best, _capped(runs, depth, machine, best / n_ids))
    return best


def _capped(runs: Sequence[Sequence[int]], depth: int, machine: Machine, ms_per_id: float) -> float:
    left = [[n for n in reversed(run) if n > 0] for run in runs]
    start, total = sum(map(sum, left)) / len(left), 0.0
    while any(left):
        heads = [stack[-1] for stack in left if stack]
        here = depth + round(start - sum(map(sum, left)) / len(left))
        rounds = [[min(head, cap) for head in heads] for cap in range(1, max(heads) + 1)]
        spent, ids = min(
            ((machine.round_ms(ids, here), ids) for ids in rounds), key=lambda one: one[0] - ms_per_id * sum(one[1])
        )
        total += spent
        _take(left, ids)
    return total


def _take(left: list[list[int]], ids: Sequence[int]) -> None:
    """Remove what a round wrote from the tops of the stacks that are not empty."""
    for stack, n in zip([stack for stack in left if stack], ids, strict=True):
        stack[-1] -= n
        if not stack[-1]:
            stack.pop()
