"""Functions of ggml, which llama_cpp has no names for: looked up in the library that it loaded. Knows no model."""

from __future__ import annotations

import ctypes
import os
from ctypes import CFUNCTYPE, byref, c_char_p, c_void_p
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.base.gguf import ask_for_types
from uad.llama.backend.symbols import GGML, LAYERS, REGISTERED


def function(name: str) -> Any:
    """A function of the library, with the signature that `symbols` has. Raises AttributeError where the library has
    none of this name.
    """
    symbol = getattr(lib._lib, name)
    symbol.restype, *symbol.argtypes = GGML.get(name) or LAYERS[name]
    return symbol


def registered(registry: int | None, name: str) -> Any:
    """A function that a backend's registry knows, with the signature that `symbols.REGISTERED` has; None where it has
    none of this name.
    """
    address = function("ggml_backend_reg_get_proc_address")(registry, name.encode())
    return CFUNCTYPE(*REGISTERED[name])(address) if address else None


def type_sizes(kind: int) -> tuple[int, int] | None:
    """How many numbers of a type share a block, and its bytes; None for a number that is no type's. ggml looks into its
    table without a check, so numbers beyond it are not asked.
    """
    if not has("ggml_blck_size", "ggml_type_size") or not 0 <= kind < int(getattr(lib, "GGML_TYPE_COUNT", 0)):
        return None
    block, n_bytes = int(function("ggml_blck_size")(kind)), int(function("ggml_type_size")(kind))
    return (block, n_bytes) if block and n_bytes else None  # those that were removed have none


ask_for_types(type_sizes)


def type_name(kind: int) -> str:
    """The name of a type as files of it are called, such as Q4_K; its number where it is not known."""
    if type_sizes(kind) is None or not has("ggml_type_name"):
        return f"type {kind}"
    return str(function("ggml_type_name")(kind).decode()).upper()


def has(*names: str) -> bool:
    """Whether the library leads to all of these symbols."""
    library: Any = getattr(lib, "_lib", None)
    return all(hasattr(library, name) for name in names)


def address(name: str) -> int:
    """The address of this function. Raises AttributeError where there is no such function."""
    return int(ctypes.cast(getattr(lib._lib, name), c_void_p).value or 0)


class _SymbolPlace(ctypes.Structure):  # Dl_info of dlfcn.h
    _fields_ = (("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("address", c_void_p))


def loaded_files(*functions: str) -> tuple[Path, ...]:
    """The files that llama.cpp's functions, and these, were loaded from, wherever LLAMA_CPP_LIB_PATH and the linker
    found them.
    """
    find, place, files = ctypes.CDLL(None).dladdr, _SymbolPlace(), set[Path]()
    for name in filter(has, ("llama_backend_init", *GGML, *functions)):
        if find(c_void_p(address(name)), byref(place)):
            files.add(Path(os.fsdecode(place.file)).resolve())
    return tuple(sorted(files))
