"""The target's vocabulary as llguidance sees it: the bytes of each id, and which ids end answers."""

from __future__ import annotations

from collections.abc import Callable

import llguidance

from uad.errors import ModelLoadError
from uad.vocab.table import VocabTable

_SPECIAL = b"\xff"  # llguidance's mark: what begins with this byte, which no text has, is no text
_EVERY = 61  # ids between two that are compared at load
_WINDOW, _UNSURE = 256, 8  # bytes, ids


class Vocabulary:
    """Made once for a target. encode: bytes to ids, as the target's text is cut.

    Raises ModelLoadError where llguidance reads the vocabulary otherwise than the model.
    """

    def __init__(self, table: VocabTable, encode: Callable[[bytes], list[int]]) -> None:
        self.table = table
        self.encode = encode
        self.eog = table.eog
        self.tokens = tuple(_token(table, id_) for id_ in range(table.n_vocab))
        if self.eog:
            wrapper = llguidance.TokenizerWrapper(_Tokenizer(self.tokens, min(self.eog), encode))
            self.native = llguidance.LLTokenizer(wrapper, eos_token=sorted(self.eog))
            self._check()

    @property
    def can_constrain(self) -> bool:
        """Whether answers have an end: a vocabulary without one cannot be constrained."""
        return bool(self.eog)

    def _check(self) -> None:
        """Whether masks fit the target's rows, and ids mean the same bytes."""
        n, tokens = self.table.n_vocab, self.tokens
        if self.native.vocab_size != n:
            raise ModelLoadError(f"{self.table.name}: llguidance counts {self.native.vocab_size} tokens, the model has {n}")
        for id_ in range(0, n, _EVERY):
            if tokens[id_][:1] != _SPECIAL and self.native.decode_bytes([id_]) != tokens[id_]:
                raise ModelLoadError(f"{self.table.name}: llguidance reads other bytes than the model for token {id_}")


class _Tokenizer:
    """What `TokenizerWrapper` wants of a tokenizer."""

    bos_token_id = None
    special_token_ids = ()

    def __init__(self, tokens: tuple[bytes, ...], eos: int, encode: Callable[[bytes], list[int]]) -> None:
        self.tokens = tokens
        self.eos_token_id = eos
        self._encode = encode

    def __call__(self, text: bytes) -> list[int]:
        """The ids of forced text; of a long one only the first, without those that the cut may have changed. It is asked again
        behind each of them."""
        if len(text) <= _WINDOW:
            return self._encode(text)
        return self._encode(text[:_WINDOW])[:-_UNSURE]


def _token(table: VocabTable, id_: int) -> bytes:
    """The bytes of an id. One that ends answers is no text, whatever it shows: text must not end an answer."""
    text = table.texts[id_]
    if id_ in table.eog or (not text and table.is_special(id_)):
        return _SPECIAL + (table.special_names.get(id_) or f"<|{id_}|>").encode()
    return text
