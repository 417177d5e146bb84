"""Warnings about what is looked at again and again: each is said once in a process."""

from __future__ import annotations

import logging
from functools import cache

_log = logging.getLogger("uad")


@cache
def warn_once(line: str) -> None:
    """A line in the log, unless it was there before."""
    _log.warning("%s", line)


def why(error: Exception) -> str:
    """An exception in a few words, its type where it has none."""
    return str(error) or type(error).__name__
