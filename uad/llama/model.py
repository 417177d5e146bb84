"""Owner of one loaded model: weights, facts, and its vocabulary. Must not know contexts or roles beyond error texts."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import llama_cpp.llama_cpp as lib

from uad.base.common.cores import usable_cores
from uad.base.common.files import path_text
from uad.base.config import ModelConfig
from uad.base.errors import ConfigError, ModelLoadError
from uad.base.events import ModelInfo
from uad.base.gguf import files_of
from uad.base.model_files import check_files
from uad.llama import nextn, placement
from uad.llama.adapters import Adapters
from uad.llama.backend import abort, native
from uad.llama.backend.devices import place
from uad.llama.kernels import use as kernels
from uad.llama.kernels import weights
from uad.llama.rearranged import rearranged
from uad.llama.vocab import made_quick, metadata, read_vocab, vocab_overrides

_KEY = re.compile(
    r"key (?:not found in model: )?(?P<key>[\w.-]+)(?:$| has wrong type \w+ but expected type (?P<kind>\w+))"
)
_KINDS = {"u16": "int", "u32": "int", "i32": "int", "f32": "float", "bool": "bool", "str": "str"}
_LOAD_MODES = {(False, False): 0, (True, False): 1, (False, True): 2, (True, True): 3}  # by mmap and mlock


class Model(native.Owner):
    """A model in memory. Use with `with`, or call `close()`; safe to close twice. has_weights: False reads the header
    alone, for what needs the vocabulary and decodes nothing.
    """

    def __init__(
        self,
        config: ModelConfig,
        role: str = "model",
        progress: Callable[[float], None] | None = None,
        has_weights: bool = True,
    ) -> None:
        self.path = config.path
        self._config, self._role = config, role
        self._log = native.start()
        check_files(config, role)
        self._handle: ctypes.c_void_p | None
        self._handle, self.buffers = _load(config, role, progress, self._log, has_weights=has_weights)
        self.native_vocab = ctypes.c_void_p(lib.llama_model_get_vocab(self._handle))
        """The same object as long as this one lives; it points to nothing while the model is closed."""
        try:
            self.adapters = Adapters(self._handle, config.loras, config.apply_loras, role)
            self.info = self._read_info()
            if not config.embeds and not config.with_head:
                refuse_encoder(self.handle, self.path, role)
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
            path=path_text(self.path),
            desc=self.meta("general.name") or text,
            n_params=int(lib.llama_model_n_params(self.handle)),
            size=int(lib.llama_model_size(self.handle)),
            n_ctx_train=n_ctx_trained(self.handle),
            n_vocab=int(lib.llama_vocab_n_tokens(self.native_vocab)),
            n_embd=int(lib.llama_model_n_embd(self.handle)),
            vocab_type=int(lib.llama_vocab_type(self.native_vocab)),
            ftype=text.split(" ", 2)[-1],  # "qwen2 7B Q4_K - Medium"
            chat_template=template.decode(errors="replace") if template else None,
            arch=self.meta("general.architecture") or "",
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that were read: the model's parts and its adapters."""
        return (*files_of(self.path), *(lora.path for lora in self._config.loras))

    def reopen(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Load the weights of a closed model again, which must be of the same file: what is known of it stays. go_on:
        False ends that. Raises ModelLoadError.
        """
        if self._handle:
            return
        check_files(self._config, self._role)
        self._handle, self.buffers = _load(self._config, self._role, lambda share: None, self._log, go_on)
        try:
            self.native_vocab.value = lib.llama_model_get_vocab(self._handle)
            self.adapters.reopen(self._handle)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._handle:
            self.native_vocab.value = None
            lib.llama_model_free(self._handle)
            self._handle = None


def model_params(config: ModelConfig) -> Any:
    """llama.cpp's parameters of a model. Raises ConfigError for devices and buffers that are not there."""
    params = lib.llama_model_default_params()
    params.n_gpu_layers = config.n_gpu_layers
    params.load_mode = _LOAD_MODES[config.mmap, config.mlock]
    params.check_tensors = config.check_tensors
    params.no_host = config.no_host
    params.kv_overrides = vocab_overrides(replaced=config.overrides, spaces=config.embeds)
    place(params, config)
    order = rearranged(config)
    kernels.before_load(config)
    params.use_extra_bufts = order.is_on
    placement.put(params, config.places, order.plain)
    if config.with_head:
        nextn.load_heads(params)
    return params


def header_params(config: ModelConfig) -> Any:
    """The same of a model of which the weights are not read. Raises what `model_params` does."""
    params = model_params(config)
    params.load_mode, params.check_tensors, params.no_alloc = 0, False, True
    return params


def _load(
    config: ModelConfig,
    role: str,
    progress: Callable[[float], None] | None,
    log: native.Log,
    go_on: Callable[[], bool] = lambda: True,
    has_weights: bool = True,
) -> tuple[ctypes.c_void_p, dict[str, int]]:
    """The model, and bytes of its weights in each kind of memory."""
    params = model_params(config) if has_weights else header_params(config)
    if progress is not None:
        report = progress

        def on_progress(share: float, _user: object) -> bool:
            report(share)
            return go_on()

        callback = lib.llama_progress_callback(on_progress)
        params.progress_callback = callback
    log.clear()
    with abort.starting(f"{role} {config.path}"), log.collecting() as lines:
        handle = lib.llama_model_load_from_file(os.fsencode(config.path), params)
    if handle:
        return handle, weights.buffers(lines)
    reason = log.reason()
    if not config.embeds:
        _refuse_by_header(config.path, role, params)
    raise cannot_load(config.path, role, reason)


def cannot_load(path: Path, role: str, reason: str) -> ModelLoadError:
    """The error of a file that llama.cpp refuses for this reason, with the way out as far as the reason shows one."""
    if missing := _KEY.search(reason):
        kind = _KINDS.get(missing["kind"] or "", "TYPE")
        value = f"--override-kv {missing['key']}={kind}:VALUE gives it a value, or " if role == "target" else ""
        out = f"{value}download or convert the model again"
    elif "CLIP" in reason or "'clip'" in reason:
        out = "it is the projector of images beside a model; give the model itself, and this as --mmproj"
    elif "unknown model architecture" in reason or "unknown pre-tokenizer" in reason:
        out = f"a newer llama-cpp-python than {native.build_info()} may know it"
    else:
        out = "is the file complete?"
    return ModelLoadError(f"{role} {path}: llama.cpp cannot load it ({reason or 'no reason given'}); {out}")


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
        raise _encoder(role, path, arch)


def has_vocabulary(config: ModelConfig) -> bool:
    """Whether llama.cpp can load the file's vocabulary. It may be asked while others load models: no log is read."""
    params = lib.llama_model_default_params()
    params.vocab_only = True
    params.kv_overrides = vocab_overrides(replaced=config.overrides)
    handle = lib.llama_model_load_from_file(os.fsencode(config.path), params)
    if handle:
        lib.llama_model_free(handle)
    return bool(handle)


def check_vocabulary(config: ModelConfig, role: str) -> None:
    """Raises ModelLoadError with llama.cpp's reason where it cannot load the file's vocabulary."""
    log = native.start()
    log.clear()
    if not has_vocabulary(config):
        raise cannot_load(config.path, role, log.reason())


def refuse_encoder(handle: ctypes.c_void_p, path: Path, role: str) -> None:
    """Raises ModelLoadError for a model that cannot write text; its header is enough."""
    arch = metadata(handle, "general.architecture") or "unknown"
    generates = lib.llama_model_has_decoder(handle) and not lib.llama_model_has_encoder(handle)
    if not generates or metadata(handle, f"{arch}.attention.causal") == "false":
        raise _encoder(role, path, arch)


def _encoder(role: str, path: Path, arch: str) -> ModelLoadError:
    return ModelLoadError(
        f"{role} {path}: an encoder model (architecture {arch}) cannot generate text; choose a decoder-only model as "
        f"{role} (`uad serve` serves the embeddings of this one)"
    )


# --- how many positions it is good for


Meta = Callable[[str], str | None]
UNKNOWN_CTX = 4096
"""Positions of a model whose file says none, or a number that llama.cpp cannot count to."""


def n_ctx_trained(handle: ctypes.c_void_p) -> int:
    """Positions that a loaded file says it was trained on, 1 at least."""
    n = int(lib.llama_model_n_ctx_train(handle))
    return n if n > 0 else UNKNOWN_CTX


def trained_context(config: ModelConfig, n_ctx_train: int, meta: Meta) -> int:
    """Positions for which the model is meant, with the rope and YaRN settings of its configuration.

    Without any it is what the file says, which includes the stretching that the file describes. A factor counts from
    the context of the first training; `none` takes the stretching away. A base frequency alone says nothing about how
    far it reaches.
    """
    arch = meta("general.architecture") or ""
    own = _number(meta(f"{arch}.rope.scaling.original_context_length"))
    first = config.yarn_orig_ctx or int(own) or n_ctx_train
    if config.rope_scaling == "none":
        return min(first, n_ctx_train)
    if config.rope_freq_scale:
        return int(first / config.rope_freq_scale)
    if config.rope_scaling or config.yarn_orig_ctx:
        factor = _number(meta(f"{arch}.rope.scaling.factor")) or 1.0
        return int(first * factor)
    return n_ctx_train


def training_note(config: ModelConfig, role: str, n_ctx: int, n_ctx_train: int, meta: Meta) -> tuple[str, ...]:
    """A line where a sequence may get longer than that; n_ctx: positions of one sequence."""
    key = f"{meta('general.architecture')}.context_length"
    if n_ctx_train == UNKNOWN_CTX and not 0 < _number(meta(key)) < 2**31:
        more = " (-c names more)" if role == "target" and not config.n_ctx else ""
        return (f"the {role} {config.path} says {key} = {meta(key)}, which cannot be: {UNKNOWN_CTX} is assumed{more}",)
    trained = trained_context(config, n_ctx_train, meta)
    if n_ctx <= -(-trained // 256) * 256:  # llama.cpp makes contexts in steps of 256
        return ()
    if config.rope_freq_base:
        return (
            f"the {role}'s context of {n_ctx} tokens is beyond the {trained} of its training; --rope-freq-base has to "
            "bear that",
        )
    factor = -(-n_ctx // (config.yarn_orig_ctx or n_ctx_train))
    out = f"; --rope-scaling yarn --rope-scale {factor} stretches it" if role == "target" else ""
    return (
        f"the {role}'s context of {n_ctx} tokens is beyond the {trained} that it was trained for: texts get worse "
        f"past that{out}",
    )


def _number(text: str | None) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


# --- writing it again with weights of another type


TYPES: Final = {"q4_0": 2, "q8_0": 7, "bf16": 32}
"""Names as llama-quantize has them, and llama.cpp's numbers: types with fast kernels on most machines."""


def check_type(name: str) -> None:
    """Raises ConfigError for a type that weights cannot be written in."""
    if name not in TYPES:
        raise ConfigError(f"--type: {name!r} is not one of {', '.join(TYPES)}")


def quantize(source: Path, out: Path, name: str) -> None:
    """Write `out`, the model `source` with weights of the type of this name, whatever type they have now. Raises
    ModelLoadError.
    """
    if written_as(source, out, TYPES[name]):
        raise ModelLoadError(f"{source}: llama.cpp cannot write its weights in {name}")


def written_as(source: Path, out: Path, ftype: int) -> int:
    """The same by llama.cpp's number of the type; returns its exit code."""
    native.start()
    params = lib.llama_model_quantize_default_params()
    params.allow_requantize, params.ftype, params.nthread = True, ftype, usable_cores()
    return int(lib.llama_model_quantize(os.fsencode(source), os.fsencode(out), ctypes.byref(params)))
