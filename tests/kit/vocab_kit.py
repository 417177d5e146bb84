"""Real vocabularies for tests: those that `make vocabs` fetched, and the bundled models'. Tests that need a missing one
skip and say so.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from uad.llama.vocab import load_vocab
from uad.text.vocab.encode import Encoder, WordCache
from uad.text.vocab.table import VocabTable

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import vocabs  # noqa: E402

GENERATING = (
    *(
        "qwen2",
        "qwen35",
        "gpt-neox",
        "gpt-2",
        "llama-bpe",
        "llama-spm",
        "gemma-4",
        "phi-3",
        "deepseek-llm",
        "deepseek-coder",
    ),
    *("command-r", "falcon", "mpt", "starcoder", "refact", "baichuan", "aquila"),
)
"""Vocabularies of models that write text."""

BUNDLED = ("target-chatml", "draft-zephyr", "draft-gemma")
TEXTS = {name: (ROOT / "uad" / "tools" / "bench" / "texts" / f"{name}.txt").read_bytes() for name in ("code", "mixed")}


def path_of(name: str) -> Path:
    return ROOT / "samples" / f"{name}.gguf" if name in BUNDLED else vocabs.folder() / f"ggml-vocab-{name}.gguf"


def fetched(name: str) -> Path:
    """Where a vocabulary is; skips the test where it is not."""
    path = path_of(name)
    if not path.exists():
        pytest.skip(f"vocabulary {name} is not there; make vocabs fetches it")
    return path


@cache
def vocab(name: str) -> VocabTable:
    return load_vocab(fetched(name))


@cache
def exact(name: str) -> VocabTable:
    """With llama.cpp's tokenizer for all text."""
    return load_vocab(fetched(name), quick=False)


@cache
def encoder(name: str) -> Encoder:
    return Encoder(vocab(name))


def fresh_encoder(name: str) -> Encoder:
    """Another one that remembers no word; it is made at once, whatever the size of the vocabulary."""
    one = encoder(name).sharing()
    one._cache = WordCache(1 << 16)
    return one
