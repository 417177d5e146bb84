"""The name of the request that the running code works for, which each of its lines in the log has."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
_SANE = re.compile(r"[A-Za-z0-9._:=+/@-]{1,128}")


@contextmanager
def about(name: str) -> Iterator[None]:
    """Lines of the log that are written in this block are about the request of this name."""
    token = REQUEST_ID.set(name)
    try:
        yield
    finally:
        REQUEST_ID.reset(token)


def request_id(given: str | None) -> str:
    """The name that a client gives, where it is short and has no characters that could pass for something else in a
    log or a header; else a new one.
    """
    return given if given is not None and _SANE.fullmatch(given) else f"req_{secrets.token_hex(12)}"
