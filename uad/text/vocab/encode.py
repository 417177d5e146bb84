"""Bytes to ids, for any bytes: llama.cpp's tokenization between safe boundaries, through a cache.

Where it would lose a byte, the longest tokens that fit. And what that costs a sequence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import pairwise
from time import perf_counter

from uad.base.types import Crossing
from uad.text.vocab.boundary import Boundaries
from uad.text.vocab.table import VocabTable, is_text

IdTuple = tuple[int, ...]
_LONGEST_CACHED = 256
_LONGEST_TOKEN = 32
_FILLERS = (b" q", b" (")


class Encoder:
    """Encodes bytes with one vocabulary; may be used from several threads. `cache_size` bounds the words remembered.

    `hits` and `misses` count words that were remembered and those that the tokenizer was asked for, exactly where one
    thread counts.

    For text, the ids are those that llama.cpp would give for the whole. Bytes that are not UTF-8, and text that the
    tokenizer would normalise away, are covered by the longest tokens that fit; a byte for which the vocabulary has no
    token is left out.
    """

    def __init__(self, vocab: VocabTable, cache_size: int = 1 << 16) -> None:
        self.vocab = vocab
        self.boundaries = Boundaries(vocab)
        self._cache = WordCache(cache_size)
        self.hits = 0
        self.misses = 0
        self._longest = min(vocab.longest, _LONGEST_TOKEN)

    def encode(self, data: bytes) -> list[int]:
        """Ids for data. All words that are not remembered cost one call of the tokenizer, or few."""
        words = self._words(data)
        by_word = [self._cache.get(word) for word in words]
        n_unknown = by_word.count(None)
        self.hits += len(words) - n_unknown
        self.misses += n_unknown
        if n_unknown:
            learned = self._learn_runs(_runs(words, by_word))
            by_word = [learned[word] if ids is None else ids for word, ids in zip(words, by_word, strict=True)]
        return [id_ for ids in by_word if ids for id_ in ids]

    def encode_all(self, texts: Sequence[bytes]) -> list[list[int]]:
        """Ids for each of several texts: unknown words of all of them share the calls.

        A call costs up to 80 µs whatever it is asked (some pre-tokenizers compile their expressions each time).
        """
        get = self._cache.get
        words = [self._words(text) for text in texts]
        known = {word: get(word) for some in words for word in some}
        unknown = [word for word, ids in known.items() if ids is None]
        self.hits += len(known) - len(unknown)
        self.misses += len(unknown)
        unknown.sort(key=self._may_be_followed, reverse=True)
        learned = self._learn_runs([word] for word in unknown)
        ids_of = {word: learned[word] if ids is None else ids for word, ids in known.items()}
        return [[id_ for word in some for id_ in ids_of[word]] for some in words]

    def prepare(self) -> Encoder:
        """Make the tables that are otherwise made when first asked for, some tenths of a second that no request should
        wait for; returns itself.
        """
        _ = self.vocab.by_bytes, self.vocab.sorted_pieces, self.boundaries.junctions
        return self

    def forget(self) -> None:
        """Empty the cache; the counts stay."""
        self._cache.clear()

    def sharing(self) -> Encoder:
        """Another encoder with the same memory, but its own counts."""
        other = copy(self)
        other.hits = other.misses = 0
        return other

    def _words(self, data: bytes) -> list[bytes]:
        cuts = [0, *self.boundaries.cuts(data), len(data)]
        return [data[start:end] for start, end in pairwise(cuts) if start < end]

    def _learn_runs(self, runs: Iterable[list[bytes]]) -> dict[bytes, IdTuple]:
        """Ids of words, all remembered. The words of a run follow each other; runs share a call where a filler holds
        them apart.
        """
        # Unknown are " foo" and " bar", which are no neighbours. " foo q bar" has safe boundaries around the filler "
        # q", so one call gives the ids of both, with those of the filler between.
        learned: dict[bytes, IdTuple] = {}
        batch: list[bytes] = []
        for run in runs:
            filler = None  # a word with safe boundaries to both sides; text and other bytes are not mixed
            if batch and self._may_be_followed(batch[-1]) and is_text(run[0]):
                filler = next(
                    (filler for filler in _FILLERS if self.boundaries.is_cut(filler + run[0], len(filler))), None
                )
            if batch and filler is None:
                learned |= self._learn(batch)
                batch = []
            batch += [filler, *run] if filler else run
        return learned | self._learn(batch) if batch else learned

    def _may_be_followed(self, word: bytes) -> bool:
        return self.boundaries.is_cut(word + _FILLERS[0], len(word)) and is_text(word)

    def _learn(self, words: list[bytes]) -> dict[bytes, IdTuple]:
        """Ids for words that follow each other. Where one of them loses a byte, halves find it with few calls."""
        pieces = self.vocab.pieces
        joined = b"".join(words)
        whole = self.vocab.tokenize(joined) if is_text(joined) else []
        if self.vocab.join(whole) != joined:
            if len(words) == 1:
                return {joined: self._remember(joined, tuple(self._encode_stretches(joined)))}
            half = len(words) // 2
            return self._learn(words[:half]) | self._learn(words[half:])
        if len(words) == 1:
            return {joined: self._remember(joined, tuple(whole))}
        learned: dict[bytes, IdTuple] = {}
        k = 0
        for word in words:
            start, at = k, 0
            while at < len(word):
                at += len(pieces[whole[k]])
                k += 1
            learned[word] = self._remember(word, tuple(whole[start:k]))
        return learned

    def _remember(self, word: bytes, ids: IdTuple) -> IdTuple:
        if len(word) <= _LONGEST_CACHED:
            self._cache.put(word, ids)
        return ids

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
        if foreign:
            return self._longest_match(stretch)
        known = self._cache.get(stretch)
        if known is None:
            ids = self.vocab.tokenize(stretch)
            known = self._remember(
                stretch, tuple(ids if self.vocab.join(ids) == stretch else self._longest_match(stretch))
            )
        return list(known)

    def _longest_match(self, data: bytes) -> list[int]:
        # For bytes that no text has, so llama.cpp says nothing of them: of FF FE with tokens for both and one for FE
        # alone, the token of both. A byte without a token is passed over.
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


def _runs(words: list[bytes], known: Sequence[IdTuple | None]) -> Iterable[list[bytes]]:
    """Stretches of neighbouring words that are not known."""
    run: list[bytes] = []
    for word, ids in zip(words, known, strict=True):
        if ids is None:
            run.append(word)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _is_foreign(character: str) -> bool:
    return "\udc80" <= character <= "\udcff"


class WordCache:
    """Words to ids; forgets what was not used for long. A word that is asked for moves to a young generation; the old
    one is dropped whole.

    Safe to use from several threads: look-ups take no lock, and two threads that miss the same word store the same ids.
    """

    def __init__(self, size: int) -> None:
        self._half = max(size // 2, 1)
        self._young: dict[bytes, IdTuple] = {}
        self._old: dict[bytes, IdTuple] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, word: bytes) -> IdTuple | None:
        """The word's ids, which are kept for longer now; None where it is not known."""
        ids = self._young.get(word)
        if ids is None:
            ids = self._old.get(word)
            if ids is not None:
                self.put(word, ids)
        return ids

    def put(self, word: bytes, ids: IdTuple) -> None:
        """Store the word's ids; may drop the old generation."""
        with self._lock:
            self._young[word] = ids
            if len(self._young) > self._half:
                self._old, self._young = self._young, {}

    def clear(self) -> None:
        with self._lock:
            self._young, self._old = {}, {}


class Meter:
    """The cost of translation for one sequence: adds up what its encoders do, and how long it takes, inside `with
    meter:` blocks, until `take`. For one thread, not nested.

    The encoders' counts must be this thread's own (`Encoder.sharing`).
    """

    def __init__(self, *encoders: Encoder) -> None:
        self._encoders = encoders
        self._sum = Crossing()
        self._before = (0, 0, 0.0)

    def __enter__(self) -> Meter:
        self._before = self._now()
        return self

    def __exit__(self, *error: object) -> None:
        # Hits went from 100 to 108 and misses from 5 to 7: ten words were looked up, of which eight were known.
        hits, misses, ended = self._now()
        n_hits, n_misses, began = self._before
        n_known = hits - n_hits
        self._sum += Crossing(n_known + misses - n_misses, n_known, 1e6 * (ended - began))

    def _now(self) -> tuple[int, int, float]:
        return sum(e.hits for e in self._encoders), sum(e.misses for e in self._encoders), perf_counter()

    def take(self) -> Crossing:
        """All since the last call."""
        taken, self._sum = self._sum, Crossing()
        return taken
