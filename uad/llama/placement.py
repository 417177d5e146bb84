"""Which tensors lie in which buffer, where a user says so: experts beside the CPU while the rest is on a GPU."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from ctypes import c_char_p, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from uad.backend.ggml import function
from uad.common.splits import part_of
from uad.config import Place
from uad.errors import ConfigError
from uad.gguf import GgufFile

CPU = "CPU"


class _TensorPlace(ctypes.Structure):
    """llama.cpp's pair of a pattern and a buffer; one without a pattern ends a list."""

    _fields_ = (("pattern", c_char_p), ("buffer", c_void_p))


def put(params: Any, places: Sequence[Place]) -> object:
    """Write them into llama.cpp's parameters of a model. The result has to live until it is loaded.

    Raises ConfigError for a buffer that is not there, naming those that are.
    """
    if not places:
        return None
    there = _buffers()
    for place in places:
        if place.buffer not in there:
            raise ConfigError(f"--override-tensor: there is no buffer {place.buffer!r}; there are {', '.join(there)}")
    pairs = (_TensorPlace * (len(places) + 1))()
    for pair, place in zip(pairs, places, strict=False):
        pair.pattern, pair.buffer = place.pattern.encode(), there[place.buffer]
    params.tensor_buft_overrides = ctypes.cast(pairs, c_void_p)
    return pairs


def bytes_beside_cpu(path: Path, places: Sequence[Place]) -> int:
    """Bytes of the model's tensors that are kept from devices; the first pattern that fits a name is the one."""
    if not places:
        return 0
    patterns = [(re.compile(place.pattern), place.buffer == CPU) for place in places]
    part, n_bytes = part_of(path.name), 0
    for name in part.names() if part else (path.name,):
        with GgufFile(path.with_name(name)) as file:
            for tensor in file.tensors:
                if next((is_cpu for pattern, is_cpu in patterns if pattern.search(tensor.name)), False):
                    n_bytes += tensor.n_bytes
    return n_bytes


def _buffers() -> dict[str, int]:
    """The buffers of all devices, by name."""
    device = function("ggml_backend_dev_get", c_void_p, c_size_t)
    buffer = function("ggml_backend_dev_buffer_type", c_void_p, c_void_p)
    name = function("ggml_backend_buft_name", c_char_p, c_void_p)
    found = (buffer(device(i)) for i in range(function("ggml_backend_dev_count", c_size_t)()))
    return {name(one).decode(): int(one) for one in found if one}
