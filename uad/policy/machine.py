"""What rounds cost here: the target's curve over the passes of a batch, the draft's steps. Arithmetic only; times are
milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from uad.policy.cost import CostCurve, CostSample
from uad.types import Origin

_ANY: Final = 1 << 30
_REFRESH: Final = 32  # uses of a table before it is made again from the moving curve
_DEPTH_STEP: Final = 128
_OVERHEAD_RATE: Final = 0.05
_PADDING: Final = 6  # rows at most
_WORTH_PADDING: Final = 0.97
_SINGLES: Final = 32  # decodes of single rows, and
_PADDED: Final = 16  # of more, before these are believed to cost less
_LEAST_MORE: Final = 1.02  # else they cost so many times as much, whatever was measured
_AGAIN: Final = 2.0  # ids that are decoded again after a draft that needed a checkpoint, before any was
_AGAIN_RATE: Final = 0.05
_MOST_MORE: Final = 1.1  # times as much as so many single rows, at most: they could be decoded one by one


class Machine:
    """Costs of a target (and a draft model, if there is one).

    n_ubatch: most rows in a pass. least: fewer rows are padded to this many, in a pass or (of_each) of each sequence.
    n_free: ids of a draft that the target's memory takes back at no cost; with more a round costs keep_ms, and what is
    decoded again. is_rough: the target's curve is of a busy machine.
    """

    def __init__(
        self,
        target: CostCurve,
        draft: CostCurve | None = None,
        *,
        head: CostCurve | None = None,
        n_ubatch: int = 512,
        least: int = 1,
        of_each: bool = False,
        n_free: int = 1 << 30,
        keep_ms: float = 0.0,
    ) -> None:
        self.target = target
        self.draft = draft or CostCurve([CostSample(1, 0, 0.0)])
        self.head = head or CostCurve([CostSample(1, 0, 0.0)])
        self._n_ubatch = n_ubatch
        self._least = least
        self._of_each = of_each
        self.n_free = n_free
        self.keep_ms = keep_ms
        self.n_again = _AGAIN
        self._tables: dict[tuple[tuple[int, ...], int, bool], CostTable] = {}
        self._was_plain = True  # the last decode: a row of each sequence
        self.overhead_ms = 0.0
        self.is_rough = False

    def remeasured(self, target: CostCurve) -> None:
        """The target's passes were measured again, at rest."""
        self.target = target
        self.is_rough = False
        self._tables.clear()

    def steps(self, origin: Origin) -> CostCurve:
        """What a step of this drafter costs, by sequences."""
        return self.head if origin is Origin.HEAD else self.draft

    def table(self, groups: tuple[int, ...], depth: int, n_pending: int = 1) -> RoundTable:
        """Cost of a round by rows of each sequence, for groups of so many consecutively numbered sequences; after
        n_pending - 1 more that are decoded in any case.
        """
        table = self._table(groups, depth)
        return table if n_pending == 1 and self.n_free >= _ANY else Behind(self, table, sum(groups), n_pending - 1)

    def _table(self, groups: tuple[int, ...], depth: int) -> CostTable:
        key = (groups, depth // _DEPTH_STEP, self._was_plain)
        table = self._tables.get(key)
        if table is None or table.n_uses >= _REFRESH or table.n_found != self.target.n_found:
            if len(self._tables) > 256:
                self._tables.clear()
            table = self._tables[key] = CostTable(self, groups, depth, self._was_plain)
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
        self._was_plain = all(n == 1 for _, n in groups)
        if len(groups) == 1:
            n = groups[0][0] * groups[0][1]
            if n <= self._n_ubatch:
                self.target.observe(n, depth, ms)
            return
        expected = sum(self.target.ms(n_seq * n, depth) for n_seq, n in groups)
        self.target.observe_ratio(ms / expected)

    def took_back(self, n_drafted: int, n_accepted: int) -> None:
        """Of a draft of so many ids so many were accepted. Where that took a checkpoint, these and the id after them
        are decoded again.
        """
        if n_drafted > self.n_free:
            n = n_accepted + 1 if n_accepted < n_drafted else 0
            self.n_again += _AGAIN_RATE * (n - self.n_again)

    def plain_round(self, ms: float) -> None:
        """What a round of one id took beside decoding: half of it is taken to be the same for a round of many."""
        self.overhead_ms += _OVERHEAD_RATE * (0.5 * min(ms, 4 * self.overhead_ms + 1) - self.overhead_ms)


class CostTable:
    """Milliseconds of a round by the rows of each sequence, made as far as they are asked for.

    Where more rows cost less, as on machines whose curve has steps, fewer are padded: `level` says to how many, and
    costs are those of it. Single rows are so only where that was seen often enough, and otherwise more never cost less:
    a curve on which single rows are too expensive would have every guess submitted, right or not, and never see what
    they really cost.
    """

    def __init__(self, machine: Machine, groups: tuple[int, ...], depth: int, was_plain: bool = False) -> None:
        """was_plain: whether the round before had no drafts, so that a change of rows is part of the price."""
        self._machine = machine
        self._groups = groups
        self._depth = depth
        self._change_ms = machine.target.change_ms(depth) if was_plain else 0.0
        self._raw = [0.0]
        self._ms = [0.0]
        self._rows = [0]
        self.n_uses = 0
        self.n_found = machine.target.n_found

    def upto(self, n: int) -> list[float]:
        """[k]: cost with k rows of each sequence, for k up to n at least."""
        ms, raw = self._ms, self._raw
        while len(ms) <= n:
            k = len(ms)
            while len(raw) <= k + _PADDING:
                raw.append(self._round_ms(len(raw)))
            best = min(range(k, k + _PADDING + 1), key=raw.__getitem__)
            rows = best if raw[best] < _WORTH_PADDING * raw[k] and (k > 1 or self._is_sure(best)) else k
            self._rows.append(rows)
            least = _LEAST_MORE * raw[1] if k > 1 and self._rows[1] == 1 else 0.0
            ms.append(max(raw[rows], least) + self._machine.overhead_ms + (self._change_ms if rows > 1 else 0.0))
        return ms

    def _round_ms(self, n_each: int) -> float:
        ms = sum([self._machine.group_ms(n_seq, n_each, self._depth) for n_seq in self._groups])
        return min(ms, _MOST_MORE * n_each * self._raw[1]) if n_each > 1 else ms

    def _is_sure(self, k: int) -> bool:
        """Whether it was seen often enough what one and k rows of each sequence cost: once they are padded, single ones
        are not seen any more.
        """
        seen = self._machine.target.n_seen
        return all(seen(n, self._depth) >= _SINGLES and seen(k * n, self._depth) >= _PADDED for n in self._groups)

    def level(self, n: int) -> int:
        """How many rows each sequence should have where n are needed."""
        self.upto(n)
        return self._rows[n]


class Behind:
    """A table after rows that are decoded in any case, of a target whose memory may need checkpoints. No round is
    padded: dummy rows would have to be taken back.
    """

    def __init__(self, machine: Machine, table: CostTable, n_seq: int, n_before: int) -> None:
        self._machine = machine
        self._table = table
        self._n_seq = n_seq
        self._n_before = n_before

    def upto(self, n: int) -> list[float]:
        """See `CostTable.upto`."""
        machine, again = self._machine, int(self._machine.n_again + 0.5)
        costs = self._table.upto(n + self._n_before + again + 1)
        price = machine.keep_ms * self._n_seq + max(costs[1 + again] - costs[1], 0.0)
        free = 1 + machine.n_free
        return [ms if k <= free else ms + price for k, ms in enumerate(costs[self._n_before :])]

    def level(self, n: int) -> int:
        """See `CostTable.level`."""
        return n


RoundTable = CostTable | Behind
