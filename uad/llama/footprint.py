"""The memory that a context will take, as llama.cpp computes it: a model without weights, a context without memory,
and the sizes in its log.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import astuple, dataclass, replace
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.base.config import KvOverride, ModelConfig
from uad.base.errors import ModelLoadError
from uad.base.gguf import GgufFile, all_tensors
from uad.base.model_files import check_files
from uad.llama import nextn, placement
from uad.llama.backend import abort, native
from uad.llama.backend.devices import offloads
from uad.llama.context import context_params
from uad.llama.kernels import use as kernels
from uad.llama.kernels.sizes import copied
from uad.llama.model import cannot_load, header_params, n_ctx_trained, refuse_encoder
from uad.llama.rearranged import rearranged
from uad.llama.vocab import vocab_overrides

_MIB = 1 << 20
_EXACT_POSITIONS = 1 << 18  # positions
_FIXED_BYTES = 2 << 20  # bytes of a context and its graphs, whatever its size
_CELL_BYTES = 144  # bytes of a cell's position, sequences and, once used, its nodes in two trees
_TOKEN_BYTES = 1024  # bytes of a token in llama.cpp's vocabulary and in ours
_OUTPUT_ROWS = 64  # rows with logits that a decode has at most, as far as can be said beforehand
_FLOATS = {0, 1, 32}  # file types F32, F16 and BF16, which only AMX has rearranged
# llama_kv_cache: size =  192.00 MiB (  4096 cells,  24 layers,  1/1 seqs), K (f16):   96.00 MiB, V (f16):   96.00 MiB
# but not: llama_kv_cache:        CPU KV buffer size =   192.00 MiB
_KV = re.compile(r"(?<!buffer )size =\s*([\d.]+) MiB")
_CELLS = re.compile(r"\(\s*(\d+) cells")
# sched_reserve:      CUDA0 compute buffer size =   304.75 MiB
_COMPUTE = re.compile(r"(\S+)\s+compute buffer size =\s*([\d.]+) MiB")
# llama_kv_cache: layer   0: dev = CUDA0
_LAYER = re.compile(r"layer\s+\d+: dev = (\S+)")
# load_tensors: offloaded 25/25 layers to GPU
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers")


class NeedUnknownError(Exception):
    """llama.cpp's log does not say in known words how much memory something takes; the text names what is missing."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that one context takes in the machine's memory and on devices; of them the KV cache, wherever it lies, and
    its part on devices.
    """

    host: int
    device: int
    kv: int
    kv_device: int = 0


class Footprint(native.Owner):
    """One model's header, for contexts of n_seq sequences. beside: the target of a head that was trained apart. Raises
    ModelLoadError where llama.cpp does not know the file.
    """

    device: int
    """Bytes of weights on devices."""
    weights: int
    """Bytes that stay in memory whatever happens."""
    mapped: int
    """Bytes of a mapped file, which the system can drop and read again."""

    def __init__(self, config: ModelConfig, role: str, n_seq: int, beside: Footprint | None = None) -> None:
        self._config, self.n_seq, self._beside = config, n_seq, beside
        self.n_snapshots = config.n_snapshots
        """Earlier values of a recurrent state that contexts keep from now on."""
        self._log = native.start()
        check_files(config, role)
        self._name = f"{role} {config.path}"
        with self._log.collecting() as lines, abort.starting(self._name):
            self._model: ctypes.c_void_p | None = _load(config)
        if not self._model:
            raise cannot_load(config.path, role, self._log.reason())
        try:
            if beside is None:
                refuse_encoder(self._model, config.path, role)
        except BaseException:
            self.close()
            raise
        self.n_ctx_train = n_ctx_trained(self._model)
        self.n_vocab = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model)))
        self.has_state = bool(lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model))
        size = int(lib.llama_model_size(self._model))
        size_there = size - placement.bytes_beside_cpu(config.path, config.places)
        self._unknown: NeedUnknownError | None = None
        self.device = 0
        if offloads(config):
            try:
                self.device = int(size_there * offloaded(lines))
            except NeedUnknownError as error:
                self._unknown = error
        # Weights that llama.cpp copies into another order are no mapped file any more, as far as the file's type shows
        # which. With our own kernels all that it could copy is theirs.
        own = kernels.of(config)
        ftype = int(lib.llama_model_ftype(self._model)) if hasattr(lib, "llama_model_ftype") else -1
        is_copied = not own.types and rearranged(config).is_on and ftype not in _FLOATS
        stays = config.mlock or not config.mmap or is_copied
        on_host = size - self.device
        self.weights, self.mapped = (on_host, 0) if stays else (0, on_host)
        if own.types:
            # of 1.0 GB of which a quarter is on a device: 0.75 of what all weights would take
            before, after = (n * on_host // max(size, 1) for n in copied(own, all_tensors(config.path)))
            self.weights += after - (before if stays else 0)
            self.mapped -= 0 if stays else before
        self.weights += self.n_vocab * _TOKEN_BYTES + sum(lora.path.stat().st_size for lora in config.loras)

    def leave_out_weights(self) -> None:
        """They are in memory already."""
        self.weights = self.mapped = self.device = 0

    def of(self, n_ctx: int, is_head: bool = False) -> Need:
        """The need of a context of n_ctx positions in all; is_head: one of the model's head. Raises ModelLoadError
        where llama.cpp makes none, and NeedUnknownError where its log does not say what is asked.

        Far beyond usual contexts it is on a straight line through two smaller ones: llama.cpp takes memory for each
        position even so.
        """
        if self._unknown is not None:
            raise self._unknown
        if n_ctx > _EXACT_POSITIONS:
            a, b = self.of(_EXACT_POSITIONS // 2, is_head), self.of(_EXACT_POSITIONS, is_head)
            share = n_ctx / (_EXACT_POSITIONS // 2) - 2  # at three times the half it is 1: as much again as from a to b
            return Need(*(int(y + share * (y - x)) for x, y in zip(astuple(a), astuple(b), strict=True)))
        self._log.clear()
        params = context_params(replace(self._config, n_snapshots=self.n_snapshots), n_ctx, self.n_seq)
        rows = max(self.n_seq, min(self._config.n_ubatch, _OUTPUT_ROWS))
        if not offloads(self._config):
            # llama.cpp makes room for the logits of whole passes. On this machine memory that nobody writes takes none:
            # of 152,000 tokens' logits for 512 rows, 297 MiB, passes fill 64 rows at most.
            params.n_outputs_max = rows
        with ExitStack() as stack:
            target = None
            if self._beside is not None:
                target = self._beside._context(context_params(self._beside._config, 0, self.n_seq))
                stack.callback(lib.llama_free, target)
            if is_head:
                nextn.make_head(params, target, is_trained=target is not None)
            with self._log.collecting() as lines:
                stack.callback(lib.llama_free, self._context(params))
        n_caches = 2 if lib.llama_model_is_hybrid(self._model) and not is_head else 1  # a cache and a state
        need = read(lines, self.n_seq, n_caches, offloads(self._config))
        row = 16 if self._config.backend_sampling else 4  # logits; then also ids, and logits and probabilities of these
        return Need(
            need.host + _FIXED_BYTES + row * self.n_vocab * rows,
            need.device,
            need.kv,
            need.kv_device,
        )

    def _context(self, params: Any) -> ctypes.c_void_p:
        with abort.starting(self._name):
            handle = lib.llama_init_from_model(self._model, params)
        if not handle:
            raise ModelLoadError(
                f"{self._name}: no context of {params.n_ctx} tokens ({self._log.reason() or 'out of memory?'})"
            )
        return handle  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._model:
            lib.llama_model_free(self._model)
            self._model = None


def _load(config: ModelConfig) -> ctypes.c_void_p | None:
    """The model without weights, and with a vocabulary of empty tokens: no size depends on it, and 150,000 real tokens
    take 0.3 s.
    """
    params = header_params(config)
    try:
        with GgufFile(config.path) as file:
            arch, n_vocab = file.text("general.architecture"), file.length("tokenizer.ggml.tokens")
    except ModelLoadError:
        n_vocab = 0  # llama.cpp has the better words for what is wrong with it
    if n_vocab:
        empty = (KvOverride("tokenizer.ggml.model", "no_vocab"), KvOverride(f"{arch}.vocab_size", n_vocab))
        others = tuple(own for own in config.overrides if own.key not in {override.key for override in empty})
        params.kv_overrides = vocab_overrides(replaced=(*others, *empty))
    handle: ctypes.c_void_p | None = lib.llama_model_load_from_file(os.fsencode(config.path), params)
    return handle


def offloaded(lines: list[str]) -> float:
    """The share of layers on devices, by what llama.cpp logs while it loads. Raises NeedUnknownError."""
    matches = [match for line in lines if (match := _OFFLOADED.search(line))]
    if not matches:
        raise NeedUnknownError("how many layers are on devices")
    return int(matches[-1][1]) / int(matches[-1][2])


def read(lines: list[str], n_seq: int, n_caches: int = 1, has_devices: bool = False) -> Need:
    """A context's need, read from its log. Raises NeedUnknownError where the log lacks a part: a newer llama.cpp may
    have other words, and what is not found would count as nothing.

    n_caches: of keys and values, or states, that a context has at least; has_devices: they may lie on devices.
    """
    kv = compute = device = cells = n_found = 0
    layers: Counter[bool] = Counter()
    for line in lines:
        if match := _LAYER.search(line):
            layers[_is_host(match[1])] += 1
        elif match := _COMPUTE.search(line):
            size = int(float(match[2]) * _MIB)
            compute, device = (compute + size, device) if _is_host(match[1]) else (compute, device + size)
        elif match := _KV.search(line):
            n_found += 1
            kv += int(float(match[1]) * _MIB)
            cells += int(count[1]) if (count := _CELLS.search(line)) else 0
    for is_missing, what in (
        (n_found < n_caches or not kv, "the KV cache, or the state"),
        (not any(map(_COMPUTE.search, lines)), "the buffers that it computes in"),
        (has_devices and not layers, "which layers are on devices"),
    ):
        if is_missing:
            raise NeedUnknownError(what)
    # the log has one size for the caches of all layers: with 18 of 24 on a GPU, 3/4 of 192 MiB lie there
    on_devices = int(kv * layers[False] / max(layers.total(), 1))
    return Need(kv - on_devices + compute + cells * n_seq * _CELL_BYTES, device + on_devices, kv, on_devices)


def _is_host(name: str) -> bool:
    """Whether a device or a kind of buffer is the machine's own memory: CPU, CPU_REPACK, CUDA_Host, BLAS."""
    return name.startswith(("CPU", "BLAS", "AMX")) or name.endswith("_Host")
