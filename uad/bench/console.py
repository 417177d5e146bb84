"""Where tables are printed: as wide as the terminal, or as a page where the output has no width. Knows nothing of what is shown."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console


def console_on(stream: TextIO | None = None, width: int = 160) -> Console:
    """A console on this stream, or on stdout; `width` columns where that is a pipe or a file."""
    out = stream or sys.stdout
    return Console(file=out, width=None if out.isatty() else width)
