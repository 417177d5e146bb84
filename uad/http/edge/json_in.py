"""JSON in: a body is measured, then parsed by `pydantic_core.from_json` in one call.

That call lets no other thread run, so what it may cost is bounded before: depth, objects and lists, values. 27 MiB of
messages take 7 ms; the worst body that passes, 8,000 numbers of 4,000 digits each, takes 270. Without the bounds 20 MiB
of small objects would stop all streams for seconds. Knows no route.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from pydantic_core import from_json

from uad.base.checkpoint import checkpoint
from uad.base.errors import InvalidRequestError

MAX_DEPTH = 128
"""Brackets in brackets."""
MAX_VALUES = 1 << 18
"""Strings, numbers, objects and lists: what an agent's history of thousands of messages has many times over."""
MAX_CONTAINERS = 1 << 16
"""Objects and lists, which take longer, and make collections of garbage longer."""
SMALL_BYTES = 1 << 16
"""Bytes that are parsed without being measured: milliseconds, whatever they hold."""
_STEP_BYTES = 1 << 18
_QUOTE, _COMMA, _OPEN, _CLOSE = 1, 2, 3, 4
_KINDS = np.zeros(256, np.uint8)
for _character, _kind in zip(b'",[{]}', (_QUOTE, _COMMA, _OPEN, _OPEN, _CLOSE, _CLOSE), strict=True):
    _KINDS[_character] = _kind
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_UTF_16 = re.compile(rb"\xff\xfe|\x00\x00|\xfe\xff|\x00[^\x00]|[^\x00]\x00", re.DOTALL)
_BOM = b"\xef\xbb\xbf"
_HALF_TEXT = "the body holds half of a surrogate pair (\\ud800 to \\udfff), which is not text"
_DIGITS = "the body holds a number with too many digits"


def parse_object(data: bytes, n_ids: int = 0) -> dict[str, object]:
    """A request body: one JSON object in UTF-8, without NaN, Infinity or half surrogate pairs; members that are null
    are left out.

    n_ids: how many token ids a list may hold, at least. Raises InvalidRequestError, for more values than any real
    request has, too.
    """
    if _UTF_16.match(data):
        raise InvalidRequestError("the body is UTF-16 or UTF-32; JSON is sent in UTF-8")
    data = data.removeprefix(_BOM)
    if len(data) > SMALL_BYTES:
        _measure(data, max(MAX_VALUES, 2 * n_ids))
    elif not data.strip():
        raise InvalidRequestError("the body is empty; send a JSON object")
    value = _parsed(data)
    _check_depth(data)
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return {name: member for name, member in value.items() if member is not None}


def parse_list(data: bytes) -> list[object]:
    """A short body that is one JSON list. Raises InvalidRequestError."""
    if len(data) > SMALL_BYTES:
        raise InvalidRequestError(f"the body has more than {SMALL_BYTES} bytes")
    value = _parsed(data.removeprefix(_BOM))
    _check_depth(data)
    if not isinstance(value, list):
        raise InvalidRequestError("the body must be a JSON list")
    return value


def _check_depth(data: bytes) -> None:
    """Raise InvalidRequestError for a short body that is nested as deeply as no long one may be."""
    if len(data) <= SMALL_BYTES and data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        _measure(data, MAX_VALUES)


def _measure(data: bytes, max_values: int) -> None:
    """Count the structure of `data`, a quarter of a megabyte at a time, between which other threads run. Raises
    InvalidRequestError for too much or too deep of it.

    Commas and opening brackets outside of strings count as one value each. Outside are those with an even
    number of quotes before them: the comma of `{"a":[1,2]}` has two, so it separates values; the comma of `{"a,b":1}`
    has one and is text. Escapes are blotted out first, since `\\"` ends no string.
    """
    start = n_quotes = depth = n_values = n_containers = 0
    while start < len(data):
        checkpoint()
        # "\\\\" goes first: in `"a\\\\"` the quote ends the string, in `"a\\""` the first one does not.
        piece = data[start : start + _STEP_BYTES].replace(b"\\\\", b"..").replace(b'\\"', b"..")
        kinds = _KINDS[np.frombuffer(piece, np.uint8)]
        at = np.flatnonzero(kinds)
        kinds = kinds[at]
        quotes = np.cumsum(kinds == _QUOTE, dtype=np.int32) + n_quotes
        is_outside = (quotes % 2 == 0) & (kinds != _QUOTE)
        at, kinds = at[is_outside], kinds[is_outside]
        depths = depth + np.cumsum((kinds == _OPEN).astype(np.int32) - (kinds == _CLOSE), dtype=np.int32)
        n_quotes = int(quotes[-1]) if len(quotes) else n_quotes
        n_containers += int(np.count_nonzero(kinds == _OPEN))
        n_values += int(np.count_nonzero(kinds != _CLOSE))
        if len(depths):
            depth = int(depths[-1])
            if int(depths.min()) < 0:
                raise _malformed("a bracket is closed that was not opened", start + int(at[np.argmax(depths < 0)]))
            if int(depths.max()) > MAX_DEPTH:
                raise InvalidRequestError(
                    f"the body is nested too deeply: more than {MAX_DEPTH} brackets in each other"
                )
        if n_values > max_values:
            raise InvalidRequestError(f"the body holds more than {max_values} values, which no request needs")
        if n_containers > MAX_CONTAINERS:
            raise InvalidRequestError(
                f"the body holds more than {MAX_CONTAINERS} objects and lists, which no request needs"
            )
        start += len(piece) + piece.endswith(b"\\")  # what an escape at the end escapes is no structure


def _parsed(data: bytes) -> Any:
    """The value. `json`, which says better what is wrong, reads short bodies that the parser refuses; it takes those
    that are only nested more deeply than the parser goes.
    """
    try:
        return from_json(data, allow_inf_nan=False, cache_strings="none")
    except ValueError as error:
        if len(data) > SMALL_BYTES:
            raise _explained(data, str(error)) from error
    return _loads(data)


def _explained(data: bytes, text: str) -> InvalidRequestError:
    """The parser's error for a long body, which `json` would take up to a second to read again."""
    place = re.fullmatch(r"(.*) at line (\d+) column (\d+)", text, re.DOTALL)
    if place is None:
        return InvalidRequestError(f"the body is not valid JSON: {text}")
    message, line, column = place.groups()
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    at = int(column) - 1 + (int(newlines[int(line) - 2]) + 1 if int(line) > 1 else 0)
    constant = re.compile(rb"NaN|Infinity").match(data, at)
    if constant is not None:
        return _no_json("-" * (data[at - 1 : at] == b"-") + constant[0].decode())
    if "surrogate" in message or "end of hex escape" in message:
        return InvalidRequestError(_HALF_TEXT)
    if "unicode" in message:
        return InvalidRequestError(f"the body is not valid UTF-8 (byte {at}); JSON is sent in UTF-8")
    if "out of range" in message:
        return InvalidRequestError(_DIGITS)
    return _malformed(message, at)


def _loads(data: bytes) -> Any:
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
        if _HALF_PAIR.search(data):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not valid UTF-8 (byte {error.start}); JSON is sent in UTF-8") from error
    except UnicodeEncodeError as error:
        raise InvalidRequestError(_HALF_TEXT) from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InvalidRequestError(
            f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except ValueError as error:
        raise InvalidRequestError(_DIGITS) from error


def _malformed(why: str, at: int) -> InvalidRequestError:
    return InvalidRequestError(f"the body is not valid JSON: {why} at byte {at}")


def _no_json(name: str) -> InvalidRequestError:
    return InvalidRequestError(f"the body holds {name}, which is not JSON; send a finite number")


def _refuse_constant(name: str) -> object:
    raise _no_json(name)
