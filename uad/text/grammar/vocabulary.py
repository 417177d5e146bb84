"""The target's vocabulary as llguidance sees it: the bytes of each id, and which ids end answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llguidance

from uad.text.vocab.table import VocabTable

_SPECIAL = b"\xff"  # llguidance's mark: what begins with this byte, which no text has, is no text
_EVERY = 61  # ids between two that are compared at load
_WINDOW, _UNSURE = 256, 8  # bytes, ids


class GrammarVocabulary:
    """Made once for a target. encode: bytes to ids, as the target's text is cut.

    reason: why answers cannot be constrained with it; empty where they can.
    """

    def __init__(self, table: VocabTable, encode: Callable[[bytes], list[int]]) -> None:
        self.table = table
        self.encode = encode
        self.eog = table.eog
        self.reason = "the vocabulary has no token that ends an answer"
        if self.eog:
            tokens = [_token(table, id_) for id_ in range(table.n_vocab)]
            wrapper = llguidance.TokenizerWrapper(_Tokenizer(tokens, min(self.eog), encode))
            try:
                self.native = llguidance.LLTokenizer(wrapper, eos_token=sorted(self.eog))
                self.reason = _difference(self.native, tokens)
            except ValueError as error:
                self.reason = f"llguidance cannot read the vocabulary ({error})"


def _difference(native: llguidance.LLTokenizer, tokens: Sequence[bytes]) -> str:
    """Why masks would not fit the target's rows, or ids mean other bytes; empty where all is well. Looks at some of the
    ids.
    """
    if native.vocab_size != len(tokens):
        return f"llguidance counts {native.vocab_size} tokens, the model has {len(tokens)}"
    wrong = (
        id_
        for id_ in range(0, len(tokens), _EVERY)
        if tokens[id_][:1] != _SPECIAL and native.decode_bytes([id_]) != tokens[id_]
    )
    id_ = next(wrong, None)
    return "" if id_ is None else f"llguidance reads other bytes than the model for token {id_}"


class _Tokenizer:
    """A tokenizer as `TokenizerWrapper` wants it."""

    bos_token_id = None
    special_token_ids = ()

    def __init__(self, tokens: Sequence[bytes], eos: int, encode: Callable[[bytes], list[int]]) -> None:
        self.tokens = tokens
        self.eos_token_id = eos
        self._encode = encode

    def __call__(self, text: bytes) -> list[int]:
        """The ids of forced text; of a long one only the first, without those that the cut may have changed. It is
        asked again after each of them.
        """
        # llguidance asks this after every id of forced text. All of 64 KiB each time would be work with its square; the
        # last ids of a window may be cut otherwise with more text in view, so they are left for the next time.
        if len(text) <= _WINDOW:
            return self._encode(text)
        return self._encode(text[:_WINDOW])[:-_UNSURE]


def _token(table: VocabTable, id_: int) -> bytes:
    """The bytes of an id. One without bytes is no text, and so is one that ends answers, whatever it shows."""
    text = table.texts[id_]
    if id_ in table.eog or not text:
        return _SPECIAL + (table.special_names.get(id_) or f"<|{id_}|>").encode()
    return text
