"""The cost of rounds here: the target's curve over the passes of a batch, the draft's steps. Arithmetic only; times are
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from uad.base.types import Origin
from uad.engine.policy.choose import CLEAR, gains_of
from uad.engine.policy.cost import CostCurve, CostSample

# Probability that an id of an unknown drafter is accepted, if all before it are.
_USUALLY: Final = 0.6
_USUAL_LENGTH: Final = 8
# Uses of a table before it is made again from the moving curve, and positions that share one.
_REFRESH: Final = 32
_DEPTH_STEP: Final = 128
# Dummy rows at most that fill up a draft to a size that is clearly cheaper. Q8_0 on two cores: passes of 8, 12 and 16
# rows cost less than of 5 to 7, 9 to 11, 13 to 15 (lab/curves.py).
_PADDING: Final = 6
# Ids that are decoded again after a draft that needed a checkpoint: learning it earns 0.1 % (lab/README).
_AGAIN: Final = 2


class Machine:
    """Costs of a target, and of steps of the drafters that write.

    n_ubatch: most rows in a pass. least: fewer rows are padded to this many, in a pass or (of_each) of each sequence.
    n_free: ids of a draft that the target's memory takes back at no cost; with more a round costs keep_ms, and what is
    decoded again. is_rough: the target's curve is of a busy machine. is_one_pass: any sequences share a pass, whatever
    their numbers and rows.
    """

    def __init__(
        self,
        target: CostCurve,
        steps: Mapping[Origin, CostCurve] | None = None,
        *,
        n_ubatch: int = 512,
        least: int = 1,
        of_each: bool = False,
        n_free: int = 1 << 30,
        keep_ms: float = 0.0,
        is_one_pass: bool = False,
    ) -> None:
        self.target = target
        self._steps = dict(steps or {})
        self._n_ubatch = n_ubatch
        self._least = least
        self._of_each = of_each
        self.n_free = n_free
        self.keep_ms = keep_ms
        self.is_one_pass = is_one_pass
        self._tables: dict[tuple[object, ...], CostTable] = {}
        self._was_plain = True  # the last decode: a row of each sequence
        self.is_rough = False

    def remeasured(self, target: CostCurve) -> None:
        """The target's passes were measured again, at rest."""
        self.target = target
        self.is_rough = False
        self._tables.clear()

    def steps(self, origin: Origin) -> CostCurve:
        """The cost of a step of this drafter, by sequences."""
        if origin not in self._steps:
            self._steps[origin] = CostCurve([CostSample(1, 0, 0.0)])
        return self._steps[origin]

    def table(self, groups: tuple[int, ...], depth: int, n_pending: int = 1) -> CostTable:
        """Cost of a round by rows of each sequence, for groups of these numbers of consecutively numbered sequences;
        after n_pending - 1 more that are decoded in any case.
        """
        key = (groups, depth // _DEPTH_STEP, self._was_plain, n_pending)
        table = self._tables.get(key)
        if table is None or table.n_uses >= _REFRESH or table.n_found != self.target.n_found:
            if len(self._tables) > 256:
                self._tables.clear()
            table = self._tables[key] = CostTable(self, groups, depth, self._was_plain, n_pending - 1)
        table.n_uses += 1
        return table

    def group_ms(self, n_seq: int, n_each: int, depth: int) -> float:
        """One group: n_seq sequences with n_each rows each, in as many passes as that takes."""
        if self._of_each:
            n_each = max(n_each, self._least)
        rows = max(n_seq * n_each, self._least)
        most = max(self._n_ubatch // n_seq, 1) * n_seq
        full, rest = divmod(rows, most)
        return full * self.target.ms(most, depth) + (self.target.ms(rest, depth) if rest else 0.0)

    def decoded(self, groups: Sequence[tuple[int, int]], depth: int, ms: float) -> None:
        """A decode of passes (sequences, rows of each) took ms."""
        if len(groups) == 1:
            n_seq, n_each = groups[0]
            self._was_plain, n = n_each == 1, n_seq * n_each
            if n <= self._n_ubatch:
                self.target.observe(n, depth, ms)
            return
        self._was_plain = all(n == 1 for _, n in groups)
        expected = sum(self.target.ms(n_seq * n, depth) for n_seq, n in groups)
        self.target.observe_ratio(ms / expected)


class CostTable:
    """Milliseconds of a round by the rows of each sequence, made as far as they are asked for.

    Several rows cost clearly more than one, whatever was measured: else a curve on which single rows are too expensive
    has every guess submitted, right or not, and never sees what they really cost.

    Where more rows cost less, as on machines whose curve has steps, drafts are padded: `level` says to how many rows,
    and costs are those of it. A target whose memory needs checkpoints is not padded: dummy rows would have to be taken
    back. There a draft longer than n_free costs the checkpoint, and what is decoded again after it.
    """

    def __init__(
        self, machine: Machine, groups: tuple[int, ...], depth: int, was_plain: bool = False, n_before: int = 0
    ) -> None:
        """was_plain: whether the round before had no drafts, so that a change of rows is part of the price. n_before:
        rows of each sequence that are decoded in any case.
        """
        self._machine = machine
        self._groups = groups
        self._depth = depth
        self._n_before = n_before
        self._change_ms = machine.target.change_ms(depth) if was_plain else 0.0
        self._raw = [0.0]
        self._ms = [0.0]
        self._rows = [0]
        self._n_padding = _PADDING if machine.n_free >= 1 << 30 else 0
        self.n_uses = 0
        self.n_found = machine.target.n_found

    def upto(self, n: int) -> list[float]:
        """[k]: cost with k rows of each sequence, for k up to n at least."""
        ms, raw = self._ms, self._raw
        while len(ms) <= n:
            k = len(ms)
            self._measure(k + self._n_padding)
            best = min(range(k, k + self._n_padding + 1), key=raw.__getitem__) if k > 1 else k
            rows = best if CLEAR * raw[best] < raw[k] else k
            self._rows.append(rows)
            least = CLEAR * raw[1] if k > 1 else 0.0
            ms.append(max(raw[rows], least) + (self._change_ms if k > 1 else 0.0) + self._kept_ms(k))
        return ms

    def _measure(self, n: int) -> None:
        """Look up what up to n rows cost, whatever memories do."""
        raw, machine = self._raw, self._machine
        while len(raw) <= n:
            n_each = len(raw) + self._n_before
            raw.append(sum([machine.group_ms(n_seq, n_each, self._depth) for n_seq in self._groups]))

    def _kept_ms(self, k: int) -> float:
        """The extra milliseconds of a round of k rows where that takes checkpoints."""
        machine = self._machine
        if k <= 1 + machine.n_free:
            return 0.0
        self._measure(1 + _AGAIN)
        return machine.keep_ms * sum(self._groups) + max(self._raw[1 + _AGAIN] - self._raw[1], 0.0)

    def usual_saving(self) -> float:
        """Plain decodes that a round saves whose guesses are as good as those of usual drafters, at its best length."""
        gains = gains_of([_USUALLY] * _USUAL_LENGTH)
        costs = self.upto(_USUAL_LENGTH + 1)
        return max(gain + 1.0 - cost / costs[1] for gain, cost in zip(gains, costs[1:], strict=False))

    def level(self, n: int) -> int:
        """How many rows each sequence should have where n are needed."""
        self.upto(n)
        return self._rows[n]
