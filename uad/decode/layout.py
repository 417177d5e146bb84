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
        group, n = _next_pass(left, n_ubatch)
        out.append((group, n))
        left = _after(left, group, n)
    return out


def _next_pass(left: Mapping[int, int], n_ubatch: int) -> tuple[tuple[int, ...], int]:
    group: list[int] = []
    for seq in left:
        if (group and seq != group[-1] + 1) or len(group) >= n_ubatch:
            break
        group.append(seq)
    return tuple(group), min(min(left[seq] for seq in group), max(n_ubatch // len(group), 1))


def _after(left: Mapping[int, int], group: tuple[int, ...], n: int) -> dict[int, int]:
    return {seq: rest for seq, have in left.items() if (rest := have - n if seq in group else have) > 0}


def padding(counts: Mapping[int, int], n_ubatch: int, least: int) -> dict[int, int]:
    """Extra rows per sequence so that no pass has fewer than `least` rows, for backends that compute small passes by other kernels,
    whose last bits differ. The extra rows are dummies, forgotten after the decode."""
    extra = dict.fromkeys(counts, 0)
    left = {seq: n for seq, n in sorted(counts.items()) if n > 0}
    while left:
        group, n = _next_pass(left, n_ubatch)
        if len(group) * n < min(least, n_ubatch - len(group) + 1):
            for seq in group:
                if left[seq] == n:  # it ends in this pass: with one row more the pass grows
                    left[seq] += 1
                    extra[seq] += 1
        else:
            left = _after(left, group, n)
    return extra
