"""The encoder's memory: bounded, counted, shared by threads; and what it does with bytes that a tokenizer would
lose.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.toys import toy_vocab
from kit.vocab_kit import GENERATING, TEXTS, encoder, fresh_encoder, vocab

from uad.text.vocab.edge import Ranking
from uad.text.vocab.encode import Encoder, WordCache
from uad.text.vocab.table import VocabTable

SEAMS = [
    part.encode()
    for part in (
        " q",
        "q ",
        " (",
        "\n",
        "  ",
        "x\n",
        " zebra",
        "(okapi",
        "1",
        " 42",
        "'s",
        "é",
        " 東",
        "\t{",
        ");\n\t}",
    )
]


def test_the_memory_is_bounded_and_keeps_what_is_used() -> None:
    cache = WordCache(100)
    cache.put(b"often", (1,))
    for i in range(10_000):
        cache.put(b"%d" % i, (i,))
        assert cache.get(b"often") == (1,)
        assert len(cache) <= 101
    assert cache.get(b"3") is None
    assert cache.get(b"9999") == (9999,)
    cache.clear()
    assert len(cache) == 0


def test_hits_and_misses_count_words() -> None:
    fresh = Encoder(vocab("target-chatml"))
    fresh.encode(b"one two three")
    assert (fresh.hits, fresh.misses) == (0, 3)
    fresh.encode(b"one two four")
    assert (fresh.hits, fresh.misses) == (2, 4)
    fresh.forget()
    fresh.encode(b"one")
    assert (fresh.hits, fresh.misses) == (2, 5)


def counting_encoder() -> tuple[Encoder, VocabTable, list[bytes]]:
    """A fresh encoder of a bundled vocabulary, that vocabulary, and a list that grows by what llama.cpp is asked."""
    calls: list[bytes] = []
    table = vocab("target-chatml")

    def tokenize(data: bytes) -> list[int]:
        calls.append(data)
        return table.tokenize(data)

    return Encoder(replace(table, tokenize=tokenize)), table, calls


def test_words_that_follow_each_other_cost_one_call() -> None:
    fresh, table, calls = counting_encoder()
    text = TEXTS["code"]
    assert fresh.encode(text) == table.tokenize(text)
    assert calls == [text]
    assert fresh.encode(text) == table.tokenize(text)
    assert len(calls) == 1
    texts = [b" zebra", b" quagga(", b" gnu\n", b"x.okapi"]
    assert fresh.encode_all(texts) == [table.tokenize(one) for one in texts]
    assert len(calls) == 3  # nothing may follow white space: " gnu\n" ends a call
    assert fresh.encode(b" zebra") == table.tokenize(b" zebra")
    assert fresh.encode(b" quagga") == table.tokenize(b" quagga")
    assert len(calls) == 3


def test_words_between_known_ones_share_a_call() -> None:
    fresh, table, calls = counting_encoder()
    fresh.encode(b"a known word")
    text = b"a zebra known quagga word okapi"
    assert fresh.encode(text) == table.tokenize(text)
    assert len(calls) == 2
    fresh.encode_all([b" (\xf0\x9f", b" (\xf0\x9f\x91", b" (\xf0\x9f\x92"])
    assert calls[2:] == [b" ("]  # text before bytes that are none is remembered too


@pytest.mark.model
@pytest.mark.parametrize("name", GENERATING)
def test_many_at_once_are_the_same_as_one_by_one(name: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(
            st.one_of(st.binary(max_size=12), st.text(max_size=12).map(str.encode), st.sampled_from(SEAMS)), max_size=8
        ),
        st.randoms(),
    )
    def run(texts: list[bytes], rng: random.Random) -> None:
        together, alone = fresh_encoder(name), fresh_encoder(name)
        together.encode(b"".join(rng.sample(texts, len(texts) // 2)))
        assert together.encode_all(texts) == [alone.encode(text) for text in texts]
        joined = b"".join(texts)
        assert together.encode(joined) == fresh_encoder(name).encode(joined)

    run()


def test_threads_share_one_encoder() -> None:
    table = vocab("target-chatml")
    shared = Encoder(table, cache_size=64)  # so small that generations change all the time
    lines = [line for text in TEXTS.values() for line in text.splitlines(keepends=True)]
    expected = {line: table.tokenize(line) for line in lines}

    def work(seed: int) -> bool:
        rng = random.Random(seed)
        return all(shared.encode(line) == expected[line] for line in rng.choices(lines, k=400))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert shared.hits > 0


@pytest.mark.model
def test_very_long_words_are_not_remembered() -> None:
    fresh = Encoder(vocab("llama-bpe"))
    word = b"x" * 5000
    assert fresh.vocab.join(fresh.encode(word)) == word
    fresh.encode(word)
    assert fresh.hits == 0


@pytest.mark.model
def test_a_lone_word_joiner_of_sentencepiece_is_not_a_space() -> None:
    spm = encoder("llama-spm")
    text = "a▁b ▁".encode()
    assert spm.vocab.join(spm.vocab.tokenize(text)) != text
    assert spm.vocab.join(spm.encode(text)) == text


def test_bytes_without_a_token_are_left_out() -> None:
    full = toy_vocab("full", "ab|abc", ("<e>",), ("<e>",))
    pieces = tuple(b"?" if piece == b"z" else piece for piece in full.pieces)
    assert Encoder(replace(full, pieces=pieces, tokenize=lambda data: [])).encode(b"abzabc") == [
        full.by_bytes[b"ab"],
        full.by_bytes[b"abc"],
    ]


@pytest.mark.model
def test_ranks_are_plausible() -> None:
    for name in ("qwen2", "llama-spm", "gemma-4"):
        weights, ids = Ranking(vocab(name)).weights, vocab(name).by_bytes
        assert weights[ids[b" the"]] > 2 * weights[ids[b" interest"]], name
        assert weights[ids[b"("]] > 2 * weights[ids[b" interest"]], name
        longer = dict(Ranking(vocab(name)).going_on(b" interest", 8))
        assert b"ing" in longer
        assert len(longer) <= 9
