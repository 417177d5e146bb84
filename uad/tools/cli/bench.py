"""`uad bench` and `uad bench requests`: hand over to uad.tools.bench, which measures."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uad.base.console import set_up_logging


def main(argv: Sequence[str]) -> int:
    """Run the bench. Raises UadError."""
    from uad.tools.bench import requests, run

    set_up_logging(logging.WARNING)
    if argv and argv[0] == "requests":
        return requests.main(argv[1:])
    return run.main(argv)
