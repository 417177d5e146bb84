"""`uad bench requests`, of which the second word may be left out."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uad.base.console import set_up_logging
from uad.base.errors import ConfigError
from uad.tools.bench import requests


def main(argv: Sequence[str]) -> int:
    """Measure servers that run. Raises UadError."""
    set_up_logging(logging.WARNING)
    if argv and argv[0].startswith("-") and argv[0] not in ("-h", "--help"):
        raise ConfigError(
            f"{argv[0]}: `uad bench` compares servers that run: uad bench requests URL [--vs URL]; what a draft gains "
            "here is measured by uad inspect TARGET DRAFT --measure"
        )
    return requests.main(argv[1:] if argv[:1] == ["requests"] else argv)
