"""Bodies that are sent compressed, as gzip or deflate: inflated in small steps. Knows no request and no loop."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from uad.errors import InvalidRequestError

STEP_IN, STEP_OUT = 1 << 14, 1 << 16
"""Bytes that one step reads and makes at most: tenths of a millisecond."""
MAX_MEMBERS = 1024
"""Parts that gzip may have, each compressed by itself. An empty one costs a step, too."""
_ALIASES = {"x-gzip": "gzip"}
_GZIP = 16 + zlib.MAX_WBITS
ENCODINGS = ("gzip", "deflate")


def encoding_of(header: str) -> str | None:
    """The encoding that a Content-Encoding names: one of `ENCODINGS`, or an empty text where there is none; None for
    one that is not known, or for several.
    """
    names = [name.strip().lower() for name in header.split(",")]
    used = [_ALIASES.get(name, name) for name in names if name not in ("", "identity")]
    if not used:
        return ""
    return used[0] if len(used) == 1 and used[0] in ENCODINGS else None


class Inflater:
    """One compressed body. Feed it what arrives with `steps`, then call `end`. Both raise InvalidRequestError."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._bits = _GZIP
        self._stream = zlib.decompressobj(self._bits)
        self._n_members = 0

    def steps(self, data: bytes) -> Iterator[bytes]:
        """What `data` holds. Each step reads and makes a bounded number of bytes, perhaps none."""
        at, rest, is_full = 0, b"", False
        while rest or is_full or at < len(data):
            if not rest:
                rest, at = data[at : at + STEP_IN], at + STEP_IN
            if not self._n_members or self._stream.eof:
                self._begin_member(rest)
            try:
                made = self._stream.decompress(rest, STEP_OUT)
            except zlib.error as error:
                raise self._broken() from error
            rest = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            is_full = len(made) == STEP_OUT and not self._stream.eof  # more may be waiting inside
            yield made

    def end(self) -> None:
        """The body is whole: so must be what it holds."""
        if self._n_members and not self._stream.eof:
            raise InvalidRequestError(f"the body ends in the middle of its {self._encoding} data")

    def _begin_member(self, data: bytes) -> None:
        self._n_members += 1
        if self._n_members > (MAX_MEMBERS if self._encoding == "gzip" else 1):
            raise self._broken()
        if self._encoding == "deflate":  # a few clients leave out its header, as browsers once did
            self._bits = zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
        self._stream = zlib.decompressobj(self._bits)

    def _broken(self) -> InvalidRequestError:
        return InvalidRequestError(f"the body is not {self._encoding}, as its Content-Encoding says")
