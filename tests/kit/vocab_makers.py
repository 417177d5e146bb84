"""Writes vocabulary-only GGUF files of every tokenizer type that llama.cpp has, with few and odd tokens: for claims
about all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
ALPHABET = "aZs1 \n\t\r'._(éяの好中한́✓。"
"""Letters of both cases, a digit, white space, an apostrophe, marks, and one character each of several scripts."""


def byte_to_unicode() -> dict[int, str]:
    """GPT-2's printable stand-ins for bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def write(
    path: Path, model: str, tokens: Sequence[tuple[str, int, float]], merges: Sequence[str] = (), pre: str = ""
) -> Path:
    """tokens are (text, type, score); ids are positions."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([text.encode() for text, _, _ in tokens])
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_token_types([kind for _, kind, _ in tokens])
    if merges:
        writer.add_token_merges(list(merges))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(0)
    if model == "t5":
        writer.add_remove_extra_whitespaces(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


def bpe(path: Path, pre: str, seed: int, n_merges: int = 40, extra: Sequence[tuple[str, int]] = ()) -> Path:
    """Byte-level BPE with random merges of the alphabet's bytes, any class with any other."""
    rng = random.Random(f"bpe {seed}")
    table = byte_to_unicode()
    words = ["".join(table[b] for b in character.encode()) for character in ALPHABET]
    symbols = [table[b] for b in range(256)]
    merges: list[str] = []
    for word in words:
        symbols += _merge_up(word, merges)
    pool = list(words)
    for _ in range(n_merges):
        left, right = rng.choice(pool), rng.choice(pool)
        if left + right not in symbols:
            symbols.append(left + right)
            merges.append(f"{left} {right}")
            pool.append(left + right)
    tokens = (
        [("<s>", CONTROL, 0.0)]
        + [(text, NORMAL, 0.0) for text in symbols]
        + [(text, kind, 0.0) for text, kind in extra]
    )
    return write(path, "gpt2", tokens, merges, pre)


def _merge_up(word: str, merges: list[str]) -> list[str]:
    out = []
    for n in range(2, len(word) + 1):
        out.append(word[:n])
        merges.append(f"{word[: n - 1]} {word[n - 1]}")
    return out


def raw_bpe(path: Path, model: str, pre: str, seed: int, n_merges: int = 40) -> Path:
    """BPE over characters with byte tokens beside them (gemma-4 and sarvam-moe)."""
    rng = random.Random(f"raw {seed}")
    pool = [character.replace(" ", "▁") for character in ALPHABET]
    symbols, merges = list(pool), []
    for _ in range(n_merges):
        left, right = rng.choice(pool), rng.choice(pool)
        if left + right not in symbols and "\n" not in left + right:
            symbols.append(left + right)
            merges.append(f"{left} {right}")
            pool.append(left + right)
    tokens = [("<s>", CONTROL, 0.0), *_byte_tokens()] + [(text, NORMAL, 0.0) for text in symbols]
    return write(path, model, tokens, merges, pre)


def scored(path: Path, model: str, seed: int, n_words: int = 60) -> Path:
    """Scored pieces: SentencePiece (llama), unigram (t5), PLaMo-2; with tokens for all bytes."""
    rng = random.Random(f"{model} {seed}")
    pool = [character.replace(" ", "▁") if model != "plamo2" else character for character in ALPHABET]
    words = list(dict.fromkeys(pool + ["".join(rng.choices(pool, k=rng.choice((2, 2, 3, 4)))) for _ in range(n_words)]))
    tokens = [("<unk>", UNKNOWN, 0.0), *_byte_tokens()] + [(word, NORMAL, -rng.random() * 9) for word in words]
    return write(path, model, tokens)


def rwkv(path: Path, seed: int, n_words: int = 60) -> Path:
    """RWKV's greedy trie over bytes."""
    rng = random.Random(f"rwkv {seed}")
    words = [bytes([byte]) for byte in range(256)]
    words += [character.encode() for character in ALPHABET if len(character.encode()) > 1]
    words += ["".join(rng.choices(ALPHABET, k=rng.choice((2, 2, 3, 4)))).encode() for _ in range(n_words)]
    tokens = [("<s>", CONTROL, 0.0)] + [(_escape(word), NORMAL, 0.0) for word in dict.fromkeys(words)]
    return write(path, "rwkv", tokens)


def _escape(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def _byte_tokens() -> list[tuple[str, int, float]]:
    return [(f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)]
