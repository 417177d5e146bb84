"""Arithmetic on rows of logits that does not overflow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def log_sum_exp(row: npt.NDArray[np.floating]) -> float:
    """log(sum(exp(row))) of logits [n], summed in double precision; logit - log_sum_exp(row) is a log-probability."""
    peak = row.max()
    return float(peak) + float(np.log(np.exp(row - peak).sum(dtype=np.float64)))
