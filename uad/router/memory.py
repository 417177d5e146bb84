"""Whether a model fits beside those that are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from uad.base.common.available import available
from uad.router.folder import FolderModel
from uad.router.pool import RunningChild


def has_memory(model: FolderModel, running: Iterable[RunningChild], root: Path = Path("/")) -> bool:
    """Whether its files fit into what is left. Its context is chosen by its process, so that it fits.

    What is left counts files that others have mapped, since the system can drop them: weights, without which those
    would crawl. 10 GB are available, of which a loaded model has mapped 6: a model of 5 GB does not fit.
    """
    limits = [limit.n_bytes for limit in available(root) if not limit.counts_mapped]
    if not limits:
        return True
    return model.n_bytes <= min(limits) - sum(_mapped(root / f"proc/{loaded.child.pid}/status") for loaded in running)


def _mapped(status: Path) -> int:
    """Bytes of files that a process has in memory; 0 where that is not known."""
    try:
        rows = (line.split() for line in status.read_text(encoding="utf-8").splitlines())
        return next(int(row[1]) * 1024 for row in rows if row and row[0] == "RssFile:")
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
