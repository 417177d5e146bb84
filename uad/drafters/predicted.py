"""Where an answer is in the text that it was predicted to be, byte by byte, through edits. Knows no ids and no model.

Behind a difference the last bytes of the answer are looked for in the prediction: far away where many of them are
there, nearby where few are. Where none are, a word is taken to be replaced, or a line put in or replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from uad.common.sequences import common_prefix

_TAIL: Final = 64
"""Bytes of the answer that are compared."""
_SURE: Final = 4
"""Ids in a row that agree, from which on a place is no guess any more."""
_NEEDLES: Final = ((24, 1 << 16), (12, 1 << 16), (6, 1 << 12), (3, 1 << 8))
"""Bytes that are looked for, the most first, and how many bytes before and behind the difference that is done."""
_MOST_HITS: Final = 16
"""Places of them that are compared, on each side."""
_GRAIN: Final = 8
"""Bytes that a place may be away from where it is expected; each doubling of that takes one byte more that agrees."""
_BYTES_PER_ID: Final = 3
_LONGEST_WORD: Final = 64
_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_FIRST_LENGTH: Final = 2
"""Ids in a row that a place counts as for which nothing speaks but what edits mostly are."""


class Trust(Enum):
    """What a place is known by: nothing but what edits mostly are; some bytes that agree; ids in a row that agree."""

    GUESSED = "guessed"
    RESUMED = "resumed"
    FOLLOWED = "followed"


class PredictedPlace(NamedTuple):
    """Where the answer goes on in the prediction: an offset in bytes. length: ids in a row that this counts as."""

    at: int
    length: int
    trust: Trust


class PredictedAnswer:
    """One answer. `write` is cheap; `place` looks for the place where it is not known.

    text: the prediction. before: the end of the prompt, as far as it is text.
    """

    def __init__(self, text: bytes, before: bytes = b"") -> None:
        self.text = text
        self._tail = bytearray(before[-_TAIL:])
        self._n_left = len(self._tail)  # bytes of it that no id without bytes is behind
        self._at = 0  # of the next byte; -1: not known
        self._trust = Trust.GUESSED
        self._n_agreed = 0  # ids in a row, since the place was found
        self._n_counted = _FIRST_LENGTH  # ids that finding it counts as
        self._anchor = 0  # where the answer left the prediction
        self._n_since = 0  # bytes that it has written since
        self._n_before = 0  # ids in a row that agreed before
        self._is_searched = True

    @property
    def left(self) -> bytes:
        """The last bytes of the text, which the next id may be cut by."""
        return bytes(self._tail[len(self._tail) - self._n_left :])

    def write(self, data: bytes) -> None:
        """The answer goes on with the bytes of one id."""
        if not data:
            self._n_left = 0
            return
        self._tail += data
        del self._tail[:-_TAIL]
        self._n_left = min(self._n_left + len(data), _TAIL)
        if self._trust is not Trust.FOLLOWED:
            self._n_since += len(data)
        if self._at < 0:
            self._is_searched = False
        elif self.text.startswith(data, self._at):
            self._agree(len(data))
        else:
            self._leave(data)

    def _agree(self, n_bytes: int) -> None:
        self._at += n_bytes
        self._n_agreed += 1
        if self._trust is not Trust.FOLLOWED and self._n_agreed >= _SURE:
            self._trust = Trust.FOLLOWED
            self._n_counted = self._n_before // 2

    def _leave(self, data: bytes) -> None:
        """The place was a guess, and wrong; or the answer differs from here on."""
        if self._trust is Trust.FOLLOWED:
            n = common_prefix(data, self.text[self._at : self._at + len(data)])
            self._anchor, self._n_since = self._at + n, len(data) - n
            self._n_before = self._n_agreed + self._n_counted
        self._at, self._trust, self._is_searched = -1, Trust.GUESSED, False

    def place(self) -> PredictedPlace | None:
        """Where it goes on; None where that is not known, or the prediction ends."""
        if not self._is_searched:
            self._is_searched = True
            self._search()
        if not 0 <= self._at < len(self.text):
            return None
        return PredictedPlace(self._at, self._n_counted + self._n_agreed, self._trust)

    def _search(self) -> None:
        self._n_agreed, self._n_counted = 0, _FIRST_LENGTH
        found = self._found()
        if found is not None:
            self._at, score = found
            self._trust, self._n_counted = Trust.RESUMED, max(score // _BYTES_PER_ID, 1)
            return
        self._at, self._trust = self._expected(), Trust.GUESSED

    # --- by what agrees

    def _found(self) -> tuple[int, int] | None:
        """The place behind the most of the last bytes, and how much speaks for it: bytes that agree, less what it is
        away.
        """
        tail = bytes(self._tail)
        for n, reach in _NEEDLES:
            if len(tail) >= n:
                scored = [
                    (self._score(tail, at, n), -abs(at - self._anchor), at) for at in self._hits(tail[-n:], reach)
                ]
                score, _, at = max(scored, default=(0, 0, -1))
                if score > 0:
                    return at, score
        return None

    def _hits(self, needle: bytes, reach: int) -> Iterator[int]:
        """The ends of some of its places, those nearest to the difference on each side of it."""
        n, text, anchor = len(needle), self.text, self._anchor
        at = max(anchor - n, -1)
        for _ in range(_MOST_HITS):
            at = text.find(needle, at + 1, anchor + reach)
            if at < 0:
                break
            yield at + n
        at = anchor - n + 1
        for _ in range(_MOST_HITS):
            at = text.rfind(needle, max(anchor - reach, 0), max(at + n - 1, 0))
            if at < 0:
                break
            yield at + n

    def _score(self, tail: bytes, at: int, n: int) -> int:
        most = min(len(tail), at)
        while n < most and self.text[at - n - 1] == tail[-n - 1]:
            n += 1
        away = abs(at - self._anchor - self._n_since)
        return weight(tail[-n:]) - (away // _GRAIN).bit_length()

    # --- by what edits mostly are

    def _expected(self) -> int:
        """The place if a word was replaced, or a line put in or replaced; -1 within one."""
        written = bytes(self._tail[-self._n_since :]) if self._n_since else b""
        line = written.rfind(b"\n") + 1
        if line:
            indent = written[line:]
            start = self._next_line()
            is_there = not indent.strip() and start >= 0 and self.text.startswith(indent, start)
            return start + len(indent) if is_there else -1
        return self._behind_word() if self._n_since <= _LONGEST_WORD else -1

    def _next_line(self) -> int:
        """Where the prediction goes on behind a line that differed: at the line of the difference where that differed
        as a whole (another was put in before it), else at the next one. -1: there is none.
        """
        start = self.text.rfind(b"\n", 0, self._anchor) + 1
        if not self.text[start : self._anchor].strip():
            return start
        end = self.text.find(b"\n", self._anchor, self._anchor + (1 << 12))
        return end + 1 if end >= 0 else -1

    def _behind_word(self) -> int:
        """Behind the word, or the one other character, in which the difference began."""
        text, at = self.text, self._anchor
        stop = min(len(text), at + _LONGEST_WORD)
        while at < stop and text[at] in b" \t":
            at += 1
        end = at
        while end < stop and text[end] in _WORD:
            end += 1
        return end if end > at else min(at + 1, len(text))


def weight(data: bytes) -> int:
    """How many bytes of evidence these are: a run of white space counts as one."""
    words = data.split()
    return sum(map(len, words)) + max(len(words) - 1, 0)
