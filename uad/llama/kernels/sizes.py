"""How many bytes of a model's weights are copied into the kernels' own order, and how many they take there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from uad.base.gguf import Tensor
from uad.llama.backend.devices import extra_buffers
from uad.llama.backend.ggml import function
from uad.llama.backend.symbols import CPU_DEVICE
from uad.llama.kernels import use
from uad.llama.kernels.graphs import Tensors, types
from uad.llama.kernels.library import BUFFER

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


def copied(kernels: use.Kernels, tensors: Iterable[Tensor]) -> tuple[int, int]:
    """Bytes of a model's tensors that are no part of a mapped file any more, and what they take instead. An embedding
    stays in the file; where it is the output's matrix, too, there is a copy besides.
    """
    taken = {types()[name] for name in kernels.types}
    matrices = [tensor for tensor in tensors if tensor.kind in taken and len(tensor.shape) > 1]
    has_output = any(tensor.name == _OUTPUT for tensor in matrices)
    moved = [tensor for tensor in matrices if tensor.name != _EMBEDDING]
    again = [tensor for tensor in matrices if tensor.name == _EMBEDDING and not has_output]
    return sum(tensor.n_bytes for tensor in moved), sum(map(packed_bytes, (*moved, *again)))


def packed_bytes(tensor: Tensor) -> int:
    """Bytes that a matrix takes in the kernels' order."""
    device = function("ggml_backend_dev_by_type")(CPU_DEVICE)
    size = function("ggml_backend_buft_get_alloc_size")
    with closing(Tensors()) as scratch:
        return int(size(extra_buffers(device)[BUFFER], scratch.new(tensor.kind, *tensor.shape)))
