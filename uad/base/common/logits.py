"""Arithmetic on rows of logits: sums that do not overflow, and the largest without a sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Likeliest = tuple[npt.NDArray[np.signedinteger], Logits]
"""Some ids of a row, its likeliest among them, and their logits."""
Outputs = Logits | Sequence[Logits | Likeliest]
"""Rows that a decode gave out, [n, n_vocab], or of each row either all logits or the likeliest."""
_COLUMNS_PER_ID = 8  # the more columns, the nearer the bound lies to the k-th largest logit
_MOST_ROWS = 64


def sum_exp(row: npt.NDArray[np.floating], peak: float | np.floating) -> np.floating:
    """sum(exp(row - peak)) of logits [n], in their own precision; of the largest logit as peak, 1 / that is its
    probability.
    """
    total: np.floating = np.exp(row - peak).sum()
    return total


def log_sum_exp(row: npt.NDArray[np.floating]) -> float:
    """log(sum(exp(row))) of logits [n], summed in double precision; logit - log_sum_exp(row) is a log-probability."""
    peak = row.max()
    return float(peak) + float(np.log(np.exp(row - peak).sum(dtype=np.float64)))


def likeliest_each(rows: Logits, k: int) -> list[npt.NDArray[np.intp] | None]:
    """`likeliest` of each row of [n, n_vocab], in one pass where rows are short: then it is the calls of numpy that
    cost.
    """
    n, n_vocab = rows.shape
    n_folds = n_vocab // (_COLUMNS_PER_ID * k)
    if n < 2 or not 2 <= n_folds < _MOST_ROWS:
        return [likeliest(row, k) for row in rows]
    n_columns = n_vocab // n_folds
    maxima = rows[:, : n_folds * n_columns].reshape(n, n_folds, n_columns).max(axis=1)
    bounds = np.partition(maxima, n_columns - k, axis=1)[:, n_columns - k, None]
    at, ids = np.divmod(np.flatnonzero(rows >= bounds), n_vocab)
    counts = np.bincount(at, minlength=n)
    ends = counts.cumsum()
    # what each row has, in a row of its own that is filled up from below: equal ones among the first k stand side by
    # side then
    best = np.full((n, int(counts.max())), -np.inf, np.float32)
    best[at, np.arange(len(at)) - (ends - counts)[at]] = rows[at, ids]
    best.sort(axis=1)
    best = best[:, -(k + 1) :]
    are_found = (counts >= k) & ~(best[:, 1:] == best[:, :-1]).any(axis=1)
    starts = (ends - counts).tolist()
    parts = zip(starts, ends.tolist(), are_found.tolist(), strict=True)
    return [ids[start:end] if is_found else None for start, end, is_found in parts]


def likeliest(row: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.intp] | None:
    """Some ids among which are the k likeliest, in the order of ids. None where the row is too short for this to pay,
    or where logits among those k are equal: then which id comes first is up to the algorithm that sorts the row.

    The row is folded into columns. The k-th largest of their maxima bounds the k-th largest logit from below, since k
    columns reach it. With k = 2, the row 1 5 2 | 4 3 9 folds into the columns (1, 4), (5, 3), (2, 9) with the maxima
    4, 5, 9: the bound is 5, and the ids of 5 and 9 are returned.
    """
    n = len(row)
    n_rows = min(n // (_COLUMNS_PER_ID * k), _MOST_ROWS)
    if n_rows < 2:
        return None
    n_columns = n // n_rows
    table = row[: n_rows * n_columns].reshape(n_rows, n_columns)
    maxima = table.max(axis=0)
    bound = np.partition(maxima, n_columns - k)[n_columns - k]
    if n_rows < _MOST_ROWS:
        ids = np.flatnonzero(row >= bound)
    else:  # a long row is not read a second time: columns that do not reach the bound hold no id that counts
        columns = np.flatnonzero(maxima >= bound)
        at, column = np.nonzero(table[:, columns] >= bound)
        rest = np.flatnonzero(row[n_rows * n_columns :] >= bound)
        ids = np.concatenate((at * n_columns + columns[column], rest + n_rows * n_columns))
    best = np.sort(row[ids])[-(k + 1) :]
    if len(best) < k or (best[1:] == best[:-1]).any():
        return None
    return ids
