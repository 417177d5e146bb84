"""Python processes that this program starts: they import from the installation alone, whatever lies in the current
folder, and those that try something out get neither keys nor settings, nor the terminal's input and Ctrl-C.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

_PRIVATE = re.compile(r"^LLAMA_ARG_|KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def python(module: str, *words: str) -> list[str]:
    """The command that runs a module of the installation."""
    return [sys.executable, "-P", "-m", module, *words]


def environment() -> dict[str, str]:
    """This process's variables without its settings, which are passed on otherwise, and without keys."""
    return {name: text for name, text in os.environ.items() if not _PRIVATE.search(name)}


def run(module: str, *words: str, data: bytes = b"", seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run a module to its end with `data` as its input. Raises OSError, and TimeoutExpired after `seconds`."""
    return subprocess.run(
        python(module, *words),
        input=data,
        capture_output=True,
        timeout=seconds,
        env=environment(),
        start_new_session=True,
    )
