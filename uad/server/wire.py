"""JSON in and out, and the frames of server-sent events. Knows no route."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from uad.errors import InvalidRequestError

LOWEST = -3.4028234663852886e38  # the lowest float32, which llama-server sends for log(0)
PING = b":\n\n"
DONE = b"data: [DONE]\n\n"
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")

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
    if depth and isinstance(value, dict):
        return "{" + ",".join(f"{dumps(name)}:{dumps_large(member, depth - 1)}" for name, member in value.items()) + "}"
    if depth and isinstance(value, list | tuple | Iterator):
        return "[" + ",".join([dumps_large(item, depth - 1) for item in value]) + "]"
    return dumps(value)


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


def parse_object(data: bytes) -> dict[str, object]:
    """A request body: one JSON object in UTF-8, without NaN, Infinity or half surrogate pairs; members that are null are left out."""
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not valid UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except ValueError as error:
        raise InvalidRequestError("the body holds a number with too many digits") from error
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    if _HALF_PAIR.search(data):
        _check_text(value)
    return {name: member for name, member in value.items() if member is not None}


def _refuse_constant(name: str) -> object:
    raise InvalidRequestError(f"the body holds {name}, which is not JSON; send a finite number")


def _check_text(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequestError("the body holds half of a surrogate pair (\\ud800 to \\udfff), which is not text") from error
