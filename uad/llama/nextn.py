"""What llama.cpp offers for heads of multi-token prediction: experimental names, on which nothing else depends.

A head is one more block of a model. From an id and the target's hidden row of the id before it, it predicts the next
one. Heads run in a context of their own, over the same weights.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from types import ModuleType
from typing import Any

import llama_cpp.llama_cpp as binding
import numpy as np
import numpy.typing as npt

from uad.backend import native, symbols
from uad.errors import ConfigError, DecodeError

Hidden = npt.NDArray[np.float32]
"""Hidden rows, [n, width]."""


@cache
def _extension() -> ModuleType | None:
    """The binding's module of experimental functions; None where it has none, or llama.cpp lacks one of them."""
    try:
        return importlib.import_module("llama_cpp.llama_cpp_ext")
    except (ImportError, AttributeError):
        return None


def check() -> None:
    """Raises ConfigError where the installed binding lacks a name that heads need."""
    if missing := ", ".join(symbols.missing_for_heads(binding, _extension())):
        raise ConfigError(
            f"--spec-type draft-mtp: llama-cpp-python {native.build_info()} lacks {missing}, which heads need; leave "
            f"draft-mtp out, or pip install 'llama-cpp-python{symbols.VERSIONS}'"
        )


def load_heads(params: Any) -> None:
    """Have a model loaded with its heads."""
    params.load_mtp = True


def make_head(params: Any, target: ctypes.c_void_p | None) -> None:
    """Make the context that these parameters are for one of a head, beside that of the target."""
    params.ctx_type = binding.LLAMA_CONTEXT_TYPE_MTP
    params.ctx_other = target


def width(model: ctypes.c_void_p) -> int:
    """Numbers of a hidden row."""
    return int(binding.llama_model_n_embd_out(model))


def keep_hidden(context: ctypes.c_void_p, on: bool, outputs_only: bool) -> None:
    """Whether the decodes to come keep hidden rows: those of the rows that want logits, or all."""
    extension = _extension()
    assert extension is not None, "who asks for hidden rows has checked the names"
    extension.llama_set_embeddings_nextn(context, on, outputs_only)


def hidden(context: ctypes.c_void_p, n: int, width: int) -> Hidden:
    """The n hidden rows of the last decode, in the order of its batch; a view that the next decode overwrites."""
    extension = _extension()
    assert extension is not None, "who asks for hidden rows has checked the names"
    pointer = extension.llama_get_embeddings_nextn(context)
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    if address is None:
        raise DecodeError("no hidden rows after decode")
    flat = (ctypes.c_float * (n * width)).from_address(address)
    rows: Hidden = np.frombuffer(flat, np.float32)  # type: ignore[call-overload]
    return rows.reshape(n, width)
