"""`uad bench` and `uad bench requests`: hand over to uad.bench, which measures."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from uad.config.argv import Parser
from uad.console import set_up_logging

_DESCRIPTION = "Measure plain against drafted decoding in one process. The last line of output is JSON."
_EPILOG = """example: uad bench --target TARGET.gguf --draft DRAFT.gguf --workload chat,code

`uad bench requests` measures whole requests of running servers: see its --help."""
_REQUESTS = """Measure whole requests of a running server: time to the first token and in all, with drafts, without, and
on other servers.

Every prompt goes to each in turn, and none is in a cache. The last line is JSON."""
_REQUESTS_EPILOG = "example: uad bench requests http://127.0.0.1:8080 --vs http://127.0.0.1:8081"


def main(argv: Sequence[str]) -> int:
    """Run the bench. Raises UadError."""
    from uad.bench import requests, run

    set_up_logging(logging.WARNING)
    if argv and argv[0] == "requests":
        parser = Parser("uad bench requests", _REQUESTS, _REQUESTS_EPILOG, "URL")
        requests.add_arguments(parser)
        return requests.main(parser.parse(argv[1:]))
    parser = Parser("uad bench", _DESCRIPTION, _EPILOG)
    run.add_arguments(parser)
    return run.main(parser.parse(argv))
