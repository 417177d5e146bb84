"""Bytes to ids, for any bytes: llama.cpp's tokenization between safe boundaries, through a cache.

Where it would lose a byte, the longest tokens that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uad.vocab.boundary import Boundaries
from uad.vocab.cache import Ids, WordCache
from uad.vocab.table import VocabTable

_LONGEST_CACHED = 256
_LONGEST_TOKEN = 32
_APART = b" q"


class Encoder:
    """Encodes bytes with one vocabulary; may be used from several threads. `cache_size` bounds the words remembered.

    For text, the ids are those that llama.cpp would give for the whole. Bytes that are not UTF-8, and text that the tokenizer
    would normalise away, are covered by the longest tokens that fit; a byte for which the vocabulary has no token is left out.
    """

    def __init__(self, vocab: VocabTable, cache_size: int = 1 << 16) -> None:
        self.vocab = vocab
        self.boundaries = Boundaries(vocab)
        self._cache = WordCache(cache_size)
        self._longest = min(max((len(piece) for piece in vocab.pieces), default=1), _LONGEST_TOKEN)

    def encode(self, data: bytes) -> list[int]:
        """Ids for data. Words that are not remembered and follow each other cost one call of the tokenizer."""
        ids: list[int] = []
        unknown: list[bytes] = []
        get = self._cache.get
        n_words = n_unknown = 0
        for word in self._words(data):
            n_words += 1
            known = get(word)
            if known is None:
                unknown.append(word)
                n_unknown += 1
                continue
            if unknown:
                ids += self._learn(unknown)
                unknown = []
            ids += known
        if unknown:
            ids += self._learn(unknown)
        self._cache.count(n_words - n_unknown, n_unknown)
        return ids

    def learn(self, texts: Sequence[bytes]) -> None:
        """Prepare to encode these texts: one call of the tokenizer, instead of one for each, for most words that are not remembered.

        A call costs up to 70 µs whatever it is asked (some pre-tokenizers compile their expressions each time).
        """
        is_cut = self.boundaries.is_cut
        words = {word: None for text in texts for word in self._words(text) if self._cache.get(word) is None}
        apart = [word for word in words if is_cut(_APART + word, len(_APART)) and is_cut(word + _APART, len(word)) and _is_text(word)]
        if len(apart) > 1:
            self._learn([part for word in apart for part in (word, _APART)])

    def forget(self) -> None:
        """Empty the cache; the counts stay."""
        self._cache.clear()

    @property
    def hits(self) -> int:
        """Words found in the cache, since the beginning."""
        return self._cache.hits

    @property
    def misses(self) -> int:
        """Words that the tokenizer was asked for, since the beginning."""
        return self._cache.misses

    def _words(self, data: bytes) -> Iterable[bytes]:
        start = 0
        for cut in self.boundaries.cuts(data):
            yield data[start:cut]
            start = cut
        if start < len(data):
            yield data[start:]

    def _learn(self, words: list[bytes]) -> list[int]:
        """Ids for words that follow each other, all remembered."""
        if len(words) == 1:
            return list(self._learn_one(words[0]))
        pieces = self.vocab.pieces
        joined = b"".join(words)
        whole = self._tokenize(joined)
        if self.vocab.join(whole) != joined:
            return [id_ for word in words for id_ in self._learn_one(word)]
        k = 0
        for word in words:
            start, at = k, 0
            while at < len(word):
                at += len(pieces[whole[k]])
                k += 1
            self._remember(word, tuple(whole[start:k]))
        return whole

    def _learn_one(self, word: bytes) -> Ids:
        ids = self._tokenize(word)
        if self.vocab.join(ids) != word:
            ids = self._encode_stretches(word)
        return self._remember(word, tuple(ids))

    def _remember(self, word: bytes, ids: Ids) -> Ids:
        if len(word) <= _LONGEST_CACHED:
            self._cache.put(word, ids)
        return ids

    def _tokenize(self, word: bytes) -> list[int]:
        return self.vocab.tokenize(word) if _is_text(word) else []

    def _encode_stretches(self, word: bytes) -> list[int]:
        """Valid text and foreign bytes apart: surrogate escapes mark the bytes that are no UTF-8."""
        ids: list[int] = []
        text = word.decode("utf-8", "surrogateescape")
        start = 0
        for i in range(1, len(text) + 1):
            if i == len(text) or _is_foreign(text[i]) != _is_foreign(text[i - 1]):
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


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
