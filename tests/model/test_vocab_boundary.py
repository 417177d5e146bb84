"""Cutting at safe boundaries and joining is llama.cpp's tokenization of the whole, on every vocabulary and every
pre-tokenizer at hand.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.vocab_kit import BUNDLED, GENERATING, TEXTS, encoder, vocab
from kit.vocab_makers import ALPHABET, bpe, raw_bpe, rwkv, scored

from uad.llama.vocab import load_vocab
from uad.text.vocab.encode import Encoder

PRE_TOKENIZERS = (  # noqa: SIM905
    "default minicpm5 llama-bpe deepseek-llm deepseek-coder deepseek-v3 spark2_5 youtu falcon mpt starcoder gpt-2 "
    "jais-2 "
    "refact command-r qwen2 qwen35 stablelm2 olmo dbrx smaug-bpe poro-chat chatglm-bpe glm4 viking jais tekken smollm "
    "codeshell bloom gpt3-finnish exaone exaone4 exaone-moe chameleon minerva-7b megrez gpt-4o granite-embed-multi-97m "
    "tiny_aya superbpe trillion granite-docling bailingmoe seed-coder hunyuan hunyuan-dense hy_v4 joyai-llm kimi-k2 "
    "ufakzeka grok-2 afmoe laguna minimax-m2 solar-open mellum2"
).split()
"""Every pre-tokenizer that llama.cpp knows by name, but for those that share another's rules."""

FRAGMENTS = (
    *(
        "def f(x):\n    return x['a'] + 1\n",
        "\tfor (int i=0;i<10;i++){\n",
        "foo_bar.bazQux()",
        "-->",
        "!=",
        "”—“",
        "…",
        "//",
        '"""',
        "};\r\n\r\n",
    ),
    *(
        "The quick brown fox",
        " jumped",
        "don't",
        "we'LL",
        "it's",
        "O'Neill's",
        "naïve café",
        "Größe",
        "Łódź",
        "привет мир",
        "ΑΒΓ δ",
        "İstanbul",
    ),
    *(" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u2003", "\u2028"),
    *("0", "12345678901234567890", "3.14", "1,000", "٣٤", "Ⅻ", "²"),
    *("今天天气很好。", "東京タワー", "カメラ", "ひらがな", "안녕하세요", " 서울", "ABC公司Def", "a好Bc", "。\n", "，"),
    *("ที่ตลาดน้ำ", "नमस्ते", "مرحبا بكم", "שלום", "e\u0301", "\u0301", "Z͑ͫa̴"),
    *("👩‍💻", "🇯🇵🇩🇪", "❤️", "😀😀", "\u200d", "\ufeff", "\ufffd", "\x00", "\x1b"),
    *("<s>", "</s>", "<|endoftext|>", "<|im_start|>user\n", "[INST]", "<0x0A>", "<unk>", "▁"),
)
text = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=9).map("".join)
data = st.lists(st.one_of(st.sampled_from(FRAGMENTS).map(str.encode), st.binary(max_size=4)), max_size=7).map(b"".join)


def check(encoder: Encoder, text: bytes) -> int:
    """Every cut, alone and all together. Returns how many there were."""
    tokenize, join = encoder.vocab.tokenize, encoder.vocab.join
    whole = tokenize(text)
    if join(whole) != text:
        return 0
    cuts = [i for i in range(1, len(text)) if encoder.boundaries.is_cut(text, i)]
    for i in cuts:
        assert tokenize(text[:i]) + tokenize(text[i:]) == whole, (text[:i].decode(), text[i:].decode())
    assert set(encoder.boundaries.cuts(text)) <= set(cuts)
    assert Encoder(encoder.vocab).encode(text) == whole if len(text) < 3 else encoder.encode(text) == whole
    return len(cuts)


@pytest.mark.model
@pytest.mark.parametrize("name", [*GENERATING, *BUNDLED])
def test_real_vocabularies(name: str) -> None:
    real = encoder(name)

    @settings(max_examples=50, deadline=None)
    @given(text)
    def run(text: str) -> None:
        check(real, text.encode())

    run()


@pytest.mark.model
@pytest.mark.parametrize("name", [*GENERATING, *BUNDLED])
def test_boundaries_are_frequent_and_exact_on_real_text(name: str) -> None:
    real = encoder(name)
    for kind, text in TEXTS.items():
        assert real.encode(text) == real.vocab.tokenize(text), kind
        cuts = [0, *real.boundaries.cuts(text), len(text)]
        assert max(b - a for a, b in pairwise(cuts)) < 200, kind
        assert len(text) / len(cuts) < 9, kind


def check_made(path: Path, seed: int) -> None:
    made = Encoder(load_vocab(path))
    rng = random.Random(seed)
    n_cuts = sum(check(made, "".join(rng.choices(ALPHABET, k=rng.randrange(2, 24))).encode()) for _ in range(150))
    assert n_cuts > 20


@pytest.mark.model
@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_with_random_merges(pre: str, tmp_path: Path) -> None:
    for seed in range(2):
        check_made(bpe(tmp_path / "v.gguf", pre, seed, n_merges=25), seed)


@pytest.mark.model
@pytest.mark.parametrize("seed", range(4))
def test_every_other_tokenizer_with_random_tokens(seed: int, tmp_path: Path) -> None:
    for pre in ("gemma4", "sarvam-moe"):
        check_made(raw_bpe(tmp_path / f"{pre}.gguf", "gemma4", pre, seed), seed)
    for model in ("llama", "t5", "plamo2"):
        check_made(scored(tmp_path / f"{model}.gguf", model, seed), seed)
    check_made(rwkv(tmp_path / "rwkv.gguf", seed), seed)


@pytest.mark.model
@pytest.mark.parametrize("name", GENERATING)
def test_last_is_the_last_cut(name: str) -> None:
    boundaries = encoder(name).boundaries
    text = TEXTS["mixed"][2000:4600]
    is_cut = [False] + [boundaries.is_cut(text, i) for i in range(1, len(text))]
    floor, last = 40, 40
    for limit in range(floor, len(text)):
        last = limit if is_cut[limit] and limit > floor else last
        assert boundaries.last(text, limit, floor) == last
    assert boundaries.last(b"", 5) == boundaries.last(b"x", 5) == 0


@pytest.mark.model
@pytest.mark.parametrize("name", [*GENERATING, "bert-bge", *BUNDLED])
def test_any_bytes_go_in_and_come_out(name: str) -> None:
    real = encoder(name)
    known = {piece[0] for piece in real.vocab.by_bytes if len(piece) == 1}

    @settings(max_examples=50, deadline=None)
    @given(data)
    def run(data: bytes) -> None:
        out = real.vocab.join(real.encode(data))
        assert out == data or len(known) < 256
        assert bytes(byte for byte in out if byte in known) == bytes(byte for byte in data if byte in known)
        for cut in real.boundaries.cuts(data):
            assert real.encode(data[:cut]) + real.encode(data[cut:]) == real.encode(data)

    run()


def test_control_tokens_have_no_bytes() -> None:
    for name in BUNDLED:
        table = vocab(name)
        assert all(table.pieces[id_] == b"" for id_ in table.special_ids)
        assert all(piece for id_, piece in enumerate(table.pieces) if not table.is_special(id_))
