"""Draft bytes to target ids: the right continuation of ids that are already committed. Knows no model, no probabilities, no rules."""

from __future__ import annotations

from collections.abc import Sequence

from uad.vocab.encode import Encoder

_MAX_TAIL_IDS = 12


class Translator:
    """Turns bytes that follow committed target ids into candidate target ids."""

    def __init__(self, target: Encoder) -> None:
        self._encoder = target
        self._vocab = target.vocab

    def candidates(self, committed: Sequence[int], data: bytes) -> list[int]:
        """Ids for data, cut as the target would cut them after `committed` (only its last ids are read).

        The tail is encoded together with data from a safe boundary; where that does not run through the committed ids,
        data is encoded alone. The ids' bytes are exactly data, unless the target has no token for some byte: then they end before it.
        """
        if not data:
            return []
        tail, tail_ids = self._tail(committed)
        ids = self._encoder.encode(tail + data)
        n = len(tail_ids)
        if ids[:n] != tail_ids:
            ids, n = self._encoder.encode(data), 0
        return self._exact(ids[n:], data)

    def _tail(self, committed: Sequence[int]) -> tuple[bytes, list[int]]:
        """The last committed ids from a safe boundary on, with their bytes. Empty after a special, or where no boundary is near."""
        pieces = self._vocab.pieces
        boundaries = self._encoder.boundaries
        data = b""
        lowest = max(len(committed) - _MAX_TAIL_IDS, 0)
        for i in range(len(committed) - 1, lowest - 1, -1):
            piece = pieces[committed[i]]
            if not piece:
                return data, list(committed[i + 1 :])
            data = piece + data
            before = pieces[committed[i - 1]] if i else b""
            if not before or boundaries.is_safe(before[-1], data[0]):
                return data, list(committed[i:])
        return b"", []

    def _exact(self, ids: list[int], data: bytes) -> list[int]:
        """The longest prefix of ids whose bytes are a prefix of data (all of them, but for bytes without a token)."""
        pieces = self._vocab.pieces
        at = 0
        for k, id_ in enumerate(ids):
            piece = pieces[id_]
            if data[at : at + len(piece)] != piece:
                return ids[:k]
            at += len(piece)
        return ids
