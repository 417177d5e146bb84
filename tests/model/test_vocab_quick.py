"""Short ASCII text gets llama.cpp's ids from the tokenizers library, on every vocabulary and pre-tokenizer that goes
this way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.vocab_kit import TEXTS, exact, path_of, vocab
from kit.vocab_makers import CONTROL, NORMAL, USER_DEFINED, bpe, byte_to_unicode, write

from uad.base.gguf import read_texts
from uad.llama.vocab import load_vocab
from uad.text.vocab.quick import KNOWN, quick_tokenize
from uad.text.vocab.table import Tokenize

QUICK = ("aquila", "gpt-neox", "falcon", "starcoder", "refact", "command-r", "deepseek-llm", "deepseek-coder")
FRAGMENTS = (
    "    ",
    "\n",
    "\r\n",
    "\t",
    "def f(x):",
    "don't",
    "we'LL",
    "'s",
    "12345",
    "3.14",
    "ABCdef",
    "getHTTPUrl",
    "!==",
    "/*",
    "`",
    "~",
    "^",
    "$x",
)
CODE = TEXTS["code"].decode().encode("ascii", "ignore")
text = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS), st.text(st.characters(max_codepoint=127), max_size=4)), max_size=9
).map("".join)
"""Control characters, too."""


def is_quick(tokenize: Tokenize) -> bool:
    return tokenize.__module__ == "uad.text.vocab.quick"


@pytest.mark.parametrize("pre", ["starcoder", "gpt-4o"])
def test_words_are_parted_from_what_is_contracted_in_either_case(pre: str, tmp_path: Path) -> None:
    """Each merges with the letters on both sides, where nothing is cut before or after it."""
    endings = [case for one in ("s", "t", "re", "ve", "m", "ll", "d") for case in (one, one.upper(), one.title())]
    words = [f"{before}'{ending}a" for ending in endings for before in ("", "a")]
    merges = list(dict.fromkeys(f"{word[:n]} {word[n]}" for word in words for n in range(1, len(word))))
    symbols = dict.fromkeys([*byte_to_unicode().values(), *(merge.replace(" ", "") for merge in merges)])
    path = write(tmp_path / "v.gguf", "gpt2", [(symbol, NORMAL, 0.0) for symbol in symbols], merges, pre)
    quick, slow = load_vocab(path).tokenize, load_vocab(path, quick=False).tokenize
    assert is_quick(quick)
    for word in words:
        text = f"{word}b {word}.1{word}"
        assert quick(text.encode()) == slow(text.encode()), text


@pytest.mark.parametrize(("pre", "n_ids"), [("tekken", 1), ("starcoder", 2)])
def test_a_token_that_no_merges_make_is_taken_where_llama_cpp_takes_it(pre: str, n_ids: int, tmp_path: Path) -> None:
    tokens = [(symbol, NORMAL, 0.0) for symbol in (*byte_to_unicode().values(), "ab", "abc")]
    path = write(tmp_path / "v.gguf", "gpt2", tokens, ["a b"], pre)
    quick, slow = load_vocab(path).tokenize, load_vocab(path, quick=False).tokenize
    assert is_quick(quick)
    assert quick(b"abc") == slow(b"abc")
    assert len(slow(b"abc")) == n_ids


@pytest.mark.model
@pytest.mark.parametrize("name", QUICK)
def test_real_vocabularies(name: str) -> None:
    quick, slow = vocab(name).tokenize, exact(name).tokenize
    assert is_quick(quick)
    assert not is_quick(slow)
    rng = random.Random(name)
    for _ in range(300):
        at = rng.randrange(len(CODE))
        piece = CODE[at : at + rng.randrange(1, 80)]
        assert quick(piece) == slow(piece), piece

    @settings(max_examples=150, deadline=None)
    @given(text)
    def run(text: str) -> None:
        assert quick(text.encode()) == slow(text.encode())

    run()


@pytest.mark.model
@pytest.mark.parametrize("pre", ["deepseek-v3", "tekken", "gpt-4o"])
def test_pre_tokenizers_without_a_vocabulary_at_hand_with_another_one_s_merges(pre: str) -> None:
    vocab("gpt-2")
    quick, slow = (load_vocab(path_of("gpt-2"), pre, quick=way).tokenize for way in (True, False))
    assert is_quick(quick)
    rng = random.Random(pre)
    for _ in range(300):
        at = rng.randrange(len(CODE))
        piece = CODE[at : at + rng.randrange(1, 80)]
        assert quick(piece) == slow(piece), piece


@pytest.mark.model
@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "gpt-2", "llama-spm", "gemma-4"])
def test_tokenizers_without_a_price_per_call_are_left_alone(name: str) -> None:
    assert not is_quick(vocab(name).tokenize)


@pytest.mark.model
@pytest.mark.parametrize("pre", KNOWN)
def test_every_pre_tokenizer_with_random_merges(pre: str, tmp_path: Path) -> None:
    """Any class of bytes merges with any other, so that a cut in the wrong place shows."""
    for seed in (KNOWN.index(pre) % 2, 2):
        path = bpe(
            tmp_path / "v.gguf",
            pre,
            seed,
            n_merges=60,
            extra=[("s1", USER_DEFINED), ("  ", USER_DEFINED)] if seed == 2 else (),
        )
        quick, slow = load_vocab(path).tokenize, load_vocab(path, quick=False).tokenize
        assert is_quick(quick)
        rng = random.Random(seed)
        for _ in range(120):
            data = "".join(rng.choices("aaZZss11  \n\n\t\r'._(", k=rng.randrange(1, 24))).encode()
            assert quick(data) == slow(data), data


def test_text_that_is_long_or_not_ascii_is_llama_cpps(tmp_path: Path) -> None:
    path = bpe(tmp_path / "v.gguf", "starcoder", 1)
    table = load_vocab(path, quick=False)
    lists = read_texts(path, ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"))
    asked: list[bytes] = []

    def exact(data: bytes) -> list[int]:
        asked.append(data)
        return table.tokenize(data)

    quick = quick_tokenize(type(table)(table.name, table.pieces, {}, exact), "starcoder", *lists.values(), [])
    assert quick is not None
    asked.clear()
    assert quick(b"aZ 1") == table.tokenize(b"aZ 1")
    assert asked == []
    for data in ("aé".encode(), b"a" * 513):
        assert quick(data) == table.tokenize(data)
    assert len(asked) == 2


def test_who_disagrees_is_not_used(tmp_path: Path) -> None:
    merges = ["t h", "th e", "1 2", "\u010a \u0120"]
    tokens = [*byte_to_unicode().values(), *(merge.replace(" ", "") for merge in merges)]
    table = load_vocab(
        write(tmp_path / "v.gguf", "gpt2", [(token, NORMAL, 0.0) for token in tokens], merges, "starcoder"), quick=False
    )
    assert quick_tokenize(table, "starcoder", tokens, merges, []) is not None
    assert quick_tokenize(table, "starcoder", tokens, merges[:1], []) is None, "a merge is missing"
    assert quick_tokenize(table, "deepseek-v3", tokens, merges, []) is None, "another pre-tokenizer"
    assert quick_tokenize(table, "gpt-2", tokens, merges, []) is None, "not known here"
    assert quick_tokenize(table, "starcoder", tokens, [], []) is None
    assert quick_tokenize(table, "starcoder", tokens, [*merges, "nowhere else"], []) is None, (
        "a merge that makes no token"
    )


def made(
    path: Path, names: Sequence[tuple[str, int]], model: str = "gpt2", pre: str = "starcoder"
) -> tuple[Tokenize, Tokenize]:
    """Both ways of a vocabulary of bytes, more words than are probed, and these tokens."""
    words = [f"t{i:03}" for i in range(400)]
    merges = [pair for word in words for pair in (f"t {word[1]}", f"{word[:2]} {word[2]}", f"{word[:3]} {word[3]}")]
    symbols = dict.fromkeys([*byte_to_unicode().values(), *(merge.replace(" ", "") for merge in merges)])
    tokens = [(symbol, NORMAL, 0.0) for symbol in symbols] + [(name, kind, 0.0) for name, kind in names]
    write(path, model, tokens, list(dict.fromkeys(merges)), pre)
    return load_vocab(path).tokenize, load_vocab(path, quick=False).tokenize


RUNS = [(" " * n, USER_DEFINED) for n in range(2, 32)]


def test_what_text_is_searched_for_is_llama_cpps_word_not_the_file_s(tmp_path: Path) -> None:
    """llama.cpp makes control tokens of some that the file calls user-defined, and the other way round for gpt-oss."""
    names = [
        *RUNS,
        ("<|im_end|>", USER_DEFINED),
        ("<|endoftext|>", USER_DEFINED),
        ("<|fim_prefix|>", USER_DEFINED),
        ("</s>", USER_DEFINED),
    ]
    oss = ("<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>", "<|end|>")
    for path, more in ((tmp_path / "a.gguf", []), (tmp_path / "b.gguf", [(name, CONTROL) for name in oss])):
        quick, slow = made(path, [*names, *more])
        assert is_quick(quick)
        for name, _ in [*names, *more]:
            for text in (name, f"a{name}a", f" {name}\nuser", f"{name}{name}"):
                assert quick(text.encode()) == slow(text.encode()), text


def test_tokens_that_can_overlap_are_llama_cpps(tmp_path: Path) -> None:
    for overlapping in (
        [("<a>b", USER_DEFINED), ("b</long>", USER_DEFINED)],
        [("  ", USER_DEFINED), (" x ", USER_DEFINED)],
    ):
        quick, slow = made(tmp_path / "v.gguf", overlapping)
        assert not is_quick(quick)
        assert quick(b"<a>b</long>  x  ") == slow(b"<a>b</long>  x  ")
    assert is_quick(made(tmp_path / "v.gguf", [*RUNS, ("[PAD1]", USER_DEFINED), ("[PAD12]", USER_DEFINED)])[0])


def test_other_kinds_of_bpe_are_llama_cpps(tmp_path: Path) -> None:
    assert is_quick(made(tmp_path / "v.gguf", [])[0])
    assert not is_quick(
        made(tmp_path / "v.gguf", [("<dna>", NORMAL), ("<oov>", NORMAL), ("</dna>", NORMAL)], "hybriddna")[0]
    )


def test_bytes_without_a_token_are_llama_cpps(tmp_path: Path) -> None:
    path = bpe(tmp_path / "v.gguf", "starcoder", 1)
    lists = read_texts(path, ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"))
    tokens, merges = lists["tokenizer.ggml.tokens"], lists["tokenizer.ggml.merges"]
    fewer = write(
        tmp_path / "w.gguf",
        "gpt2",
        [(token, NORMAL, 0.0) for token in tokens if token not in ("B", "Ā")],
        merges,
        "starcoder",
    )
    quick, slow = load_vocab(fewer).tokenize, load_vocab(fewer, quick=False).tokenize
    assert is_quick(quick)
    for data in (b"aBa", b"a\0Z", b"B", b"aZ"):
        assert quick(data) == slow(data)


@pytest.mark.model
def test_lists_are_those_of_the_gguf_package() -> None:
    path = path_of("target-chatml")
    keys = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
    fields = gguf.GGUFReader(path).fields
    assert read_texts(path, (*keys, "tokenizer.ggml.token_type")) == {
        key: fields[key].contents() for key in keys if key in fields
    }


def test_other_files_have_no_lists(tmp_path: Path) -> None:
    path = write(tmp_path / "v.gguf", "gpt2", [("a", NORMAL, 0.0)])
    assert read_texts(path, ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")) == {"tokenizer.ggml.tokens": ["a"]}
    whole = path.read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole) // 2, 7)] + [
        whole[:n] + b"\xff" * 8 + whole[n + 8 :] for n in range(0, 120, 3)
    ]
    for bad in (b"GGML" + bytes(60), whole[:4] + bytes([9, 0, 0, 0]) + bytes(60), *damaged):
        (tmp_path / "other").write_bytes(bad)
        assert read_texts(tmp_path / "other", ("tokenizer.ggml.tokens", "missing")) in (
            {},
            {"tokenizer.ggml.tokens": ["a"]},
        )
    assert read_texts(tmp_path / "nowhere", ("tokenizer.ggml.tokens",)) == {}
