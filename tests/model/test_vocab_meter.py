"""What is counted as translation: words of one sequence, on one thread, whoever else uses the same memory."""

from __future__ import annotations

from kit.vocab_kit import encoder

from uad.text.vocab.encode import Encoder, Meter


def test_words_and_time_inside_and_nothing_outside() -> None:
    ours = Encoder(encoder("target-chatml").vocab)
    meter = Meter(ours)
    ours.encode(b"one two three")
    with meter:
        ours.encode(b"one two four five")
    ours.encode(b"six seven")
    first = meter.take()
    assert (first.n_words, first.n_known, first.hit_rate) == (4, 2, 0.5)
    assert 0 < first.us < 1e5
    assert meter.take().n_words == 0
    with meter:
        ours.encode(b"one two")
    with meter:
        ours.encode(b"seven")
    second = meter.take()
    assert (second.n_words, second.n_known) == (3, 2)  # " seven" was seen, "seven" was not


def test_encoders_that_share_a_memory_count_apart() -> None:
    ours = Encoder(encoder("target-chatml").vocab)
    theirs = ours.sharing()
    ours.encode(b"one two three")
    assert (theirs.hits, theirs.misses) == (0, 0)
    theirs.encode(b"one two three")
    assert (theirs.hits, theirs.misses) == (3, 0)
    assert (ours.hits, ours.misses) == (0, 3)
