"""Long text is tokenized in pieces, which changes no id; it stops when nobody waits for it, and where there is no place
to cut.
"""

from __future__ import annotations

import random

import pytest
from kit.vocab_kit import encoder

from uad.base.checkpoint import DroppedError, wanted_while
from uad.base.errors import InvalidRequestError
from uad.text import prompts
from uad.text.prompts import LONGEST, encode_in_pieces
from uad.text.vocab.table import VocabTable

WORDS = ["word", " ", "\n", "x" * 99, "'s", "東京", " 42", "é", ";;", "\t", "\U0001f642"]


def test_pieces_change_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "PIECE_BYTES", 16)
    whole, draw = encoder("target-chatml"), random.Random(0)
    for _ in range(200):
        data = "".join(draw.choices(WORDS, k=draw.randrange(60))).encode()
        assert encode_in_pieces(whole, data) == whole.encode(data)


def test_text_without_a_place_to_cut_has_a_bound() -> None:
    whole = encoder("target-chatml")
    assert whole.vocab.join(encode_in_pieces(whole, b"x" * (LONGEST - 1))) == b"x" * (LONGEST - 1)
    with pytest.raises(InvalidRequestError, match=str(LONGEST)):
        encode_in_pieces(whole, b"a word and " + b"x" * (2 * LONGEST + (1 << 17)))


def test_nothing_is_tokenized_for_a_client_that_left() -> None:
    with wanted_while(lambda: False), pytest.raises(DroppedError):
        encode_in_pieces(encoder("target-chatml"), b"word " * 100_000)


def test_many_ids_are_joined_to_the_same_bytes() -> None:
    vocab: VocabTable = encoder("target-chatml").vocab
    ids = [random.Random(0).randrange(len(vocab.pieces)) for _ in range(9000)]
    assert vocab.join(ids) == b"".join(vocab.pieces[id_] for id_ in ids)
