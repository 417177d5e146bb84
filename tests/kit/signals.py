"""Signals that this process was started with as ignored."""

from __future__ import annotations

import signal
from types import FrameType


def pass_signals_on() -> None:
    """Tests that send signals are the same where this process was started with some of them ignored: by `nohup`, or in
    the background of a script. It goes on ignoring them, by functions: what it starts gets the system's handlers then,
    since only what is ignored as such is inherited.
    """
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)  # Windows lacks two
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Nothing."""
