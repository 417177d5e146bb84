"""The process's end where llama.cpp gives up (GGML_ABORT): a lost RPC worker, a GPU without memory, a bug. Knows no
model.

ggml calls back and then ends the process, on whatever thread it was. The thread that decodes may never come back. So
all that is still to be done is done in the callback, and the process ends there, with an exit code of uad's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from uad.base.log_writer import drain
from uad.llama.backend import ggml, symbols

GAVE_UP = "llama.cpp gave up"
EXIT_CODE = 1
"""The code of every failure after which the process is to be restarted."""
START_EXIT_CODE = 2
"""The code of wrong files: the next start would end the same way."""

GaveUpListener = Callable[[str], object]
_listeners: list[GaveUpListener] = []
_explainers: list[Callable[[str], str]] = []
_starting: list[str] = []  # what is being loaded, the innermost last
_loaded_before: list[None] = []  # one for each block of `again`


def install() -> None:
    """Have ggml call `_gave_up`, once per process. Without the symbol it goes on printing a trace of its own."""
    if ggml.has("ggml_set_abort_callback"):
        ggml.function("ggml_set_abort_callback")(_callback)


def listen(tell: GaveUpListener) -> Callable[[], None]:
    """`tell` gets the message, on the thread that fails; the process ends when it returns. Returns what stops it."""
    _listeners.append(tell)

    def forget() -> None:
        with suppress(ValueError):
            _listeners.remove(tell)

    return forget


def explained_by(explain: Callable[[str], str]) -> None:
    """`explain` makes ggml's message readable, or returns it as it is."""
    if explain not in _explainers:
        _explainers.append(explain)


@contextmanager
def starting(what: str = "") -> Iterator[None]:
    """If llama.cpp gives up inside, the process ends with the code for a wrong file; the message says `what` was
    loading.
    """
    _starting.append(what)
    try:
        yield
    finally:
        _starting.pop()


@contextmanager
def again() -> Iterator[None]:
    """Everything loaded inside has been loaded before: if llama.cpp gives up, another start may help."""
    _loaded_before.append(None)
    try:
        yield
    finally:
        _loaded_before.pop()


def exit_code() -> int:
    """The exit code of the process. A start that needs workers on other machines may succeed once they are back."""
    return START_EXIT_CODE if _starting and not _explainers and not _loaded_before else EXIT_CODE


def message(text: str) -> str:
    """ggml's "path:line: text" as a readable message."""
    # "/src/ggml-rpc.cpp:471: Remote RPC server crashed" becomes "Remote RPC server crashed (ggml-rpc.cpp:471)"
    place, _, rest = text.strip().rpartition(": ")
    line = f"{rest} ({os.path.basename(place)})" if place else rest
    for explain in _explainers:
        line = explain(line)
    if not (loaded := next((what for what in reversed(_starting) if what), "")):
        return f"{GAVE_UP}: {line}"
    return (
        f"{GAVE_UP} over {loaded}: {line}; its metadata is wrong, or this llama.cpp cannot run it: download or convert "
        "it again, or choose another file"
    )


def _gave_up(text: bytes) -> None:
    line = text.decode(errors="replace")
    with suppress(Exception):
        line = message(line)
    for tell in tuple(_listeners):
        with suppress(Exception):
            tell(line)
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(Exception):
        sys.stderr.write(f"uad: error: {line}\n")
        sys.stderr.flush()
        drain()
    os._exit(exit_code())


_callback: Any = symbols.AbortCallback(_gave_up)
