"""A file's vocabulary as plain bytes: that of a loaded model, or alone, without weights. Must not know contexts."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib

from uad.base.common.files import is_file
from uad.base.config import KvOverride
from uad.base.errors import ModelLoadError
from uad.base.gguf import read_texts
from uad.base.types import FimTokens
from uad.llama.backend import native
from uad.text.vocab.bounded import bounded, is_never_deep, lettered
from uad.text.vocab.markers import is_marker
from uad.text.vocab.quick import KNOWN, quick_tokenize
from uad.text.vocab.table import VocabTable, is_text

_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED, _ATTR_LSTRIP, _ATTR_RSTRIP = 1, 8, 16, 128, 256
_VOCAB_NONE, _VOCAB_SPM, _VOCAB_BPE, _VOCAB_UGM = 0, 1, 2, 4
_KIND, _TOKENS, _MERGES = "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
_PRE = "tokenizer.ggml.pre"
_TEMPLATE = "tokenizer.chat_template"


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
    handle = lib.llama_model_load_from_file(os.fsencode(path), params) if is_file(path) else None
    if not handle:
        raise ModelLoadError(f"{path}: no vocabulary can be loaded from it ({log.reason() or 'no such file'})")

    def meta(key: str) -> str | None:
        return pre if pre and key == _PRE else metadata(handle, key)

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


def vocab_overrides(pre: str | None = None, replaced: Sequence[KvOverride] = (), spaces: bool = False) -> Any:
    """The overrides that every vocabulary is loaded with; `pre` replaces the file's name of a pre-tokenizer. They must
    live as long as the load. spaces: llama.cpp puts spaces before texts as the file says, since all are whole texts.

    Text pieces are encoded in mid-sentence: a space prefix would invent a byte. Prompts add it knowingly
    (templates/prompt.py).
    """
    overrides: Any = (lib.llama_model_kv_override * (3 + len(replaced)))()  # the last one, without a key, ends them
    overrides[0].key = b"uad.no_such_key" if spaces else b"tokenizer.ggml.add_space_prefix"
    overrides[0].tag = 2
    overrides[0].value.val_bool = False
    if pre is not None:
        overrides[1].key = _PRE.encode()
        overrides[1].tag = 3
        overrides[1].value.val_str = pre.encode()
    for override, own in zip(overrides[1 if pre is None else 2 :], replaced, strict=False):
        _override(override, own)
    return overrides


def _override(override: Any, own: KvOverride) -> None:
    override.key = own.key.encode()
    match own.value:
        case bool():
            override.tag, override.value.val_bool = 2, own.value
        case int():
            override.tag, override.value.val_i64 = 0, own.value
        case float():
            override.tag, override.value.val_f64 = 1, own.value
        case str():
            override.tag, override.value.val_str = 3, own.value.encode()


def metadata(handle: ctypes.c_void_p, key: str) -> str | None:
    """A metadata value of a loaded file as text, None where it has no such key."""
    size = 256
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = int(lib.llama_model_meta_val_str(handle, key.encode(), buffer, size))
        if n < size:
            return buffer.value.decode(errors="replace") if n >= 0 else None
        size = n + 1


def read_vocab(vocab: ctypes.c_void_p, meta: Callable[[str], str | None], name: str) -> VocabTable:
    """The vocabulary as a table of bytes. Specials are control and unknown tokens, and user-defined ones that are
    markers; everything else stands for its bytes. So do markers of any type by which an answer begins or ends: some
    files have no types. ModelLoadError for a file without a vocabulary: llama.cpp gives up the process when it is asked
    about one.
    """
    kind = int(lib.llama_vocab_type(vocab))
    if kind == _VOCAB_NONE:
        raise ModelLoadError(
            f"{name}: the file has no vocabulary, so no text can be read or written with it; choose a language model"
        )
    n_vocab = int(lib.llama_vocab_n_tokens(vocab))
    attrs = [int(lib.llama_vocab_get_attr(vocab, i)) for i in range(n_vocab)]
    control = {i for i, attr in enumerate(attrs) if attr & (_ATTR_CONTROL | _ATTR_UNKNOWN)}
    pieces = _pieces(vocab, n_vocab, control)
    ends = {id_ for id_ in range(n_vocab) if lib.llama_vocab_is_eog(vocab, id_)}
    edges = {*ends, int(lib.llama_vocab_bos(vocab)), int(lib.llama_vocab_eos(vocab))} & set(range(n_vocab)) - control
    shown = _markers({*_user_defined(vocab), *edges}, meta(_TEMPLATE) or "", pieces)
    special = control | shown.keys()
    specials: dict[str, int] = {}
    for id_ in sorted(special):
        text = shown[id_] if id_ in shown else lib.llama_vocab_get_text(vocab, id_)
        specials.setdefault(text.decode(errors="replace"), id_)
    spaced = meta("tokenizer.ggml.add_space_prefix")
    default_space = kind in (_VOCAB_SPM, _VOCAB_UGM)
    table = VocabTable(
        name=name,
        pieces=tuple(b"" if id_ in shown else piece for id_, piece in enumerate(pieces)) if shown else pieces,
        specials=specials,
        tokenize=_tokenizer(vocab),
        bos=_id_or_none(lib.llama_vocab_bos(vocab), special),
        eos=_id_or_none(lib.llama_vocab_eos(vocab), special),
        eot=_id_or_none(lib.llama_vocab_eot(vocab), special),
        eog=frozenset(ends & special),
        add_bos=bool(lib.llama_vocab_get_add_bos(vocab)),
        add_space_prefix=spaced == "true" if spaced is not None else default_space,
        lstrip=frozenset(i for i in special if attrs[i] & _ATTR_LSTRIP),
        rstrip=frozenset(i for i in special if attrs[i] & _ATTR_RSTRIP),
        shown=shown,
        fim=_fim(vocab),
    )
    table = replace(table, tokenize=lettered(table.tokenize, table))
    if kind != _VOCAB_BPE or meta(_KIND) == "gemma4":
        return table
    pre = meta(_PRE) or "default"
    return table if is_never_deep(pre, native.build_info()) else replace(table, tokenize=bounded(table, pre))


def made_quick(table: VocabTable, vocab: ctypes.c_void_p, meta: Callable[[str], str | None], path: Path) -> VocabTable:
    """The same table; where llama.cpp's tokenizer has a price per call, short text goes another way (`vocab/quick.py`).

    llama.cpp says which tokens text is searched for first, not the file: it knows better for some names.
    """
    pre = meta(_PRE) or "default"
    if meta(_KIND) != "gpt2" or pre not in KNOWN:
        return table
    lists = read_texts(path, (_TOKENS, _MERGES))
    tokens, merges = (lists.get(key, []) for key in (_TOKENS, _MERGES))
    defined = [
        lib.llama_vocab_get_text(vocab, id_).decode(errors="replace")
        for id_ in _user_defined(vocab)
        if id_ not in table.shown
    ]
    quick = quick_tokenize(table, pre, tokens, merges, defined)
    return replace(table, tokenize=quick) if quick else table


def _user_defined(vocab: ctypes.c_void_p) -> Iterator[int]:
    """Ids of tokens that llama.cpp searches all text for."""
    for id_ in range(int(lib.llama_vocab_n_tokens(vocab))):
        if (
            int(lib.llama_vocab_get_attr(vocab, id_)) & (_ATTR_USER_DEFINED | _ATTR_CONTROL | _ATTR_UNKNOWN)
            == _ATTR_USER_DEFINED
        ):
            yield id_


def _markers(candidates: Iterable[int], template: str, pieces: Sequence[bytes]) -> dict[int, bytes]:
    """Tokens that structure a conversation, and their names."""
    return {
        id_: pieces[id_]
        for id_ in sorted(candidates)
        if is_text(pieces[id_]) and is_marker(pieces[id_].decode(), template)
    }


def _fim(vocab: ctypes.c_void_p) -> FimTokens:
    """The tokens for filling in the middle that llama.cpp found in the file, by key or by name."""
    tokens = (
        lib.llama_vocab_fim_pre(vocab),
        lib.llama_vocab_fim_suf(vocab),
        lib.llama_vocab_fim_mid(vocab),
        lib.llama_vocab_fim_rep(vocab),
        lib.llama_vocab_fim_sep(vocab),
    )
    return FimTokens(*(int(id_) if id_ >= 0 else None for id_ in tokens))


def _id_or_none(id_: int, special: set[int]) -> int | None:
    """llama.cpp answers with a default id (11 for BPE, often a comma) where the file names none that it can use: only a
    special can be BOS or EOS, or end an answer.
    """
    return int(id_) if id_ in special else None


def _pieces(vocab: ctypes.c_void_p, n_vocab: int, special: set[int]) -> tuple[bytes, ...]:
    # a special's text is its name, which users may type as well; only its id is the special
    buffer = ctypes.create_string_buffer(4096)
    to_piece = lib.llama_token_to_piece
    pieces = []
    for id_ in range(n_vocab):
        n = 0 if id_ in special else to_piece(vocab, id_, buffer, 4096, 0, True)
        if n < 0:
            raise ModelLoadError(f"token {id_} stands for more than 4096 bytes; the vocabulary is damaged")
        pieces.append(buffer.raw[:n] if n else b"")
    return tuple(pieces)


class Around(NamedTuple):
    """Ids that a model wants around a text, and between two; None where it wants none."""

    bos: int | None
    eos: int | None
    sep: int | None


def around(vocab: ctypes.c_void_p) -> Around:
    """Ids that llama.cpp puts around texts of this vocabulary; a missing EOS is replaced by the separator."""
    bos, eos, sep = (int(of(vocab)) for of in (lib.llama_vocab_bos, lib.llama_vocab_eos, lib.llama_vocab_sep))
    eos = sep if eos < 0 else eos
    return Around(
        bos if lib.llama_vocab_get_add_bos(vocab) and bos >= 0 else None,
        eos if lib.llama_vocab_get_add_eos(vocab) and eos >= 0 else None,
        sep if lib.llama_vocab_get_add_sep(vocab) and sep >= 0 else None,
    )


def native_tokenize(vocab: ctypes.c_void_p) -> Callable[[bytes, bool, bool], list[int]] | None:
    """llama.cpp's own tokenization of a text, with what belongs around it, and with specials by their names. None for
    BPE, where long texts may end the process: `VocabTable.tokenize` guards them.
    """
    is_bpe = int(lib.llama_vocab_type(vocab)) == _VOCAB_BPE
    return None if is_bpe else lambda data, add, parse: _tokenizer(vocab, add, parse)(data)


def _tokenizer(
    vocab: ctypes.c_void_p, add_special: bool = False, parse_special: bool = False
) -> Callable[[bytes], list[int]]:
    def tokenize(data: bytes) -> list[int]:
        if not vocab:
            raise ValueError("the model of this vocabulary is closed")
        # no token is shorter than a byte, but for what llama.cpp adds itself, or makes of invalid bytes: then it says
        # how many there are, as a negative number
        n_max = len(data) + 4
        ids = (ctypes.c_int32 * n_max)()
        n = lib.llama_tokenize(vocab, data, len(data), ids, n_max, add_special, parse_special)
        if n < 0:
            n_max = -n
            ids = (ctypes.c_int32 * n_max)()
            n = lib.llama_tokenize(vocab, data, len(data), ids, n_max, add_special, parse_special)
        return ids[:n]

    return tokenize
