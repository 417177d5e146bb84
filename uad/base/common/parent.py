"""A process that ends when the one that started it does, however that ends."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import MutableMapping

PARENT = "UAD_PARENT"
"""Set in the environment of a process that is to end with its parent, which holds the other end of its stdin."""
PLANNED = re.compile(r"plans to take (\d+) bytes")
"""The line on stdout by which such a process says how much memory its models are about to take."""
_FAILED = 1


def end_with_parent(environ: MutableMapping[str, str]) -> bool:
    """Where the parent asked for it, watch for its end from now on; whether it did. Nothing else reads stdin then."""
    has_parent = bool(environ.pop(PARENT, ""))
    if has_parent:
        threading.Thread(target=_watch, name="uad-parent", daemon=True).start()
    return has_parent


def _watch() -> None:
    while os.read(0, 1):
        pass
    os._exit(_FAILED)
