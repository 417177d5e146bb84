"""How much memory is left beside the models that are loaded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from uad.base.common.available import available


def memory_left(pids: Iterable[int], root: Path = Path("/")) -> float:
    """Bytes that are left beside these processes; infinite where the system does not say.

    The system counts as available the files that others have mapped, since it can drop them: weights, without which
    those would crawl. 10 GB are available, of which a loaded model has mapped 6: 4 are left.
    """
    limits = [limit.n_bytes for limit in available(root) if not limit.counts_mapped]
    return min(limits) - sum(_mapped(root / f"proc/{pid}/status") for pid in pids) if limits else math.inf


def _mapped(status: Path) -> int:
    """Bytes of files that a process has in memory; 0 where that is not known."""
    try:
        rows = (line.split() for line in status.read_text(encoding="utf-8").splitlines())
        return next(int(row[1]) * 1024 for row in rows if row and row[0] == "RssFile:")
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
