"""The shared library of uad-kernels as it is installed: loaded through ctypes, and handed the functions of ggml that it
calls. Knows no model.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
from collections.abc import Sequence
from ctypes import c_bool, c_char_p, c_int, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from uad.base.errors import ConfigError
from uad.llama.backend import ggml

ABI = 3
"""Version of the interface (kernels/src/library.h) that this code calls."""
VARIABLE, OFF = "UAD_KERNELS", "off"
"""Names a kind of processor, or `off`: for tests."""
BUFFER = "CPU_UAD"
"""Name of the buffers that weights lie in."""
ATTENTION, ACTIVATIONS = "attention", "activations"
OF_PASSES = (ATTENTION, ACTIVATIONS)
"""Parts beside the types of weights: attention, and products of two activations, as in attention without flash
attention. They are switched between passes.
"""
IN_TILES = "attention in tiles"
"""Attention on matrix units, where it is taken over and the processor has them. It is faster than vectors, but a row's
bits depend on where in the memory its text lies.
"""
ANYWHERE = "anywhere"
"""Wanted by passes in which texts may lie anywhere: attention is computed without tiles."""
COUNTED = ("products", "experts", *OF_PASSES)
"""The operations that the library counts."""
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "uad_kernels_kinds": (c_char_p,),
    "uad_kernels_parts": (c_char_p,),
    "uad_kernels_functions": (c_char_p,),
    "uad_kernels_grids": (c_char_p,),
    "uad_kernels_read_grid": (None, c_char_p, c_void_p),
    "uad_kernels_register": (c_char_p, c_char_p, ctypes.POINTER(c_void_p), c_int),
    "uad_kernels_set": (c_bool, c_char_p, c_bool),
    "uad_kernels_count": (c_uint64, c_char_p),
}
"""Results, and then arguments."""


class NoKernelsError(Exception):
    """Why the library cannot be used here, as the end of a sentence."""


@dataclass(frozen=True)
class Library:
    """A loaded library. version: that of the package; functions: `uad_kernels_…` by their names."""

    path: Path
    version: str
    functions: Any

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of processor that this machine can run, the fastest first."""
        return tuple(self.functions.uad_kernels_kinds().decode().split())

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The parts that can be taken over: names of types of weights, and those of `OF_PASSES` that it has."""
        return tuple(self.functions.uad_kernels_parts().decode().split())

    @cached_property
    def digest(self) -> str:
        """Hash of its file: versions stay the same while the code changes."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Names of ggml's functions that it calls."""
        return tuple(self.functions.uad_kernels_functions().decode().split())

    def register(self, kind: str) -> None:
        """Put its buffers before llama.cpp's own. Raises NoKernelsError."""
        names = self.needed
        if missing := [name for name in names if not ggml.has(name)]:
            raise NoKernelsError(f"this llama.cpp does not export {', '.join(missing)}")
        for name in filter(ggml.has, self.functions.uad_kernels_grids().decode().split()):
            self.functions.uad_kernels_read_grid(name.encode(), ggml.address(name))
        addresses = (c_void_p * len(names))(*map(ggml.address, names))
        if wrong := self.functions.uad_kernels_register(kind.encode(), addresses, len(names)):
            raise NoKernelsError(wrong.decode(errors="replace"))

    def set_part(self, part: str, is_on: bool) -> None:
        """Take a part over, or leave it to llama.cpp: weights from the next model on, the others and IN_TILES from the
        next pass.
        """
        if not self.functions.uad_kernels_set(part.encode(), is_on):
            raise ValueError(f"{self.path}: there is no part {part!r}")

    def counts(self) -> dict[str, int]:
        """How many operations have run in it."""
        return {name: int(self.functions.uad_kernels_count(name.encode())) for name in COUNTED}


def installed() -> Library:
    """The library of the package that is installed. Raises NoKernelsError."""
    try:
        package: Any = importlib.import_module("uad_kernels")
    except ImportError as error:
        why = "is not installed" if error.name == "uad_kernels" else f"cannot be loaded: {error}"
        raise NoKernelsError(f"uad-kernels {why}") from None
    try:
        return load(Path(package.library()), str(package.__version__))
    except (OSError, AttributeError) as error:  # no such file, one of another machine, or a package of that name
        raise NoKernelsError(f"uad-kernels cannot be loaded: {error}") from None


def load(path: Path, version: str = "") -> Library:
    """The library in this file. Raises NoKernelsError for one of another interface, AttributeError for a file that
    lacks a function, and OSError where it cannot be loaded.
    """
    functions = ctypes.CDLL(os.fspath(path))
    if (abi := int(functions.uad_kernels_abi())) != ABI:  # before any other function is looked up: it may lack some
        raise NoKernelsError(
            f"uad-kernels {version} has interface {abi}, and this uad needs {ABI}: install the uad-kernels of this uad"
        )
    for name, (result, *arguments) in _FUNCTIONS.items():
        symbol = getattr(functions, name)
        symbol.restype, symbol.argtypes = result, arguments
    return Library(path, version, functions)


def chosen(kinds: Sequence[str]) -> str:
    """The kind to use: the fastest, or what $UAD_KERNELS says; "" for none. Raises ConfigError for one that this
    machine cannot run, and NoKernelsError where it can run no kind.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in (*kinds, OFF):
        raise ConfigError(f"{VARIABLE}={wanted}: this machine can run {', '.join((*kinds, OFF))}")
    if not kinds:
        raise NoKernelsError("there are none for this processor")
    return "" if wanted == OFF else wanted or kinds[0]
