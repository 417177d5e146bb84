"""Safe boundaries: places in a byte string where tokenization may be cut, because nothing on one side can depend on the other.

A cut between bytes a and b is safe when (1) no token of the vocabulary contains a directly followed by b, so that no merge can cross it,
and (2) every pre-tokenizer starts a new piece there or would find the same pieces: a word or number ends and white space or punctuation
begins, or punctuation ends and a space begins. Both ASCII; what comes later cannot change it. tests/test_vocab_boundary.py checks the
claim on every vocabulary at hand.
"""

from __future__ import annotations

import string
from collections.abc import Iterable

import numpy as np

_WORD = frozenset((string.ascii_letters + string.digits).encode())
_SPACE = frozenset(b" \t\n\r")
_PUNCT = frozenset(string.punctuation.encode())


class Boundaries:
    """The safe cuts of one vocabulary, as a table over pairs of bytes (65,536 bytes of memory)."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        table = np.zeros((256, 256), bool)
        for a in _WORD:
            table[a, list(_SPACE | _PUNCT)] = True
        for a in _PUNCT:
            table[a, ord(" ")] = True
        joined = np.frombuffer(b"".join(pieces), np.uint8)
        inner = np.ones(max(len(joined) - 1, 0), bool)
        ends = np.cumsum([len(piece) for piece in pieces if piece])[:-1]
        inner[ends - 1] = False
        table[joined[:-1][inner], joined[1:][inner]] = False
        self._table = table
        self._flat = table.tobytes()

    def is_safe(self, a: int, b: int) -> bool:
        return self._flat[a * 256 + b] == 1

    def cuts(self, data: bytes) -> list[int]:
        """All offsets 0 < i < len(data) at which data may be cut, in order."""
        if len(data) > 96:
            view = np.frombuffer(data, np.uint8)
            return (np.flatnonzero(self._table[view[:-1], view[1:]]) + 1).tolist()
        flat = self._flat
        return [i for i in range(1, len(data)) if flat[data[i - 1] * 256 + data[i]]]

    def last(self, data: bytes | bytearray, limit: int, floor: int = 0) -> int:
        """The last safe cut in floor < i <= limit (needs data[limit] only to judge limit itself); floor where there is none."""
        flat = self._flat
        for i in range(min(limit, len(data) - 1), floor, -1):
            if flat[data[i - 1] * 256 + data[i]]:
                return i
        return floor
