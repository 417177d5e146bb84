"""Whether llama.cpp's kernels for Intel's matrix units (AMX) work in this build. Knows no model.

GCC up to 12 at least drops the configuration that llama.cpp gives those units (its header tells the optimiser that only
the first 8 bytes are read): the first pass of several rows through a quantized weight then ends the process (llama.cpp
issue 20824). `scripts/amx.h` keeps the configuration; where a build without it is found, weights are not rearranged for
this processor, and AMX is not used. Where uad's kernels compute, they have taken these units' buffers off llama.cpp's
list (kernels/src/library.cpp), and nothing is tried.

This module can go once VERSIONS (`symbols.py`) begins with a llama.cpp that keeps the configuration under every GCC it
compiles with: when issue 20824 is closed by a change of ggml-cpu/amx.
"""

from __future__ import annotations

import subprocess
import sys
from ctypes import c_void_p
from functools import cache
from typing import Any

import numpy as np

from uad.base.common import children
from uad.base.config import ModelConfig
from uad.llama.backend import native
from uad.llama.backend.abort import GAVE_UP
from uad.llama.backend.devices import extra_buffers
from uad.llama.backend.ggml import function as _ggml
from uad.llama.backend.symbols import CPU_DEVICE, InitParams

_BUFFER = "AMX"
_Q8_0, _BLOCK = 8, 32  # ggml's number of the type; weights that share a scale
_ROWS, _WIDTH, _N_INPUTS = 64, 64, 2
_SECONDS = 60
_WRONG = 3  # exit code; Python's own for an exception is 1, which says nothing about AMX
BROKEN = (
    "the AMX units of this processor are left alone: llama.cpp as it was compiled here crashes on them (its issue "
    "20824); "
    "`make clean serve` in a checkout builds one that uses them: drafts gain more there"
)


def rearranges(config: ModelConfig) -> bool:
    """Whether llama.cpp may rearrange a model's weights for the units of this processor."""
    return config.repack and not is_broken()


def is_broken() -> bool:
    """Whether weights may come into buffers for AMX that end the process. To be asked once uad's kernels are
    registered: llama.cpp copies its list of buffers when it is first read.
    """
    native.start()
    return _BUFFER in extra_buffers(_ggml("ggml_backend_dev_by_type")(CPU_DEVICE)) and _crashes()


@cache
def _crashes() -> bool:
    """Whether a multiplication on AMX ends a process, tried in another one (half a second, only where there is AMX)."""
    try:
        done = children.run(__name__, seconds=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode < 0 or done.returncode == _WRONG or GAVE_UP.encode() in done.stderr


def notes() -> tuple[str, ...]:
    """The line at start where AMX is left alone."""
    return (BROKEN,) if is_broken() else ()


@cache
def choosy_buffers() -> frozenset[str]:
    """Names of buffers of rearranged weights that may refuse what a model does with a weight they took. Those of
    CPU_REPACK, and of uad's kernels, ask for no more than the weight's type and sizes.
    """
    native.start()
    return frozenset(extra_buffers(_ggml("ggml_backend_dev_by_type")(CPU_DEVICE))) - {"CPU_REPACK", "CPU_UAD"}


def multiply() -> np.ndarray[Any, np.dtype[np.float32]] | None:
    """Sums of 64 ones, [2, 64], by a Q8_0 weight in an AMX buffer; None without such a buffer. May end the process."""
    native.start()
    device = _ggml("ggml_backend_dev_by_type")(CPU_DEVICE)
    place = extra_buffers(device).get(_BUFFER)
    if place is None:
        return None
    init, tensor = _ggml("ggml_init"), _ggml("ggml_new_tensor_2d")
    put, get = _ggml("ggml_backend_tensor_set"), _ggml("ggml_backend_tensor_get")
    weights, graph_of = init(InitParams(1 << 16, None, True)), init(InitParams(1 << 20, None, True))
    weight, x = tensor(weights, _Q8_0, _WIDTH, _ROWS), tensor(graph_of, 0, _WIDTH, _N_INPUTS)
    y = _ggml("ggml_mul_mat")(graph_of, weight, x)
    graph = _ggml("ggml_new_graph")(graph_of)
    _ggml("ggml_build_forward_expand")(graph, y)
    backend = _ggml("ggml_backend_dev_init")(device, None)
    _ggml("ggml_backend_alloc_ctx_tensors_from_buft")(weights, place)
    _ggml("ggml_backend_alloc_ctx_tensors")(graph_of, backend)
    # a block of Q8_0 is a scale of 16 bits and 32 bytes, here 1.0 and 32 ones: each row of 64 weights is two blocks
    blocks = (np.float16(1).tobytes() + b"\x01" * _BLOCK) * (_ROWS * _WIDTH // _BLOCK)
    put(weight, blocks, 0, len(blocks))
    ones = np.ones((_N_INPUTS, _WIDTH), np.float32).tobytes()
    put(x, ones, 0, len(ones))
    _ggml("ggml_backend_graph_compute")(backend, graph)
    out = np.empty((_N_INPUTS, _ROWS), np.float32)
    get(y, out.ctypes.data_as(c_void_p), 0, out.nbytes)
    return out


def main() -> int:
    """Exit code 0 if AMX multiplies right, or is not there."""
    out = multiply()
    return 0 if out is None or np.allclose(out, _WIDTH, rtol=0.02) else _WRONG


if __name__ == "__main__":
    sys.exit(main())
