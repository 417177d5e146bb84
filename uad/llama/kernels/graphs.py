"""Single operations as real graphs on llama.cpp's CPU backend: what the proof, tests and measurements compute. Knows
neither models nor the library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ctypes import c_float, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from uad.base.common.arrays import Floats, Ints
from uad.base.errors import UadError
from uad.llama.backend import native
from uad.llama.backend.devices import extra_buffers
from uad.llama.backend.ggml import function, registered, type_sizes
from uad.llama.backend.symbols import CPU_DEVICE, TYPES, WEIGHTS, InitParams

F32, F16, I32 = TYPES["f32"], TYPES["f16"], TYPES["i32"]
_META_BYTES, _NODES = 1 << 10, 64  # bytes for what ggml notes of a tensor and its place in a graph
_MASK_ROWS = 64  # rows of a mask are filled up to a multiple of these
_RANDOM = (
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "iq3_xxs",
    "iq3_s",
)  # ggml needs up to half a minute to write
_SCALE = np.array([0.001], np.float16).view(np.uint8)  # of a random block: weights are between 0.001 and 0.4
_FAILED = "ggml could not compute {what} on the CPU"


class GraphError(UadError):
    """ggml refuses an operation, or ends it with an error."""


@cache
def types() -> dict[str, int]:
    """Numbers of this ggml's types, by the names that it has for them."""
    name = function("ggml_type_name")
    return {name(number).decode(): number for number in range(lib.GGML_TYPE_COUNT) if type_sizes(number)}


def block(kind: int) -> int:
    """Weights of a row that share a block: a row has a multiple of these."""
    return int(function("ggml_blck_size")(kind))


def row_bytes(kind: int, n: int) -> int:
    """Bytes of a row of n numbers."""
    return int(function("ggml_row_size")(kind, n))


def quantized(kind: int, values: Floats) -> bytes:
    """These rows as ggml writes them in a type."""
    rows = np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
    if kind == F32:
        return rows.tobytes()
    out = ctypes.create_string_buffer(row_bytes(kind, rows.shape[1]) * len(rows))
    chunk = function("ggml_quantize_chunk")
    chunk(kind, rows.ctypes.data, out, 0, *rows.shape, None)
    return out.raw


def some_weights(kind: int, values: Floats) -> bytes:
    """These rows as ggml writes them in a type; for a type that it writes slowly, as many random ones."""
    name = next(name for name, number in types().items() if number == kind)
    if name not in _RANDOM:
        return quantized(kind, values)
    shape = values.size // block(kind), row_bytes(kind, block(kind))
    blocks = np.random.default_rng(values.size).integers(0, 256, shape, np.uint8)
    if name == "iq1_m":  # has its scale in the high halves of four bytes
        blocks[:, 49::2] = blocks[:, 49::2] & 15 | np.stack([_SCALE << 4, _SCALE & 240], 1).ravel()
    else:
        blocks[:, :2] = _SCALE
    return blocks.tobytes()


class CpuBackend(native.Owner):
    """llama.cpp's CPU backend, and the kinds of buffers that it has."""

    def __init__(self) -> None:
        native.start()
        self.device = int(function("ggml_backend_dev_by_type")(CPU_DEVICE))
        self.handle: int | None = function("ggml_backend_dev_init")(self.device, None)
        registry = function("ggml_backend_dev_backend_reg")(self.device)
        self._set_threads = registered(registry, "ggml_backend_set_n_threads")
        self.plain = int(function("ggml_backend_dev_buffer_type")(self.device))
        self.buffers = extra_buffers(self.device)

    def supports(self, node: int) -> bool:
        """Whether it can compute this operation."""
        return bool(function("ggml_backend_dev_supports_op")(self.device, node))

    def compute(self, graph: int, n_threads: int, what: str) -> None:
        """Raises GraphError."""
        self._set_threads(self.handle, n_threads)
        if function("ggml_backend_graph_compute")(self.handle, graph):
            raise GraphError(_FAILED.format(what=what))

    def close(self) -> None:
        if self.handle:
            function("ggml_backend_free")(self.handle)
            self.handle = None


class Tensors(native.Owner):
    """Tensors that are made one after another, and then get their memory together. most: how many there may be."""

    def __init__(self, most: int = _NODES) -> None:
        init = function("ggml_init")
        self._most = most
        self.handle: int | None = init(InitParams(_META_BYTES * most, None, True))
        self._buffer: int | None = None

    def new(self, kind: int, *sizes: int) -> int:
        """A tensor of this type and these sizes, the innermost first."""
        ne = (c_int64 * len(sizes))(*sizes)
        make = function("ggml_new_tensor")
        return int(make(self.handle, kind, len(sizes), ne))

    def op(self, name: str, *arguments: Any) -> int:
        """The tensor that this function of ggml makes of arguments: tensors are int, sizes c_int64 or c_size_t."""
        return int(function(name)(self.handle, *arguments))

    def graph(self, *nodes: int) -> int:
        """The graph that computes these tensors."""
        new = function("ggml_new_graph_custom")
        graph = int(new(self.handle, self._most, False))
        for node in nodes:
            function("ggml_build_forward_expand")(graph, node)
        return graph

    def place(self, buffer_type: int) -> None:
        """Give all tensors their memory. Raises GraphError."""
        allocate = function("ggml_backend_alloc_ctx_tensors_from_buft")
        self._buffer = allocate(self.handle, buffer_type)
        if not self._buffer:
            raise GraphError("ggml has no memory for these tensors")

    def hold_weights(self) -> None:
        """Say of all tensors that they are weights, as llama.cpp does of a model's."""
        function("ggml_backend_buffer_set_usage")(self._buffer, WEIGHTS)

    def close(self) -> None:
        if self._buffer:
            function("ggml_backend_buffer_free")(self._buffer)
            self._buffer = None
        if self.handle:
            function("ggml_free")(self.handle)
            self.handle = None


def put(tensor: int, data: bytes) -> None:
    """Write a whole tensor."""
    write = function("ggml_backend_tensor_set")
    write(tensor, data, 0, len(data))


def get(tensor: int, shape: tuple[int, ...]) -> Floats:
    """The F32 values of a contiguous tensor; shape: its sizes, the outermost first."""
    out = np.empty(shape, np.float32)
    read = function("ggml_backend_tensor_get")
    read(tensor, out.ctypes.data_as(c_void_p), 0, out.nbytes)
    return out


# --- products


class Weight(native.Owner):
    """A matrix of [n, rows, k] weights, n of them side by side, in a kind of buffers. data: as `quantized` makes it."""

    def __init__(self, buffer_type: int, kind: int, shape: tuple[int, int, int], data: bytes) -> None:
        self.kind, self.shape = kind, shape
        self._tensors = Tensors()
        n, rows, k = shape
        self.tensor = self._tensors.new(kind, k, rows, n) if n > 1 else self._tensors.new(kind, k, rows)
        try:
            self._tensors.place(buffer_type)
            self._tensors.hold_weights()
            put(self.tensor, data)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._tensors.close()


@dataclass(frozen=True, slots=True)
class How:
    """How a product is made. is_permuted: a row's matrices lie side by side in memory, as graphs of latent attention
    have them; first, n_rows: a view of n_rows rows of the weight from `first` on (0: all).
    """

    n_threads: int = 1
    is_permuted: bool = False
    first: int = 0
    n_rows: int = 0


def product(backend: CpuBackend, weight: Weight, x: Floats, how: How = How()) -> Floats | None:
    """x @ weight.T for each matrix of x [n3, n2, n, k], with the weight shared as ggml shares it: [n3, n2, n, rows].
    None where the backend refuses that.
    """
    n3, n2, n, k = x.shape
    with closing(Tensors()) as tensors:
        if how.is_permuted:
            held = tensors.new(F32, k, n2, n, n3)
            given = tensors.op("ggml_permute", held, c_int(0), c_int(2), c_int(1), c_int(3))
        else:
            held = given = tensors.new(F32, k, n, n2, n3)
        matrix, rows = weight.tensor, weight.shape[1]
        if how.n_rows:
            stride = row_bytes(weight.kind, weight.shape[2])
            rows = how.n_rows
            sizes = c_int64(k), c_int64(rows), c_size_t(stride), c_size_t(stride * how.first)
            matrix = tensors.op("ggml_view_2d", matrix, *sizes)
        node = tensors.op("ggml_mul_mat", matrix, given)
        if not backend.supports(node):
            return None
        graph = tensors.graph(node)
        tensors.place(backend.plain)
        put(held, np.ascontiguousarray(x.swapaxes(1, 2) if how.is_permuted else x, np.float32).tobytes())
        backend.compute(graph, how.n_threads, "a product")
        return get(node, (n3, n2, n, rows))


class Product(native.Owner):
    """The product of random inputs [n, k] with a matrix of shape (rows, k) in a kind of buffers, to be computed often;
    times: in one graph. data: as `quantized` makes it; written only where the backend multiplies such a weight there.
    """

    def __init__(
        self, backend: CpuBackend, buffer_type: int, kind: int, shape: tuple[int, int], data: bytes, n: int, times: int
    ) -> None:
        self._backend, self._weights, self._tensors = backend, Tensors(), Tensors()
        try:
            weight = self._weights.new(kind, *reversed(shape))
            self._weights.place(buffer_type)
            self._weights.hold_weights()
            given = self._tensors.new(F32, shape[1], n)
            nodes = [self._tensors.op("ggml_mul_mat", weight, given) for _ in range(times)]
            self.is_supported = backend.supports(nodes[0])
            if self.is_supported:
                put(weight, data)
                self._graph = self._tensors.graph(*nodes)
                self._tensors.place(backend.plain)
                put(given, np.random.default_rng(0).standard_normal((n, shape[1]), np.float32).tobytes())
        except BaseException:
            self.close()
            raise

    def compute(self, n_threads: int) -> None:
        """Raises GraphError."""
        self._backend.compute(self._graph, n_threads, "a product")

    def close(self) -> None:
        self._tensors.close()
        self._weights.close()


def experts(backend: CpuBackend, weight: Weight, x: Floats, ids: Ints, n_threads: int = 1) -> Floats | None:
    """Rows x [n, m, k] by the experts that each row uses, ids [n, used]; m is 1 or used: [n, used, rows]. None where
    the backend refuses that.
    """
    with closing(Tensors()) as tensors:
        given, chosen = tensors.new(F32, *reversed(x.shape)), tensors.new(I32, *reversed(ids.shape))
        node = tensors.op("ggml_mul_mat_id", weight.tensor, given, chosen)
        if not backend.supports(node):
            return None
        graph = tensors.graph(node)
        tensors.place(backend.plain)
        put(given, np.ascontiguousarray(x, np.float32).tobytes())
        put(chosen, np.ascontiguousarray(ids, np.int32).tobytes())
        backend.compute(graph, n_threads, "a product with experts")
        return get(node, (*ids.shape, weight.shape[1]))


def values_of(backend: CpuBackend, weight: Weight) -> Floats:
    """The numbers that the weights of a matrix in plain memory stand for, [n, rows, k]."""
    n, rows, k = weight.shape
    with closing(Tensors()) as tensors:
        matrix = tensors.op("ggml_reshape_2d", weight.tensor, c_int64(k), c_int64(n * rows))
        wanted = tensors.new(I32, n * rows)
        node = tensors.op("ggml_get_rows", matrix, wanted)
        graph = tensors.graph(node)
        tensors.place(backend.plain)
        put(wanted, np.arange(n * rows, dtype=np.int32).tobytes())
        backend.compute(graph, 1, "rows")
        return get(node, weight.shape)


def activation_product(backend: CpuBackend, kind: str, a: Floats, b: Floats, n_threads: int = 1) -> Floats | None:
    """b @ a.T of two activations, a of a type: a [n3, n2, rows, k], b [n3, m2, n, k] with m2 a multiple of n2, laid out
    as graphs have queries: [n3, m2, n, rows]. None where the backend refuses that.
    """
    with closing(Tensors()) as tensors:
        given = tensors.new(types()[kind], *reversed(a.shape))
        held, given_b = _permuted(tensors, F32, b.swapaxes(1, 2))
        node = tensors.op("ggml_mul_mat", given, given_b)
        if not backend.supports(node):
            return None
        graph = tensors.graph(node)
        tensors.place(backend.plain)
        put(given, quantized(types()[kind], a))
        put(held, np.ascontiguousarray(b.swapaxes(1, 2)).tobytes())
        backend.compute(graph, n_threads, "a product of activations")
        return get(node, (*b.shape[:3], a.shape[2]))


# --- attention


@dataclass(frozen=True, slots=True)
class Attention:
    """One case of attention. kind_k, kind_v: types of keys and values; heads: of queries, and of keys; width: of a
    head of keys and of values; cells: of each stream. bias, cap: ALiBi's and the cap of logits, 0 for none; has_sinks:
    each head has a logit without a value; window: cells before its own that a row sees, 0 for all.
    """

    kind_k: str = "f16"
    kind_v: str = "f16"
    heads: tuple[int, int] = (4, 2)
    width: tuple[int, int] = (64, 64)
    cells: int = 64
    n_streams: int = 1
    bias: float = 0.0
    cap: float = 0.0
    has_sinks: bool = False
    window: int = 0


@dataclass(frozen=True, slots=True)
class Queries:
    """Rows of attention over a cache. q [streams, n, heads, width], k, v [streams, cells, heads, width]; mask [streams,
    n, cells]: what is added to logits, -inf hides a cell; sinks [heads].
    """

    case: Attention
    q: Floats
    k: Floats
    v: Floats
    mask: Floats
    sinks: Floats

    def alone(self, i: int) -> Queries:
        """Row i of each stream."""
        return replace(self, q=self.q[:, i : i + 1], mask=self.mask[:, i : i + 1])

    def first(self, n: int) -> Queries:
        """The first n rows of each stream."""
        return replace(self, q=self.q[:, :n], mask=self.mask[:, :n])


def queries(case: Attention, n: int, random: np.random.Generator) -> Queries:
    """Random ones: the last n positions of texts that fill most of the cells."""
    heads, kv_heads = case.heads
    used = max(case.cells - case.cells // 5, n)
    at = np.arange(used - n, used)[:, None]
    cells = np.arange(case.cells)[None, :]
    is_hidden = cells > at
    if case.window:
        is_hidden |= cells <= at - case.window
    mask = np.where(is_hidden, -np.inf, 0.0 if not case.bias else (cells - at)).astype(np.float32)
    sizes = {"q": (n, heads, case.width[0]), "k": (case.cells, kv_heads, case.width[0])}
    sizes["v"] = (case.cells, kv_heads, case.width[1])
    made = {name: random.standard_normal((case.n_streams, *shape), np.float32) for name, shape in sizes.items()}
    sinks = random.standard_normal(heads, np.float32)
    return Queries(case, **made, mask=np.repeat(mask[None], case.n_streams, 0), sinks=sinks)


def attend(backend: CpuBackend, given: Queries, n_threads: int = 1) -> Floats | None:
    """[streams, n, heads, width] of flash attention, laid out as llama.cpp's graphs have it. None where the backend
    refuses that.
    """
    case = given.case
    with closing(Tensors()) as tensors:
        q, q_node = _permuted(tensors, F32, given.q)
        k, k_node = _permuted(tensors, types()[case.kind_k], given.k)
        v, v_node = _permuted(tensors, types()[case.kind_v], given.v)
        n = given.q.shape[1]
        n_mask = -(-n // _MASK_ROWS) * _MASK_ROWS
        mask = tensors.new(F16, case.cells, n_mask, 1, case.n_streams)
        numbers = c_float(case.width[0] ** -0.5), c_float(case.bias), c_float(case.cap)
        node = tensors.op("ggml_flash_attn_ext", q_node, k_node, v_node, mask, *numbers)
        sinks = tensors.new(F32, case.heads[0])
        if case.has_sinks:
            function("ggml_flash_attn_ext_add_sinks")(node, sinks)
        if not backend.supports(node):
            return None
        graph = tensors.graph(node)
        tensors.place(backend.plain)
        put(q, np.ascontiguousarray(given.q).tobytes())
        put(k, quantized(types()[case.kind_k], given.k))
        put(v, quantized(types()[case.kind_v], given.v))
        rows = np.full((case.n_streams, n_mask, case.cells), -np.inf, np.float16)
        rows[:, :n] = given.mask
        put(mask, rows.tobytes())
        put(sinks, given.sinks.tobytes())
        backend.compute(graph, n_threads, "attention")
        return get(node, (case.n_streams, n, case.heads[0], case.width[1]))


def _permuted(tensors: Tensors, kind: int, values: Floats) -> tuple[int, int]:
    """A tensor for values [streams, n, heads, width], and its view in which heads lie outside rows."""
    held = tensors.new(kind, *reversed(values.shape))
    return held, tensors.op("ggml_permute", held, c_int(0), c_int(2), c_int(1), c_int(3))


@contextmanager
def weights(backend: CpuBackend, kind: int, values: Floats, *buffer_types: int) -> Iterator[tuple[Weight, ...]]:
    """The matrices [n, rows, k], made once by `some_weights`, in buffers of each of these kinds."""
    data = some_weights(kind, values)
    made: list[Weight] = []
    shape = (values.shape[0], values.shape[1], values.shape[2])
    try:
        for buffer_type in buffer_types:
            made.append(Weight(buffer_type, kind, shape, data))
        yield tuple(made)
    finally:
        for weight in made:
            weight.close()
