"""The process that finds out which weights of a model cannot be rearranged (`rearranged.py`): llama.cpp may end it.

It loads the model without weights twice: as it is in the file, to look for operations in its graphs that a buffer of
rearranged weights would refuse; then rearranged, without the weights that were found. Nothing here may run in a process
that serves: the graph's structures are read in place, as llama.cpp 0.3.36 lays them out.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from ctypes import c_int64
from dataclasses import replace
from typing import Any

import llama_cpp.llama_cpp as lib

from uad.base.config import ModelConfig
from uad.llama import nextn, placement
from uad.llama.backend import native
from uad.llama.backend.devices import extra_buffers
from uad.llama.backend.ggml import function, has
from uad.llama.backend.symbols import CPU_DEVICE, TYPES, UNSTABLE, WEIGHTS, InitParams, NativeTensor
from uad.llama.context import context_params
from uad.llama.head_file import head_in
from uad.llama.kernels import use as kernels
from uad.llama.kernels.library import BUFFER
from uad.llama.model import model_params
from uad.llama.rearranged import ONLY_TRY

_N_CTX, _MANY, _ROWS = 512, 4, 16  # positions of a sequence, sequences, and rows of each in a pass
_F32 = TYPES["f32"]
# views move nothing; an embedding that is also the output's matrix is loaded once more for that
_NO_USE = (b"NONE", b"RESHAPE", b"VIEW", b"PERMUTE", b"TRANSPOSE", b"GET_ROWS")


def main() -> int:
    """Print the names of weights that cannot be rearranged, and try the others. Ends as llama.cpp does otherwise."""
    config: ModelConfig = pickle.load(sys.stdin.buffer)
    native.start()
    kernels.before_load(config)
    names = () if ONLY_TRY in sys.argv else sorted(set(refused(config)))
    print(json.dumps(names), flush=True)
    for _ in contexts(config, names):
        pass
    return 0


def refused(config: ModelConfig) -> Iterator[str]:
    """Names of the weights that a buffer would take, and whose use in a graph it would refuse."""
    if not can_look():
        return
    reserve = function(next(name for name in UNSTABLE if has(name)))
    with closing(Buffers()) as buffers:
        for context, n_seq in contexts(replace(config, repack=False), None):
            kernels.before_load(config)  # whose buffers are asked, though nothing lies in them
            for n in (n_seq, n_seq * _ROWS):
                if graph := reserve(context, n, n_seq, n):
                    yield from buffers.refused(graph)


def can_look() -> bool:
    """Whether this llama.cpp shows its graphs, and its tensors look as they are read here."""
    if not any(map(has, UNSTABLE)):
        return False
    with closing(Scratch()) as scratch:
        weight, x = scratch.tensor(_F32, 8, 4), scratch.tensor(_F32, 8, 2)
        function("ggml_set_name")(weight, b"weight")
        product, view = scratch.product(weight, x), function("ggml_view_tensor")
        a, c, d = (NativeTensor.from_address(tensor) for tensor in (weight, product, view(scratch.handle, weight)))
        known = (a.name, [*a.ne], a.type, a.buffer, [*c.src][:3], d.view_src)
        return known == (b"weight", [8, 4, 1, 1], _F32, None, [weight, x, None], weight)


# Why it looks at operations: deepseek2 multiplies q, permuted, by `attn_k_b`. llama.cpp asks a buffer only whether it
# can multiply some contiguous matrix by the weight; AMX can, takes it, and gives up in the first pass.
def contexts(config: ModelConfig, plain: Sequence[str] | None) -> Iterator[tuple[Any, int]]:
    """Contexts of all shapes on the model without its weights, and how many sequences they have; plain: the names of
    those that are not rearranged, None for all.
    """
    params = model_params(replace(config, repack=False))
    params.load_mode, params.check_tensors, params.no_alloc = 0, False, True
    if plain is not None:
        params.use_extra_bufts = True
        kernels.before_load(config)
        placement.fill(params, config.places, plain)
    model = lib.llama_model_load_from_file(os.fsencode(config.path), params)
    if not model:
        return  # loading it in earnest will say why
    head = head_in(config.path)
    try:
        for n_seq in (config.n_seq,) if config.n_seq else (1, _MANY):
            for is_head in (False, True):
                # the model's own context, unless the file holds a head alone, and the head's, where it is to run
                if (is_head and config.with_head) or not (is_head or (head is not None and head.is_alone)):
                    wanted = context_params(config, _N_CTX * n_seq, n_seq)
                    if is_head:
                        nextn.make_head(wanted, None)
                    if context := lib.llama_init_from_model(model, wanted):
                        yield context, n_seq
                        lib.llama_free(context)
    finally:
        lib.llama_model_free(model)


class Scratch:
    """A place for tensors without data."""

    def __init__(self) -> None:
        self.handle = function("ggml_init")(InitParams(1 << 16, None, True))

    def tensor(self, kind: int, *sizes: int) -> int:
        """A tensor of this type and these sizes."""
        ne = (c_int64 * len(sizes))(*sizes)
        return int(function("ggml_new_tensor")(self.handle, kind, len(sizes), ne))

    def product(self, weight: int, x: int) -> int:
        """The product of two tensors, as an operation of a graph."""
        return int(function("ggml_mul_mat")(self.handle, weight, x))

    def close(self) -> None:
        function("ggml_free")(self.handle)


class Buffers:
    """Empty buffers of all kinds that hold rearranged weights, which say what they support."""

    def __init__(self) -> None:
        self._device = function("ggml_backend_dev_by_type")(CPU_DEVICE)
        new = function("ggml_backend_buft_alloc_buffer")
        self.by_name = {name: int(new(kind, 0)) for name, kind in extra_buffers(self._device).items()}
        self._supports = function("ggml_backend_dev_supports_op")

    def close(self) -> None:
        for buffer in self.by_name.values():
            function("ggml_backend_buffer_free")(buffer)

    def refused(self, graph: int) -> Iterator[str]:
        """Names of the weights in a graph that one of the buffers would take, and whose use there it would refuse."""
        uses: dict[int, list[tuple[int, bool]]] = {}
        factors: set[int] = set()
        node_at = function("ggml_graph_node")
        describe = function("ggml_op_desc")
        for i in range(function("ggml_graph_n_nodes")(graph)):
            node = node_at(graph, i)
            kind, sources = describe(node), [source for source in NativeTensor.from_address(node).src if source]
            if kind in _NO_USE:
                continue
            for k, source in enumerate(sources):
                weight = NativeTensor.from_address(source).view_src or source  # the tensor that a view looks into
                if _is_weight(weight):
                    uses.setdefault(weight, []).append((node, weight != source))
                    factors |= {weight} if kind == b"MUL_MAT" and k == 0 else set()
        for weight in factors:
            taker = next((name for name in self.by_name if self.takes(weight, name)), None)  # the first one gets it
            if taker is not None and not self.does(weight, uses[weight], taker):
                yield NativeTensor.from_address(weight).name.decode()

    def takes(self, weight: int, name: str) -> bool:
        """Whether llama.cpp would put it there: as it asks, a product with any matrix."""
        with closing(Scratch()) as scratch:
            sizes = NativeTensor.from_address(weight).ne
            return self._can(scratch.product(weight, scratch.tensor(_F32, sizes[0], 512, *sizes[2:])), weight, name)

    def does(self, weight: int, uses: Sequence[tuple[int, bool]], name: str) -> bool:
        """Whether all operations are supported there, and computed rightly.

        A view into rearranged weights would read them wrongly; uad's kernels can read rows of theirs. And of a product
        with several matrices, as recurrent models have one for each sequence, llama.cpp's AMX kernels compute the first
        alone: they add offsets in bytes to pointers to numbers, and go beyond a weight that all matrices share (0.3.36,
        ggml-cpu/amx/mmq.cpp).
        """
        return all(
            (not is_view or name == BUFFER)
            and self._can(node, weight, name)
            and not (name == "AMX" and _n_matrices(node) > 1)
            for node, is_view in uses
        )

    def _can(self, node: int, weight: int, name: str) -> bool:
        with _in_buffer(node, weight, self.by_name[name]):
            return bool(self._supports(self._device, node))


@contextmanager
def _in_buffer(node: int, weight: int, buffer: int) -> Iterator[None]:
    """The weight lies in this buffer, and the operation's other sources nowhere yet."""
    sources = [NativeTensor.from_address(source) for source in NativeTensor.from_address(node).src if source]
    before = [source.buffer for source in sources]
    for source in sources:
        source.buffer = buffer if weight in (ctypes.addressof(source), source.view_src) else None
    try:
        yield
    finally:
        for source, was in zip(sources, before, strict=True):
            source.buffer = was


def _n_matrices(tensor: int) -> int:
    ne = NativeTensor.from_address(tensor).ne
    return int(ne[2] * ne[3])


def _is_weight(tensor: int) -> bool:
    """Whether it is a weight in this machine's memory."""
    buffer = NativeTensor.from_address(tensor).buffer
    return bool(
        buffer
        and function("ggml_backend_buffer_get_usage")(buffer) == WEIGHTS
        and function("ggml_backend_buffer_is_host")(buffer)
    )


if __name__ == "__main__":
    sys.exit(main())
