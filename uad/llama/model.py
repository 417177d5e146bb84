"""Owner of one loaded model: weights, facts, and its vocabulary as plain bytes. Must not know contexts or roles beyond
error texts.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.backend.devices import place
from uad.common.splits import part_of
from uad.config import KvOverride, ModelConfig
from uad.errors import ModelLoadError
from uad.events import ModelInfo
from uad.gguf import read_texts
from uad.llama import amx, native, nextn, placement
from uad.llama.adapters import Adapters
from uad.types import FimTokens
from uad.vocab.bounded import bounded
from uad.vocab.letters import lettered
from uad.vocab.markers import is_marker
from uad.vocab.quick import KNOWN, quick_tokenize
from uad.vocab.table import VocabTable, is_text

_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED, _ATTR_LSTRIP, _ATTR_RSTRIP = 1, 8, 16, 128, 256
_VOCAB_NONE, _VOCAB_SPM, _VOCAB_BPE, _VOCAB_UGM = 0, 1, 2, 4
_KIND, _TOKENS, _MERGES = "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
PRE = "tokenizer.ggml.pre"
_TEMPLATE = "tokenizer.chat_template"


class Model:
    """A model in memory. Use with `with`, or call `close()`; safe to close twice."""

    def __init__(
        self, config: ModelConfig, role: str = "model", progress: Callable[[float], None] | None = None
    ) -> None:
        self.path = config.path
        self._log = native.start()
        check_file(config.path, role)
        self._handle: ctypes.c_void_p | None = _load(config, role, progress, self._log)
        try:
            for one in config.loras:
                check_file(one.path, "adapter")
            self.adapters = Adapters(self._handle, config.loras, config.apply_loras, role)
            self.native_vocab = lib.llama_model_get_vocab(self._handle)
            self.info = self._read_info()
            self._refuse_encoders(role)
            self.vocab = made_quick(
                read_vocab(self.native_vocab, self.meta, config.path.name), self.native_vocab, self.meta, config.path
            )
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> ctypes.c_void_p:
        """llama.cpp's pointer to the model. Raises ValueError once it is closed."""
        if not self._handle:
            raise ValueError(f"model {self.path} is closed")
        return self._handle

    def meta(self, key: str) -> str | None:
        """A metadata value as text, None where the file has no such key."""
        return metadata(self.handle, key)

    @property
    def n_swa(self) -> int:
        """Positions of its sliding window, 0 where it has none."""
        return int(lib.llama_model_n_swa(self.handle))

    def _read_info(self) -> ModelInfo:
        desc = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.handle, desc, 256)
        template = lib.llama_model_chat_template(self.handle, None)
        text = desc.value.decode(errors="replace")
        return ModelInfo(
            path=str(self.path),
            desc=self.meta("general.name") or text,
            n_params=int(lib.llama_model_n_params(self.handle)),
            size=int(lib.llama_model_size(self.handle)),
            n_ctx_train=int(lib.llama_model_n_ctx_train(self.handle)),
            n_vocab=int(lib.llama_vocab_n_tokens(self.native_vocab)),
            n_embd=int(lib.llama_model_n_embd(self.handle)),
            vocab_type=int(lib.llama_vocab_type(self.native_vocab)),
            ftype=text.rsplit(" ", 1)[-1],
            chat_template=template.decode(errors="replace") if template else None,
        )

    def _refuse_encoders(self, role: str) -> None:
        arch = self.meta("general.architecture") or "unknown"
        generates = lib.llama_model_has_decoder(self.handle) and not lib.llama_model_has_encoder(self.handle)
        if not generates or self.meta(f"{arch}.attention.causal") == "false":
            raise ModelLoadError(
                f"{role} {self.path}: an encoder model (architecture {arch}) cannot generate text; choose a "
                f"decoder-only model as {role}"
            )

    def close(self) -> None:
        if self._handle:
            lib.llama_model_free(self._handle)
            self._handle = None

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_file(path: Path, role: str) -> None:
    """Raises ModelLoadError unless the path is a readable file that begins like a GGUF file; role: whose it is."""
    if not path.exists():
        raise ModelLoadError(f"{role} {path}: no such file")
    if not path.is_file():
        raise ModelLoadError(f"{role} {path}: not a file; give the path of a .gguf file")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelLoadError(f"{role} {path}: cannot be read ({error.strerror})") from None
    if magic != b"GGUF":
        raise ModelLoadError(
            f"{role} {path}: not a GGUF file; convert the model with llama.cpp's convert_hf_to_gguf.py or download a "
            ".gguf"
        )
    _check_parts(path, role)


def _check_parts(path: Path, role: str) -> None:
    """A model in several files is loaded by the first, and the others have to lie beside it. Raises ModelLoadError."""
    if (part := part_of(path.name)) is None:
        return
    if part.index != 1:
        raise ModelLoadError(f"{role} {path}: part {part.index} of {part.count}; give the first, {part.names()[0]}")
    if missing := [name for name in part.names() if not path.with_name(name).exists()]:
        raise ModelLoadError(f"{role} {path}: of {part.count} parts are missing in its folder: {', '.join(missing)}")


def _load(config: ModelConfig, role: str, progress: Callable[[float], None] | None, log: native.Log) -> ctypes.c_void_p:
    params = lib.llama_model_default_params()
    params.n_gpu_layers = config.n_gpu_layers
    params.load_mode = {(True, False): 1, (False, False): 0, (False, True): 2, (True, True): 3}[
        config.mmap, config.mlock
    ]
    params.use_extra_bufts = amx.rearranges(config)
    place(params, config)
    if config.with_head:
        nextn.load_heads(params)
    overrides = vocab_overrides(replaced=config.overrides)
    params.kv_overrides = overrides
    params.check_tensors, params.no_host = config.check_tensors, config.no_host
    places = placement.put(params, config.places)
    callback = None
    if progress is not None:
        report = progress

        def on_progress(share: float, _user: object) -> bool:
            report(share)
            return True

        callback = lib.llama_progress_callback(on_progress)
        params.progress_callback = callback
    log.clear()
    handle = lib.llama_model_load_from_file(os.fsencode(config.path), params)
    del places
    if handle:
        return handle  # type: ignore[no-any-return]
    reason = log.reason()
    _refuse_by_header(config.path, role, params)
    raise ModelLoadError(
        f"{role} {config.path}: llama.cpp cannot load it ({reason or 'no reason given'}); is the file complete?"
    )


def _refuse_by_header(path: Path, role: str, params: Any) -> None:
    """A file that loads as a vocabulary but not as a model: say so if it is an encoder, whose weights llama.cpp may
    also lack.
    """
    params.vocab_only = True
    handle = lib.llama_model_load_from_file(os.fsencode(path), params)
    if not handle:
        return
    try:
        arch = metadata(handle, "general.architecture") or ""
        causal = metadata(handle, f"{arch}.attention.causal")
    finally:
        lib.llama_model_free(handle)
    if causal == "false" or "bert" in arch or arch == "t5encoder":
        raise ModelLoadError(
            f"{role} {path}: an encoder model (architecture {arch}) cannot generate text; choose a decoder-only model "
            f"as {role}"
        )


def vocab_overrides(pre: str | None = None, replaced: Sequence[KvOverride] = ()) -> Any:
    """What every vocabulary is loaded with; `pre` replaces the file's name of a pre-tokenizer. Must live as long as the
    load.

    Text pieces are encoded in mid-sentence: a space prefix would invent a byte. Prompts add it knowingly
    (templates/prompt.py).
    """
    overrides: Any = (lib.llama_model_kv_override * (3 + len(replaced)))()  # the last one, without a key, ends them
    overrides[0].key = b"tokenizer.ggml.add_space_prefix"
    overrides[0].tag = 2
    overrides[0].value.val_bool = False
    if pre is not None:
        overrides[1].key = PRE.encode()
        overrides[1].tag = 3
        overrides[1].value.val_str = pre.encode()
    for one, own in zip(overrides[1 if pre is None else 2 :], replaced, strict=False):
        _override(one, own)
    return overrides


def _override(one: Any, own: KvOverride) -> None:
    one.key = own.key.encode()
    match own.value:
        case bool():
            one.tag, one.value.val_bool = 2, own.value
        case int():
            one.tag, one.value.val_i64 = 0, own.value
        case float():
            one.tag, one.value.val_f64 = 1, own.value
        case str():
            one.tag, one.value.val_str = 3, own.value.encode()


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
    markers; everything else stands for its bytes. ModelLoadError where there is none: llama.cpp gives up the process
    when it is asked about one.
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
    shown = _markers(vocab, meta(_TEMPLATE) or "", pieces)
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
        eog=frozenset(i for i in range(n_vocab) if lib.llama_vocab_is_eog(vocab, i)),
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
    return replace(table, tokenize=bounded(table, meta(PRE) or "default"))


def made_quick(table: VocabTable, vocab: ctypes.c_void_p, meta: Callable[[str], str | None], path: Path) -> VocabTable:
    """The same table; where llama.cpp's tokenizer has a price per call, short text goes another way (`vocab/quick.py`).

    Which tokens text is searched for first is llama.cpp's word, not the file's: it knows better for some names.
    """
    pre = meta(PRE) or "default"
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


def _markers(vocab: ctypes.c_void_p, template: str, pieces: Sequence[bytes]) -> dict[int, bytes]:
    """User-defined tokens that structure a conversation, and their names."""
    return {
        id_: pieces[id_]
        for id_ in _user_defined(vocab)
        if is_text(pieces[id_]) and is_marker(pieces[id_].decode(), template)
    }


def _fim(vocab: ctypes.c_void_p) -> FimTokens:
    """What llama.cpp found in the file, by key or by name."""
    found = (
        lib.llama_vocab_fim_pre(vocab),
        lib.llama_vocab_fim_suf(vocab),
        lib.llama_vocab_fim_mid(vocab),
        lib.llama_vocab_fim_rep(vocab),
        lib.llama_vocab_fim_sep(vocab),
    )
    return FimTokens(*(int(id_) if id_ >= 0 else None for id_ in found))


def _id_or_none(id_: int, special: set[int]) -> int | None:
    """llama.cpp answers with a default id (11 for BPE) where the file names none: only a special can be BOS or EOS."""
    return int(id_) if id_ in special else None


def _pieces(vocab: ctypes.c_void_p, n_vocab: int, special: set[int]) -> tuple[bytes, ...]:
    buffer = ctypes.create_string_buffer(4096)
    to_piece = lib.llama_token_to_piece
    pieces = []
    for id_ in range(n_vocab):
        n = 0 if id_ in special else to_piece(vocab, id_, buffer, 4096, 0, True)
        if n < 0:
            raise ModelLoadError(f"token {id_} stands for more than 4096 bytes; the vocabulary is damaged")
        pieces.append(buffer.raw[:n] if n else b"")
    return tuple(pieces)


def _tokenizer(vocab: ctypes.c_void_p) -> Callable[[bytes], list[int]]:
    def tokenize(data: bytes) -> list[int]:
        n_max = len(data) + 2
        ids = (ctypes.c_int32 * n_max)()
        n = lib.llama_tokenize(vocab, data, len(data), ids, n_max, False, False)
        if n < 0:
            n_max = -n
            ids = (ctypes.c_int32 * n_max)()
            n = lib.llama_tokenize(vocab, data, len(data), ids, n_max, False, False)
        return ids[:n]

    return tokenize
