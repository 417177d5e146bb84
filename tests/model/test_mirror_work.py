"""What a round of drafting costs follows the new bytes, in text without any safe boundary, too. Work is counted, not
timed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.toys import DRAFT_VOCAB
from kit.vocab_kit import BUNDLED, vocab

from uad.drafts.model.mirror import Mirror
from uad.text.vocab.encode import Encoder
from uad.text.vocab.table import VocabTable

RUNS = (b"x", b"=", b"0", "\u00e9".encode(), b"ab", b"\n")
PER_ROUND = 12


class Counting(Encoder):
    """Adds up the bytes that it encodes, and those in which boundaries are looked for."""

    def __init__(self, vocab: VocabTable) -> None:
        super().__init__(vocab)
        self.n_encoded = self.n_searched = 0
        last = self.boundaries.last

        def counted(data: bytes | bytearray, limit: int, floor: int = 0) -> int:
            found = last(data, limit, floor)
            self.n_searched += limit - found
            return found

        self.boundaries.last = counted  # type: ignore[method-assign]

    def encode(self, data: bytes) -> list[int]:
        self.n_encoded += len(data)
        return super().encode(data)


def work(encoder: Counting, run: bytes, n: int) -> tuple[int, int]:
    """Bytes encoded and bytes searched in ten rounds behind n bytes of the run, each with a guess that is wrong."""
    mirror = Mirror(encoder)
    mirror.extend([run * (n // len(run))])
    mirror.sync()
    encoder.n_encoded = encoder.n_searched = 0
    for at in range(10):
        mirror.guess(encoder.vocab.by_bytes[b"q"], 0.5)
        mirror.extend([run * (PER_ROUND // len(run))], run if at % 2 else b"")
        mirror.sync()
    return encoder.n_encoded, encoder.n_searched


def vocabularies() -> Iterator[VocabTable]:
    yield DRAFT_VOCAB
    yield from (vocab(name) for name in BUNDLED)


@pytest.mark.parametrize("run", RUNS)
def test_a_round_behind_8000_equal_characters_costs_what_it_costs_behind_1000(run: bytes) -> None:
    for table in vocabularies():
        encoder = Counting(table)
        short, long = work(encoder, run, 1_000), work(encoder, run, 8_000)
        assert long[0] <= 1.1 * short[0], (table.name, short, long)
        assert long[1] <= 1.1 * short[1], (table.name, short, long)


@pytest.mark.parametrize("run", RUNS)
def test_text_that_is_covered_bit_by_bit_still_tells_all_bytes(run: bytes) -> None:
    for table in vocabularies():
        mirror = Mirror(Encoder(table))
        for n in (1, 700, 3, 1_300, 40, 2_000, 5):
            mirror.extend([run * n], run[:1])
            mirror.sync()
            assert table.join(mirror.ids[: len(mirror.ids)]) == bytes(mirror.data) + mirror.tentative


def test_where_safe_boundaries_are_in_reach_ids_are_those_of_the_whole() -> None:
    for table in vocabularies():
        encoder = Encoder(table)
        mirror = Mirror(encoder)
        for word in (b"The quick", b" brown fo", b"x jumps. A", b"nd the la", b"zy dog; then it rests"):
            mirror.extend([word])
            mirror.sync()
        assert mirror.ids == encoder.encode(bytes(mirror.data))
