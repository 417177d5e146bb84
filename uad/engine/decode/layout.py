"""How the rows of a round become passes over the weights, and the padding that `exact` needs. Pure arithmetic on
counts.

With one KV stream per sequence llama.cpp cuts a batch into passes: sequences with consecutive numbers go together, each
with as many rows as the shortest still has; what is left makes further passes (llama_batch_allocr::split_equal).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def passes(counts: Mapping[int, int], n_ubatch: int) -> list[tuple[tuple[int, ...], int]]:
    """The passes for counts[seq] rows: (sequences, rows of each). Rows in a pass: their product."""
    left = {seq: n for seq, n in sorted(counts.items()) if n > 0}
    out: list[tuple[tuple[int, ...], int]] = []
    while left:
        group, n = _next_pass(left, n_ubatch)
        out.append((group, n))
        left = _after(left, group, n)
    return out


def sizes_of_passes(counts: Mapping[int, int], n_ubatch: int) -> list[tuple[int, int]]:
    """(sequences, rows of each) of every pass."""
    if len(counts) == 1:
        (n,) = counts.values()
        if n <= n_ubatch:
            return [(1, n)]
    return [(len(group), n) for group, n in passes(counts, n_ubatch)]


def _next_pass(left: Mapping[int, int], n_ubatch: int) -> tuple[tuple[int, ...], int]:
    group: list[int] = []
    for seq in left:
        if (group and seq != group[-1] + 1) or len(group) >= n_ubatch:
            break
        group.append(seq)
    return tuple(group), min(min(left[seq] for seq in group), max(n_ubatch // len(group), 1))


def _after(left: Mapping[int, int], group: tuple[int, ...], n: int) -> dict[int, int]:
    return {seq: rest for seq, have in left.items() if (rest := have - n if seq in group else have) > 0}


@dataclass(frozen=True, slots=True)
class Least:
    """The fewest rows that a pass may have, where smaller ones are computed by other kernels, whose last bits differ.

    `of_each`: every sequence in the pass must have this many rows (attention as one product per sequence), not the pass
    as a whole.
    """

    rows: int = 1
    of_each: bool = False

    def holds(self, n_sequences: int, n: int, n_ubatch: int) -> bool:
        """Whether a pass of n_sequences sequences with n rows each is large enough, or as large as passes can be."""
        return self._rows(n_sequences, n) >= min(self.rows, self._rows(n_sequences, max(n_ubatch // n_sequences, 1)))

    def most_sequences(self, n_ubatch: int) -> int:
        """How many sequences a decode may have at most, so that passes of n_ubatch rows can be large enough."""
        return max(n_ubatch // self.rows, 1) if self.of_each or n_ubatch < 2 * self.rows else n_ubatch

    def _rows(self, n_sequences: int, n: int) -> int:
        return n if self.of_each else n_sequences * n


def longest_draft(n_ubatch: int, n_batch: int, n_seq: int, least: Least) -> int:
    """Most ids of a draft: with the id before it, and what `exact` adds, it fits into one pass and a sequence's share
    of the batch.
    """
    return max(min(n_ubatch, n_batch // n_seq) - 1 - least.rows, 0)


def padding(counts: Mapping[int, int], n_ubatch: int, least: Least) -> dict[int, int]:
    """Extra rows per sequence so that no pass is too small. They are dummies, forgotten after the decode."""
    extra = dict.fromkeys(counts, 0)
    left = {seq: n for seq, n in sorted(counts.items()) if n > 0}
    while left:
        group, n = _next_pass(left, n_ubatch)
        if not least.holds(len(group), n, n_ubatch):
            for seq in group:
                if left[seq] == n:  # it ends in this pass: one more row makes the pass larger
                    left[seq] += 1
                    extra[seq] += 1
        else:
            left = _after(left, group, n)
    return extra
