"""Functions of ggml, which llama_cpp has no names for: looked up in the library that it loaded. Knows no model."""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp.llama_cpp as lib


def function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the library, its result and arguments as ctypes. Raises AttributeError where there is none."""
    found = getattr(lib._lib, name)
    found.restype, found.argtypes = result, arguments
    return found


def has(*names: str) -> bool:
    """Whether the library leads to all of these symbols."""
    library: Any = getattr(lib, "_lib", None)
    return all(hasattr(library, name) for name in names)


def address(name: str) -> int:
    """Where this function lies. Raises AttributeError where there is none."""
    return int(ctypes.cast(getattr(lib._lib, name), ctypes.c_void_p).value or 0)
