"""Which tensors lie in which buffer, where a user says so: experts beside the CPU while the rest is on a GPU."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from ctypes import c_char, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from uad.base.common import children
from uad.base.config import Place
from uad.base.errors import ConfigError
from uad.base.gguf import all_tensors
from uad.llama.backend import native
from uad.llama.backend.ggml import function
from uad.llama.backend.symbols import VERSIONS, TensorPlace
from uad.llama.rearranged import patterns

CHILD = "uad.llama.placing"
CPU = "CPU"
_ALIGNMENT_BYTES = 64  # of memory that buffers are made of
_SECONDS = 60


def put(params: Any, places: Sequence[Place], plain: Sequence[str] = ()) -> None:
    """Write them into llama.cpp's parameters of a model. plain: names of tensors that lie in plain memory.

    Raises ConfigError for a buffer that is not there, naming those that are, and where the installed llama.cpp has
    another list of places than it is handed here.
    """
    if (places or plain) and not is_understood():
        flag, out = ("--override-tensor", "leave it out") if places else ("--repack", "give --no-repack")
        raise ConfigError(
            f"{flag}: llama-cpp-python {native.build_info()} does not put tensors where it is told; uad needs "
            f"{VERSIONS}, or {out}"
        )
    fill(params, places, plain)


@cache
def is_understood() -> bool:
    """Whether llama.cpp reads lists of places as they are laid out here, tried in another process: it would follow
    wrong pointers.
    """
    native.start()
    try:
        done = children.run(CHILD, seconds=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def fill(params: Any, places: Sequence[Place], plain: Sequence[str] = ()) -> None:
    """The same without trying whether llama.cpp understands it, for processes that may end by it."""
    if not places and not plain:
        return
    device = function("ggml_backend_dev_get")
    buffer_of = function("ggml_backend_dev_buffer_type")
    name = function("ggml_backend_buft_name")
    devices = range(function("ggml_backend_dev_count")())
    there = {name(buffer).decode(): int(buffer) for buffer in (buffer_of(device(i)) for i in devices) if buffer}
    for place in places:
        if place.buffer not in there:
            raise ConfigError(f"--override-tensor: there is no buffer {place.buffer!r}; there are {', '.join(there)}")
    # the first that fits a name counts. With blk.0.attn_k_b.weight plain and `-ot attn=CUDA0`, that one tensor stays
    # plain, and all others of attention go to the GPU
    listed = [(pattern, _plain_buffer()) for pattern in patterns(plain)]
    listed += [(place.pattern, there[place.buffer]) for place in places]
    pairs = (TensorPlace * (len(listed) + 1))()
    for pair, (pattern, buffer) in zip(pairs, listed, strict=False):
        pair.pattern, pair.buffer = pattern.encode(), buffer
    params.tensor_buft_overrides = ctypes.cast(pairs, c_void_p)
    params.pairs = pairs  # llama.cpp reads them while it loads


def bytes_beside_cpu(path: Path, places: Sequence[Place]) -> int:
    """Bytes of the model's tensors that are kept from devices; the first pattern that fits a name is the one."""
    if not places:
        return 0
    patterns = [(re.compile(place.pattern), place.buffer == CPU) for place in places]

    def is_beside(name: str) -> bool:
        return next((is_cpu for pattern, is_cpu in patterns if pattern.search(name)), False)

    return sum(tensor.n_bytes for tensor in all_tensors(path) if is_beside(tensor.name))


@cache
def _plain_buffer() -> int:
    """Memory in which nothing is rearranged: that of mapped files. In "CPU" llama.cpp does so all the same."""
    # a buffer over memory of ours shows llama.cpp's kind of such buffers. It must be aligned: within any 128 bytes
    # there are 64 that are
    memory = (c_char * (2 * _ALIGNMENT_BYTES))()
    address = -(-ctypes.addressof(memory) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    buffer = function("ggml_backend_cpu_buffer_from_ptr")(address, _ALIGNMENT_BYTES)
    kind = int(function("ggml_backend_buffer_get_type")(buffer))
    function("ggml_backend_buffer_free")(buffer)
    return kind
