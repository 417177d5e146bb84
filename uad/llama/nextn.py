"""llama.cpp's interface for heads: experimental names, on which nothing else depends.

A head predicts the next ids from the last ones and the target's hidden rows: of its end, for a head of multi-token
prediction, which is one more block of a model; or of some layers, for one that was trained apart. Heads run in a
context of their own.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import llama_cpp.llama_cpp as binding
import numpy as np

from uad.base.common.arrays import Hidden
from uad.base.errors import ConfigError, DecodeError
from uad.llama.backend import native, symbols
from uad.llama.backend.ggml import function


@cache
def _extension() -> ModuleType | None:
    """The binding's module of experimental functions; None where it has none, or llama.cpp lacks one of them."""
    try:
        return importlib.import_module("llama_cpp.llama_cpp_ext")
    except (ImportError, AttributeError):
        return None


def check(name: str, is_trained: bool) -> None:
    """Raises ConfigError where the installed binding lacks what heads need. name: of the drafter; is_trained: it was
    trained apart from its target.
    """
    missing = [*symbols.missing_for_heads(binding, _extension())]
    missing += symbols.missing_for_layers(binding) if is_trained else ()
    if missing:
        raise ConfigError(
            f"--spec-type {name}: llama-cpp-python {native.build_info()} lacks {', '.join(missing)}, which heads need; "
            f"leave {name} out, or pip install 'llama-cpp-python{symbols.VERSIONS}'"
        )


def load_heads(params: Any) -> None:
    """Have a model loaded with its heads."""
    params.load_mtp = True


def make_head(params: Any, target: ctypes.c_void_p | None, is_trained: bool = False) -> None:
    """Make the context that these parameters are for one of a head, beside that of the target."""
    if not is_trained:
        params.ctx_type = binding.LLAMA_CONTEXT_TYPE_MTP
    params.ctx_other = target


def width(model: ctypes.c_void_p) -> int:
    """Numbers of a hidden row."""
    return int(binding.llama_model_n_embd_out(model))


def keep_hidden(context: ctypes.c_void_p, on: bool, outputs_only: bool) -> None:
    """Whether the decodes to come keep hidden rows: those of the rows that want logits, or all."""
    extension = _extension()
    assert extension is not None, "nextn.check() has passed before hidden rows are read"
    extension.llama_set_embeddings_nextn(context, on, outputs_only)


def hidden(context: ctypes.c_void_p, n: int, width: int) -> Hidden:
    """The n hidden rows of the last decode, in the order of its batch; a view that the next decode overwrites."""
    extension = _extension()
    assert extension is not None, "nextn.check() has passed before hidden rows are read"
    return _rows(ctypes.cast(extension.llama_get_embeddings_nextn(context), ctypes.c_void_p).value, n, width)


def _rows(address: int | None, n: int, width: int) -> Hidden:
    if address is None:
        raise DecodeError("no hidden rows after decode")
    flat = (ctypes.c_float * (n * width)).from_address(address)
    rows: Hidden = np.frombuffer(flat, np.float32)  # type: ignore[call-overload]
    return rows.reshape(n, width)


def keep_layers(context: ctypes.c_void_p, layers: Sequence[int]) -> None:
    """From now on decodes keep the rows that these layers are given."""
    for layer in layers:
        function(symbols.SET_LAYER)(context, layer, True)


def layers(context: ctypes.c_void_p, numbers: Sequence[int], n: int, width: int) -> Hidden:
    """The n rows that each of these layers was given in the last decode, side by side, [n, layers * width]."""
    parts = [_rows(function(symbols.GET_LAYER)(context, number), n, width) for number in numbers]
    return np.concatenate(parts, axis=1)


def fused(context: ctypes.c_void_p, batch: Any, n: int, width: int) -> Hidden:
    """The n rows that a head's encoder makes of those of layers in this batch, [n, width]; a view that the next decode
    overwrites. Raises DecodeError.
    """
    if code := int(binding.llama_encode(context, batch)):
        raise DecodeError(f"the head's encoder failed with code {code}")
    return hidden(context, n, width)


def mask_id(vocab: ctypes.c_void_p) -> int:
    """The id that stands for ids that are not known; -1 where the vocabulary has none."""
    return int(binding.llama_vocab_mask(vocab))
