"""JSON out, and the frames of server-sent events. Knows no route."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence

from uad.checkpoint import checkpoint

LOWEST = -3.4028234663852886e38  # the lowest float32, which llama-server sends for log(0)
PING = b":\n\n"
DONE = b"data: [DONE]\n\n"
_AT_ONCE = 1 << 16  # characters
_NUMBERS = 1 << 12

# ASCII only: some clients split streams at every Unicode line end, U+2028 and U+0085 among them.
dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def frame(text: str) -> bytes:
    """One event holding the JSON `text`."""
    return f"data: {text}\n\n".encode("ascii")


def dumps_large(value: object, depth: int = 5) -> str:
    """The same text for worker threads, made of small pieces: the encoder lets no other thread run before it is done.

    An iterator is a list whose items need not all be there at once: every object kept until then makes each collection of
    garbage longer, which stops all threads.
    """
    if isinstance(value, str) and len(value) > _AT_ONCE:
        return '"' + "".join(_escaped(value)) + '"'
    if depth and isinstance(value, dict):
        return "{" + ",".join(f"{dumps(name)}:{dumps_large(member, depth - 1)}" for name, member in value.items()) + "}"
    if depth and isinstance(value, list | tuple) and all(type(item) is int for item in value):
        return "[" + ",".join(_numbers(value)) + "]"
    if depth and isinstance(value, list | tuple | Iterator):
        return "[" + ",".join(_items(value, depth)) + "]"
    return dumps(value)


def _escaped(text: str) -> Iterator[str]:
    for start in range(0, len(text), _AT_ONCE):
        checkpoint()
        yield dumps(text[start : start + _AT_ONCE])[1:-1]


def _numbers(values: Sequence[int]) -> Iterator[str]:
    for start in range(0, len(values), _NUMBERS):
        checkpoint()
        yield dumps(values[start : start + _NUMBERS])[1:-1]


def _items(values: Iterable[object], depth: int) -> Iterator[str]:
    for value in values:
        checkpoint()
        yield dumps_large(value, depth - 1)


def finite(value: float) -> float:
    """`value`, or what JSON can hold in its place."""
    if math.isfinite(value):
        return value
    return LOWEST if value < 0 else 0.0


def visible(data: bytes) -> str:
    """Text of a token's bytes: a character cut at the end is left out, other bad bytes become U+FFFD."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return data[: error.start].decode("utf-8", "replace")
        return data[: error.start].decode("utf-8") + "\ufffd" + visible(data[error.end :])
