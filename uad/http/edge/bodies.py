"""Reads the bodies of requests, within bounds: bytes of one and of all, the time that one may take, work between two
turns of the event loop. One that is sent compressed, as gzip or deflate, is inflated in small steps.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from aiohttp import hdrs, web

from uad.base.errors import InvalidRequestError, NotSupportedError
from uad.http.apis.problems import BusyError

MAX_BODIES_BYTES = 256 * 1024**2
"""Bytes of all bodies that are being read, or were read and are not yet a running request."""
MAX_TEXT_BYTES = 32 * 1024**2
"""Bytes of a body of a route that takes no pictures: eight megabytes of text fill a context of two million tokens."""
WITH_PICTURES_BYTES = 128 * 1024**2
"""Bytes of a body that may hold pictures: four photos of 10 MB are 54 MB in base64."""
PATIENCE_S = 60.0
"""Seconds that any body may take, and one more for each `LEAST_BYTES_PER_S` bytes of it that have arrived."""
LEAST_BYTES_PER_S = 4096


@dataclass(eq=False, slots=True)
class _HeldBody:
    """The bytes held of one body, of `most` at most. It is given up by moving its deadline into the past."""

    deadline: asyncio.Timeout
    most: int
    n_bytes: int = 0
    is_given_up: bool = False
    """All bodies took too much memory, and this one had been arriving for longest."""

    def check(self) -> None:
        """Raise BusyError where it was given up."""
        if self.is_given_up:
            raise BusyError("the bodies of all requests take too much memory now; try again later")


_HELD = web.RequestKey("body", _HeldBody)


class Bodies:
    """All bodies of one application. Lives on the event loop's thread.

    Past `limit` bytes the body that has been arriving for longest is given up: its request gets 503. So slow senders
    never keep others waiting. Those that have arrived are counted until `release`.
    """

    def __init__(self, limit: int = MAX_BODIES_BYTES) -> None:
        self.n_bytes = 0
        self._limit = limit
        self._arriving: dict[_HeldBody, None] = {}  # in the order of their beginning

    async def read(self, request: web.Request, timeout: float, most: int = MAX_TEXT_BYTES) -> bytes:
        """The body, inflated where it is compressed; it has `most` bytes at most. Raises TimeoutError where it takes
        too long, BusyError where all take too much memory, HTTPException or InvalidRequestError for one that cannot be
        used.
        """
        inflater, most = _inflater(request), min(most, request.client_max_size)
        _check_size(most, request.content_length or 0)
        began, n_raw, data = asyncio.get_running_loop().time(), 0, bytearray()
        body = request[_HELD] = _HeldBody(asyncio.timeout_at(began + min(PATIENCE_S, timeout)), most)
        self._arriving[body] = None
        # what came with its head takes no time
        in_time = nullcontext() if inflater is None and request.content.is_eof() else body.deadline
        try:
            async with in_time:
                while arrived := await request.content.readany():
                    n_raw += len(arrived)
                    _check_size(most, n_raw)
                    for made in (arrived,) if inflater is None else inflater.steps(arrived):
                        self._take(request, data, made)
                        if inflater is not None:
                            await asyncio.sleep(0)
                    body.check()
                    if not request.content.is_eof():
                        body.deadline.reschedule(began + min(PATIENCE_S + n_raw / LEAST_BYTES_PER_S, timeout))
            body.check()
            if inflater is not None:
                inflater.end()
            return bytes(data)
        except TimeoutError:
            body.check()
            raise
        finally:
            self._arriving.pop(body, None)
            data.clear()  # the traceback of an exception would keep it

    def release(self, request: web.Request) -> None:
        """The body is not needed any more."""
        body = request.get(_HELD)
        if body is not None:
            self._forget(body)

    def _take(self, request: web.Request, data: bytearray, more: bytes) -> None:
        """More of the body is there."""
        body = request[_HELD]
        body.check()
        _check_size(body.most, len(data) + len(more))
        data += more
        body.n_bytes += len(more)
        self.n_bytes += len(more)
        # With 256 MiB held, 100 clients that each sent 2.6 MiB and then nothing would lock out all others for a minute.
        # So the oldest of them goes, not the one that came last: that may be an honest one.
        while self.n_bytes > self._limit:
            oldest = next(body for body in self._arriving if body.n_bytes)
            self._forget(oldest)
            oldest.is_given_up = True
            if oldest is not body and not oldest.deadline.expired():
                oldest.deadline.reschedule(0.0)
        body.check()

    def _forget(self, body: _HeldBody) -> None:
        self._arriving.pop(body, None)
        self.n_bytes -= body.n_bytes
        body.n_bytes = 0


def _inflater(request: web.Request) -> Inflater | None:
    """The inflater of the body; None if it is not compressed. Raises for encodings that are not read here."""
    transfer = ", ".join(request.headers.getall(hdrs.TRANSFER_ENCODING, ()))
    if transfer.strip().lower() not in ("", "chunked"):
        raise NotSupportedError(
            f"Transfer-Encoding {transfer[:100]!r} is not supported; send chunked, or a Content-Length"
        )
    header = ", ".join(request.headers.getall(hdrs.CONTENT_ENCODING, ()))
    encoding = encoding_of(header)
    if encoding is None:
        known = ", ".join(ENCODINGS)
        raise web.HTTPUnsupportedMediaType(
            text=f"Content-Encoding {header[:100]!r} is not supported; send one of {known}, or none",
            headers={hdrs.ACCEPT_ENCODING: known},
        )
    return Inflater(encoding) if encoding else None


def _check_size(most: int, n: int) -> None:
    if n > most:
        raise web.HTTPRequestEntityTooLarge(most, n, text=f"the body has more than {most} bytes; send less")


# --- compressed bodies

STEP_IN_BYTES, STEP_OUT_BYTES = 1 << 14, 1 << 16
"""Bytes that one step reads and makes at most: tenths of a millisecond."""
MAX_MEMBERS = 1024
"""Parts that gzip may have, each compressed by itself. An empty one costs a step, too."""
_ALIASES = {"x-gzip": "gzip"}
_GZIP = 16 + zlib.MAX_WBITS
ENCODINGS = ("gzip", "deflate")


def encoding_of(header: str) -> str | None:
    """The encoding that a Content-Encoding names: one of `ENCODINGS`, or an empty text if it names none; None for
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
        # zlib takes the format from this number: 16 and the window's size for gzip, the size alone for zlib's own
        # header, its negative for no header.
        self._bits = _GZIP
        self._stream = zlib.decompressobj(self._bits)
        self._n_members = 0

    def steps(self, data: bytes) -> Iterator[bytes]:
        """Inflate `data`. Each step reads and makes a bounded number of bytes, perhaps none."""
        at, rest, is_full = 0, b"", False
        while rest or is_full or at < len(data):
            if not rest:
                rest, at = data[at : at + STEP_IN_BYTES], at + STEP_IN_BYTES
            if not self._n_members or self._stream.eof:
                self._begin_member(rest)
            try:
                made = self._stream.decompress(rest, STEP_OUT_BYTES)
            except zlib.error as error:
                raise self._broken() from error
            rest = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            is_full = len(made) == STEP_OUT_BYTES and not self._stream.eof  # more may be waiting inside
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
