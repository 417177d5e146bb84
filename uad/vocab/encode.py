"""Bytes to ids, for any bytes: llama.cpp's tokenization between safe boundaries, through a cache.

Where it would lose a byte, the longest tokens that fit.
"""

from __future__ import annotations

from functools import lru_cache

from uad.vocab.boundary import Boundaries
from uad.vocab.table import VocabTable


class Encoder:
    """Encodes bytes with one vocabulary. `cache_size` bounds the words remembered.

    For text, the ids are those that llama.cpp would give for the whole. Bytes that are not UTF-8, and text that the tokenizer
    would normalise away, are covered by the longest tokens that fit; a byte for which the vocabulary has no token is left out.
    """

    def __init__(self, vocab: VocabTable, cache_size: int = 1 << 16) -> None:
        self.vocab = vocab
        self.boundaries = Boundaries(vocab.pieces)
        self._word = lru_cache(cache_size)(self._encode_word)
        self._longest = min(max((len(piece) for piece in vocab.pieces), default=1), 32)

    def encode(self, data: bytes) -> list[int]:
        cuts = self.boundaries.cuts(data)
        if not cuts:
            return list(self._word(data)) if data else []
        ids: list[int] = []
        word = self._word
        start = 0
        for cut in cuts:
            ids += word(data[start:cut])
            start = cut
        ids += word(data[start:])
        return ids

    @property
    def hits(self) -> int:
        return self._word.cache_info().hits

    @property
    def misses(self) -> int:
        return self._word.cache_info().misses

    def _encode_word(self, word: bytes) -> tuple[int, ...]:
        ids = self._tokenize(word)
        if self.vocab.join(ids) == word:
            return tuple(ids)
        return tuple(self._encode_stretches(word))

    def _tokenize(self, word: bytes) -> list[int]:
        try:
            word.decode()
        except UnicodeDecodeError:
            return []
        return self.vocab.tokenize(word)

    def _encode_stretches(self, word: bytes) -> list[int]:
        """Valid text and foreign bytes apart: surrogate escapes mark the bytes that are no UTF-8."""
        ids: list[int] = []
        text = word.decode("utf-8", "surrogateescape")
        start = 0
        for i in range(len(text) + 1):
            edge = i == len(text) or (i > 0 and _is_foreign(text[i]) != _is_foreign(text[i - 1]))
            if edge and i > start:
                stretch = text[start:i].encode("utf-8", "surrogateescape")
                ids += self._encode_stretch(stretch, _is_foreign(text[start]))
                start = i
        return ids

    def _encode_stretch(self, stretch: bytes, foreign: bool) -> list[int]:
        ids = [] if foreign else self.vocab.tokenize(stretch)
        return ids if ids and self.vocab.join(ids) == stretch else self._longest_match(stretch)

    def _longest_match(self, data: bytes) -> list[int]:
        by_bytes = self.vocab.by_bytes
        ids: list[int] = []
        i = 0
        while i < len(data):
            for n in range(min(self._longest, len(data) - i), 0, -1):
                id_ = by_bytes.get(data[i : i + n])
                if id_ is not None:
                    ids.append(id_)
                    break
            i += n
        return ids


def _is_foreign(character: str) -> bool:
    return "\udc80" <= character <= "\udcff"
