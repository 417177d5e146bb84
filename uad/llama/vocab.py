"""A vocabulary without its weights: what tests and `lab/translate.py` need of a GGUF file. Must not know contexts."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import llama_cpp.llama_cpp as lib

from uad.backend import native
from uad.errors import ModelLoadError
from uad.llama.model import PRE, made_quick, metadata, read_vocab, vocab_overrides
from uad.vocab.table import VocabTable


def load_vocab(path: Path, pre: str | None = None, quick: bool = True) -> VocabTable:
    """The vocabulary of a GGUF file, with or without weights in it; freed with the last reference to its `tokenize`.

    `pre` replaces the file's name of a pre-tokenizer. Without `quick` all text is llama.cpp's to tokenize. Raises
    ModelLoadError.
    """
    log = native.start()
    log.clear()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    overrides = vocab_overrides(pre)
    params.kv_overrides = overrides
    handle = lib.llama_model_load_from_file(os.fsencode(path), params) if path.is_file() else None
    if not handle:
        raise ModelLoadError(f"{path}: no vocabulary can be loaded from it ({log.reason() or 'no such file'})")

    def meta(key: str) -> str | None:
        return pre if pre and key == PRE else metadata(handle, key)

    try:
        vocab = lib.llama_model_get_vocab(handle)
        table = read_vocab(vocab, meta, path.name)
        if quick:
            table = made_quick(table, vocab, meta, path)
    except BaseException:
        lib.llama_model_free(handle)
        raise
    weakref.finalize(table.tokenize, lib.llama_model_free, handle)
    return table
