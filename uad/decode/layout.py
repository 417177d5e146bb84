"""How the rows of a round become passes over the weights, and the padding that `exact` needs. Pure arithmetic on counts.

With one KV stream per sequence llama.cpp cuts a batch into passes: sequences with consecutive numbers go together, each with as many
rows as the shortest still has; what is left makes further passes (llama_batch_allocr::split_equal).
"""

from __future__ import annotations

from collections.abc import Mapping


def passes(counts: Mapping[int, int], n_ubatch: int) -> list[tuple[tuple[int, ...], int]]:
    """The passes for counts[seq] rows: (sequences, rows of each). Rows in a pass: their product."""
    left = {seq: n for seq, n in sorted(counts.items()) if n > 0}
    out: list[tuple[tuple[int, ...], int]] = []
    while left:
        group = _consecutive(left, n_ubatch)
        n = min(min(left[seq] for seq in group), max(n_ubatch // len(group), 1))
        out.append((group, n))
        left = {seq: rest for seq, have in left.items() if (rest := have - n if seq in group else have) > 0}
    return out


def _consecutive(left: Mapping[int, int], n_ubatch: int) -> tuple[int, ...]:
    group: list[int] = []
    for seq in left:
        if (group and seq != group[-1] + 1) or len(group) >= n_ubatch:
            break
        group.append(seq)
    return tuple(group)


def exact_padding(counts: Mapping[int, int], n_ubatch: int) -> dict[int, int]:
    """Extra rows per sequence so that no pass has a single row: with float weights llama.cpp computes a single row by other kernels,
    whose last bits differ. The extra rows are dummies, forgotten after the decode."""
    padded = dict(counts)
    while (single := _single(padded, n_ubatch)) is not None:
        padded[single] += 1
    return {seq: padded[seq] - counts[seq] for seq in counts}


def _single(counts: Mapping[int, int], n_ubatch: int) -> int | None:
    """The sequence that would be alone with one row in some pass."""
    return next((group[0] for group, n in passes(counts, n_ubatch) if len(group) * n == 1), None)
