"""A vocabulary without its weights: what tests and `uad bench translate` need of a GGUF file. Must not know contexts."""

from __future__ import annotations

import ctypes
import os
import weakref
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.errors import ModelLoadError
from uad.llama import native
from uad.llama.model import PRE, made_quick, read_vocab
from uad.vocab.table import VocabTable


def load_vocab(path: Path, pre: str | None = None, quick: bool = True) -> VocabTable:
    """The vocabulary of a GGUF file, with or without weights in it; freed with the last reference to its `tokenize`.

    `pre` replaces the file's name of a pre-tokenizer. Without `quick` all text is llama.cpp's to tokenize. Raises ModelLoadError.
    """
    log = native.start()
    log.clear()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    overrides = _overrides(pre)
    params.kv_overrides = overrides
    handle = lib.llama_model_load_from_file(os.fsencode(path), params) if path.is_file() else None
    if not handle:
        raise ModelLoadError(f"{path}: no vocabulary can be loaded from it ({log.reason() or 'no such file'})")

    def meta(key: str) -> str | None:
        buffer = ctypes.create_string_buffer(4096)
        n = int(lib.llama_model_meta_val_str(handle, key.encode(), buffer, len(buffer)))
        return buffer.value.decode(errors="replace") if n >= 0 else None

    try:
        vocab = lib.llama_model_get_vocab(handle)
        table = read_vocab(vocab, meta, path.name)
        if quick:
            table = made_quick(table, vocab, lambda key: pre if pre and key == PRE else meta(key), path)
    except BaseException:
        lib.llama_model_free(handle)
        raise
    weakref.finalize(table.tokenize, lib.llama_model_free, handle)
    return table


def _overrides(pre: str | None) -> Any:
    overrides: Any = (lib.llama_model_kv_override * 3)()
    overrides[0].key = b"tokenizer.ggml.add_space_prefix"
    overrides[0].tag = 2
    overrides[0].value.val_bool = False
    if pre is not None:
        overrides[1].key = PRE.encode()
        overrides[1].tag = 3
        overrides[1].value.val_str = pre.encode()
    return overrides
