"""Where an answer goes on in the text that it was predicted to be, by its last bytes. Knows no ids and no model.

They are looked for far away where many of them are there, nearby where few are. Where none are, a line is taken to be
put in or replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

TAIL_BYTES: Final = 64
"""Bytes of the answer that are compared."""
_NEEDLES: Final = ((24, 1 << 16), (12, 1 << 16), (6, 1 << 12), (3, 1 << 8))
"""Bytes that are looked for, the most first, and how many bytes before and after the difference that is done."""
_MOST_HITS: Final = 16
"""Places of them that are compared, on each side."""
_GRAIN_BYTES: Final = 8
"""Bytes that a place may be away from where it is expected; each doubling of that takes one byte more that agrees."""
_LONGEST_LINE_BYTES: Final = 1 << 12


class PredictedPlace(NamedTuple):
    """Where the answer goes on in the prediction: an offset in bytes. score: bytes that agree before it, less what it
    is away; 0 where nothing speaks for it but what edits mostly are.
    """

    at: int
    score: int = 0


def find(text: bytes, tail: bytes, left: int, n_since: int) -> PredictedPlace | None:
    """The place in `text` after the most of the answer's last bytes, else that after a line which differs; None where
    nothing is known.

    left: where the answer left the text. n_since: about how many bytes it has written since.
    """
    for n, reach in _NEEDLES:
        if len(tail) >= n:
            hits = [at for at in _hits(text, tail[-n:], left, reach) if at < len(text)]
            scored = [(_score(text, tail, at, n, left + n_since), -abs(at - left), at) for at in hits]
            score, _, at = max(scored, default=(0, 0, -1))
            if score > 0:
                return PredictedPlace(at, score)
    return _after_line(text, tail, left)


def _hits(text: bytes, needle: bytes, left: int, reach: int) -> Iterator[int]:
    """The ends of some of its places, those nearest to the difference on each side of it."""
    n = len(needle)
    at = max(left - n, -1)
    for _ in range(_MOST_HITS):
        at = text.find(needle, at + 1, left + reach)
        if at < 0:
            break
        yield at + n
    at = left - n + 1
    for _ in range(_MOST_HITS):
        at = text.rfind(needle, max(left - reach, 0), max(at + n - 1, 0))
        if at < 0:
            break
        yield at + n


def _score(text: bytes, tail: bytes, at: int, n: int, expected: int) -> int:
    """How well a place fits after which n bytes are known to agree."""
    most = min(len(tail), at)
    while n < most and text[at - n - 1] == tail[-n - 1]:
        n += 1
    return weight(tail[-n:]) - (abs(at - expected) // _GRAIN_BYTES).bit_length()


def _after_line(text: bytes, tail: bytes, left: int) -> PredictedPlace | None:
    """Where the answer begins a line: the line of the difference where that differed as a whole (another was put in
    before it), else the next one.
    """
    line = tail.rfind(b"\n") + 1
    indent = tail[line:]
    if not line or indent.strip():
        return None
    start = text.rfind(b"\n", 0, left) + 1
    if text[start:left].strip():
        start = text.find(b"\n", left, left + _LONGEST_LINE_BYTES) + 1
    at = start + len(indent)
    return PredictedPlace(at) if (start or left == 0) and text.startswith(indent, start) and at < len(text) else None


def weight(data: bytes) -> int:
    """How many bytes of evidence these are: a run of white space counts as one."""
    words = data.split()
    return sum(map(len, words)) + max(len(words) - 1, 0)
