"""JSON in. A body is measured before it is parsed, and a long one is parsed in pieces, between which other threads run.

`json.loads` is one call that holds the interpreter: 20 MiB of small objects would stop all streams for seconds. Knows
no route.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uad.checkpoint import checkpoint
from uad.errors import InvalidRequestError

MAX_DEPTH = 128  # of brackets in brackets
# of strings, numbers, objects and lists: what an agent's history of thousands of messages has many times over
MAX_VALUES = 1 << 18
MAX_CONTAINERS = 1 << 16  # of objects and lists, which take longer, and make collections of garbage longer
SMALL = 1 << 16  # bytes that are parsed in one call: milliseconds, whatever they hold
_STEP = 1 << 18
_TEXT_STEP = 1 << 20
_LONGEST_NAME = 4096
_QUOTE, _COMMA, _OPEN, _CLOSE = 1, 2, 3, 4
_KINDS = np.zeros(256, np.uint8)
for _character, _kind in zip(b'",[{]}', (_QUOTE, _COMMA, _OPEN, _OPEN, _CLOSE, _CLOSE), strict=True):
    _KINDS[_character] = _kind
_WHITE = b" \t\n\r"
_BLANK = re.compile(rb"[ \t\n\r]*")
_NAME = re.compile(rb'[ \t\n\r]*("(?:[^"\\]|\\.){0,%d}")[ \t\n\r]*:' % _LONGEST_NAME, re.DOTALL)
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_LOW_HALF = re.compile(rb"\\u[dD][c-fC-F]")
_UTF_16 = re.compile(rb"\xff\xfe|\x00\x00|\xfe\xff|\x00[^\x00]|[^\x00]\x00", re.DOTALL)
_BOM = b"\xef\xbb\xbf"


def parse_object(data: bytes, n_ids: int = 0) -> dict[str, object]:
    """A request body: one JSON object in UTF-8, without NaN, Infinity or half surrogate pairs; members that are null
    are left out.

    n_ids: how many token ids a list may hold, at least. Raises InvalidRequestError, for more values than any real
    request has, too.
    """
    if _UTF_16.match(data):
        raise InvalidRequestError("the body is UTF-16 or UTF-32; JSON is sent in UTF-8")
    data = data.removeprefix(_BOM)
    if len(data) <= SMALL and not data.strip():
        raise InvalidRequestError("the body is empty; send a JSON object")
    value = (
        _loads(data, 0) if len(data) <= SMALL else _Document(data, _measure(data, max(MAX_VALUES, 2 * n_ids))).parse()
    )
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return {name: member for name, member in value.items() if member is not None}


def parse_list(data: bytes) -> list[object]:
    """A short body that is one JSON list. Raises InvalidRequestError."""
    if len(data) > SMALL:
        raise InvalidRequestError(f"the body has more than {SMALL} bytes")
    value = _loads(data.removeprefix(_BOM), 0)
    if not isinstance(value, list):
        raise InvalidRequestError("the body must be a JSON list")
    return value


@dataclass(frozen=True, slots=True)
class _Structure:
    """The commas and brackets of a document outside its strings: byte offsets, kinds, and how deep in brackets each
    stands.

    A comma or an opening bracket stands at the depth within its brackets, a closing one at the depth around them.
    """

    at: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.uint8]
    depths: npt.NDArray[np.int32]


def _measure(data: bytes, max_values: int) -> _Structure:
    """Where the structure of `data` is, a quarter of a megabyte at a time. Raises InvalidRequestError for too much or
    too deep of it.
    """
    steps: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], npt.NDArray[np.int32]]] = []
    start = n_quotes = depth = n_values = n_containers = 0
    while start < len(data):
        checkpoint()
        piece = data[start : start + _STEP].replace(b"\\\\", b"..").replace(b'\\"', b"..")
        kinds = _KINDS[np.frombuffer(piece, np.uint8)]
        at = np.flatnonzero(kinds)
        quotes = np.cumsum(kinds[at] == _QUOTE, dtype=np.int32) + n_quotes
        outside = at[(quotes % 2 == 0) & (kinds[at] != _QUOTE)]
        kinds = kinds[outside]
        depths = depth + np.cumsum((kinds == _OPEN).astype(np.int32) - (kinds == _CLOSE), dtype=np.int32)
        n_quotes = int(quotes[-1]) if len(quotes) else n_quotes
        depth = int(depths[-1]) if len(depths) else depth
        n_containers += int(np.count_nonzero(kinds == _OPEN))
        n_values += int(np.count_nonzero(kinds != _CLOSE))
        if len(depths) and int(depths.min()) < 0:
            raise _malformed("a bracket is closed that was not opened", start + int(outside[np.argmax(depths < 0)]))
        if len(depths) and int(depths.max()) > MAX_DEPTH:
            raise InvalidRequestError(f"the body is nested too deeply: more than {MAX_DEPTH} brackets in each other")
        if n_values > max_values:
            raise InvalidRequestError(f"the body holds more than {max_values} values, which no request needs")
        if n_containers > MAX_CONTAINERS:
            raise InvalidRequestError(
                f"the body holds more than {MAX_CONTAINERS} objects and lists, which no request needs"
            )
        steps.append(((outside + start).astype(np.int32), kinds, depths))
        start += len(piece) + piece.endswith(b"\\")  # what an escape at the end escapes is no structure
    at_all, kinds_all, depths_all = (np.concatenate(part) for part in zip(*steps, strict=True))
    return _Structure(at_all, kinds_all, depths_all)


class _Document:
    """A long body with its structure. Whatever is cut out of it at its commas is parsed by `json`, which decides
    about every piece.
    """

    def __init__(self, data: bytes, structure: _Structure) -> None:
        self._data = data
        self._at = structure.at
        self._kinds = structure.kinds
        self._depths = structure.depths

    def parse(self) -> object:
        """The whole value."""
        return self._value(0, len(self._data))

    def _value(self, low: int, high: int) -> object:
        """The one value in data[low:high]."""
        checkpoint()
        low, high = self._trimmed(low, high)
        if high - low <= SMALL:
            return _loads(self._data[low:high], low)
        match self._data[low : low + 1] + self._data[high - 1 : high]:
            case b'""':
                return self._text(low, high)
            case b"[]":
                return self._list(low, high)
            case b"{}":
                return self._dict(low, high)
        raise _malformed("no value, brackets that do not match, or a number with too many digits", low)

    def _list(self, low: int, high: int) -> list[object]:
        out: list[object] = []
        for start, end in self._pieces(low, high):
            if end - start > SMALL:
                out.append(self._value(start, end))
            else:
                out += _loads(self._data[start:end], start, b"[]")
        return out

    def _dict(self, low: int, high: int) -> dict[str, object]:
        out: dict[str, object] = {}
        for start, end in self._pieces(low, high):
            if end - start > SMALL:
                name = _NAME.match(self._data, start, end)
                if name is None:
                    raise _malformed(f"a member without a name, or with one of more than {_LONGEST_NAME} bytes", start)
                out[_loads(name[1], start)] = self._value(name.end(), end)
            else:
                out |= _loads(self._data[start:end], start, b"{}")
        return out

    def _pieces(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Stretches between commas of the brackets at both ends of data[low:high]: several items each, or one that is
        long.
        """
        commas, start, close = self._commas(low, high), low + 1, high - 1
        if not len(commas) and self._is_blank(start, close):
            return
        while start <= close:
            checkpoint()
            first, behind = (int(i) for i in np.searchsorted(commas, (start, start + SMALL)))
            end = close if close - start <= SMALL or first == len(commas) else int(commas[max(behind - 1, first)])
            if self._is_blank(start, end):
                raise _malformed("a value is missing", end)
            yield start, end
            start = end + 1

    def _commas(self, low: int, high: int) -> npt.NDArray[np.int32]:
        """The commas between the items of the list or object that is all of data[low:high]."""
        first, last = (int(i) for i in np.searchsorted(self._at, (low, high - 1)))
        if last == len(self._at) or self._at[first] != low or self._at[last] != high - 1:
            raise _malformed("brackets do not match", low)
        depths = self._depths[first:last]
        if (depths < depths[0]).any():
            raise _malformed("brackets do not match", low)
        commas: npt.NDArray[np.int32] = self._at[first:last][
            (self._kinds[first:last] == _COMMA) & (depths == depths[0])
        ]
        return commas

    def _text(self, low: int, high: int) -> str:
        out: list[str] = []
        start = low + 1
        while start < high - 1:
            checkpoint()
            end = high - 1 if high - 1 - start <= _TEXT_STEP else self._between_characters(start + _TEXT_STEP)
            out.append(_loads(self._data[start:end], start, b'""'))
            start = end
        return "".join(out)

    def _between_characters(self, at: int) -> int:
        """The last place up to `at`, or a few bytes before, that is inside of no character, escape or pair of
        escapes.
        """
        data = self._data
        back = data.rfind(b"\\", at - 12, at)
        if back < 0:
            return next(i for i in range(at, at - 4, -1) if data[i] & 0xC0 != 0x80 or i == at - 3)
        n_slashes = back + 1 - len(data[at - _TEXT_STEP : back + 1].rstrip(b"\\")) - (at - _TEXT_STEP)
        escape = back - (n_slashes + 1) % 2  # the second of two slashes is an escaped one
        return escape - 6 if _LOW_HALF.match(data, escape) and _HALF_PAIR.match(data, escape - 6) else escape

    def _trimmed(self, low: int, high: int) -> tuple[int, int]:
        """The same stretch without white space at its ends."""
        match = _BLANK.match(self._data, low, high)
        low = match.end() if match else low
        while tail := self._data[max(low, high - SMALL) : high]:
            kept = tail.rstrip(_WHITE)
            high -= len(tail) - len(kept)
            if kept:
                break
        return low, high

    def _is_blank(self, low: int, high: int) -> bool:
        match = _BLANK.match(self._data, low, high)
        return match is not None and match.end() == high


def _loads(data: bytes, start: int, around: bytes = b"") -> Any:
    """The value of `data`, which begins at byte `start` of the body, with brackets or quotes put around it."""
    try:
        value = json.loads((around[:1] + data + around[1:]).decode(), parse_constant=_refuse_constant)
        if _HALF_PAIR.search(data):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as error:
        at = start + error.start - len(around[:1])
        raise InvalidRequestError(f"the body is not valid UTF-8 (byte {at}); JSON is sent in UTF-8") from error
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            "the body holds half of a surrogate pair (\\ud800 to \\udfff), which is not text"
        ) from error
    except RecursionError as error:
        raise InvalidRequestError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        if start or around:
            raise _malformed(error.msg, start + len(error.doc[: error.pos].encode()) - len(around[:1])) from error
        raise InvalidRequestError(
            f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except ValueError as error:
        raise InvalidRequestError("the body holds a number with too many digits") from error


def _malformed(why: str, at: int) -> InvalidRequestError:
    return InvalidRequestError(f"the body is not valid JSON: {why} at byte {at}")


def _refuse_constant(name: str) -> object:
    raise InvalidRequestError(f"the body holds {name}, which is not JSON; send a finite number")
