"""Writes a model again with weights of another type. llama.cpp does it, on all cores."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

import llama_cpp.llama_cpp as lib

from uad.backend import native
from uad.errors import ConfigError, ModelLoadError

TYPES: Final = {"q4_0": 2, "q8_0": 7, "bf16": 32}
"""Names as llama-quantize has them, and llama.cpp's numbers: types with fast kernels on most machines."""


def check_type(name: str) -> None:
    """Raises ConfigError for a type that weights cannot be written in."""
    if name not in TYPES:
        raise ConfigError(f"--type: {name!r} is none of {', '.join(TYPES)}")


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
    params.allow_requantize, params.ftype, params.nthread = True, ftype, os.cpu_count() or 1
    return int(lib.llama_model_quantize(os.fsencode(source), os.fsencode(out), ctypes.byref(params)))
