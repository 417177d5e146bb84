"""JSON out, and the frames of server-sent events. Knows no route."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from uad.base.checkpoint import checkpoint

Json = dict[str, object]

LOWEST = -3.4028234663852886e38  # the lowest float32, which llama-server sends for log(0)
PING = b":\n\n"
DONE = b"data: [DONE]\n\n"
_CHARS_AT_ONCE = 1 << 16  # characters
_NUMBERS = 1 << 12

# ASCII only: some clients split streams at every Unicode line end, U+2028 and U+0085 among them.
dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def frame(text: str) -> bytes:
    """One event holding the JSON `text`."""
    return f"data: {text}\n\n".encode("ascii")


def named_frame(text: str) -> bytes:
    """One event holding the JSON `text` of an object, whose first member is its `type`: that is the event's name."""
    name = text.split('"', 4)[3]
    return f"event: {name}\ndata: {text}\n\n".encode("ascii")


def dumps_large(value: object, depth: int = 5) -> str:
    """The same text for worker threads, made of small pieces: the encoder lets no other thread run before it is done.

    An iterator is a list whose items need not all be there at once: every object kept until then makes each collection
    of garbage longer, which stops all threads. Below `depth` values are small.
    """
    return "".join(_texts(value, depth))


def chunks(value: object, depth: int = 5) -> list[bytes]:
    """The same in chunks of some 64 KiB, which are never put together: an answer may have a hundred million bytes."""
    return list(each_chunk(value, depth))


def each_chunk(value: object, depth: int = 5) -> Iterator[bytes]:
    """The same chunks, each made when it is asked for."""
    texts: list[str] = []
    size = 0
    for text in _texts(value, depth):
        texts.append(text)
        size += len(text)
        if size >= _CHARS_AT_ONCE:
            checkpoint()
            yield "".join(texts).encode("ascii")
            texts, size = [], 0
    yield "".join(texts).encode("ascii")


def _texts(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str) and len(value) > _CHARS_AT_ONCE:
        yield '"'
        for start in range(0, len(value), _CHARS_AT_ONCE):
            yield dumps(value[start : start + _CHARS_AT_ONCE])[1:-1]
        yield '"'
    elif depth and isinstance(value, dict):
        yield "{"
        for i, (name, member) in enumerate(value.items()):
            yield f"{',' * (i > 0)}{dumps(name)}:"
            yield from _texts(member, depth - 1)
        yield "}"
    elif depth and isinstance(value, list | tuple) and all(type(item) is int for item in value):
        yield "["
        for start in range(0, len(value), _NUMBERS):
            yield "," * (start > 0) + dumps(value[start : start + _NUMBERS])[1:-1]
        yield "]"
    elif depth and isinstance(value, list | tuple | Iterator):
        yield "["
        for i, item in enumerate(value):
            yield "," * (i > 0)
            yield from _texts(item, depth - 1)
        yield "]"
    else:
        yield dumps(value)


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
