"""What requests hold that has no effect here, and is left out: a line in the log, once for each."""

from __future__ import annotations

import logging
from functools import lru_cache

log = logging.getLogger("uad.server")


@lru_cache(256)
def leave_out(where: str, what: str, why: str) -> None:
    """Say that `what`, which stands at `where` in a request, is left out."""
    log.warning("%s: %s is left out: %s", where, what, why)
