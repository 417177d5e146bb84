"""Products of the installed kernels, of any type, shape, layout and number of rows and threads: each row has the bits
that it has alone, and results are as near to exact ones as llama.cpp's.

2,000 examples in all; UAD_KERNEL_EXAMPLES=50000 has more of them, UAD_KERNELS another kind of processor.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uad.base.common.arrays import Floats
from uad.base.config import ModelConfig
from uad.llama.kernels import graphs, library, use
from uad.llama.kernels.graphs import CpuBackend, How, Weight, types

pytestmark = pytest.mark.model

FLOATS = ("bf16", "f16", "f32")
ACTIVATIONS = ("q8_1", "q8_K")  # ggml's own, of which no file has weights
TYPES = tuple(name for name in types() if name not in (*FLOATS, *ACTIVATIONS) and graphs.block(types()[name]) > 1)
EXAMPLES = int(os.environ.get("UAD_KERNEL_EXAMPLES", 2000))
EACH = max(1, EXAMPLES // (2 * len(TYPES + FLOATS)))  # of a type, products and experts
QUICK = settings(
    max_examples=EACH,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
)
MOST_WORK = 1 << 22  # multiplications of an example
FAR = {"bf16": 0.01, "f16": 1e-3, "f32": 1e-5}
_errors: dict[str, list[tuple[float, float]]] = defaultdict(list)


@pytest.fixture(scope="module")
def backend() -> Iterator[CpuBackend]:
    kernels = use.of(ModelConfig(Path(__file__)))
    if kernels.library is None:
        pytest.skip(kernels.note())
    kernels.take_over(kernels.types)
    with CpuBackend() as one:
        yield one


def sizes(draw: st.DrawFn, kind: int) -> tuple[int, int, int]:
    """Rows of inputs, rows of weights, and columns: a multiple of what a block holds, and no other number."""
    block = graphs.block(kind)
    most = 9 if block > 1 else 300
    k = block * draw(st.integers(1, most if block < 256 else 4))
    rows = draw(st.integers(1, 150))
    n = draw(st.one_of(st.integers(1, 20), st.integers(1, 512)))
    return max(1, min(n, MOST_WORK // (k * rows))), rows, k


@contextmanager
def pair(backend: CpuBackend, name: str, values: Floats) -> Iterator[tuple[Weight, Weight]]:
    with graphs.weights(backend, types()[name], values, backend.buffers[library.BUFFER], backend.plain) as (own, plain):
        yield own, plain


def inputs(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    scale = random.uniform(0.01, 30, (*shape[:-1], 1))
    x = random.standard_normal(shape) * scale
    x.flat[:: max(7, shape[-1] // 2)] *= 5
    return x.astype(np.float32)


def same(a: Floats | None, b: Floats | None) -> bool:
    assert a is not None
    assert b is not None
    return bool(np.array_equal(np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32)))


def note_errors(name: str, own: Floats, theirs: Floats | None, exact: np.ndarray, size: np.ndarray) -> None:
    """Neither is far off; all examples together are compared by `test_all_errors_together`. size: what a result of each
    row is like, since a single one may be near 0.
    """
    assert theirs is not None
    errors = [float(np.sqrt(np.mean(((one - exact) / size) ** 2))) for one in (own, theirs)]
    _errors[name].append((errors[0], errors[1]))
    assert errors[0] <= max(FAR.get(name, 0.03), 2 * errors[1])


def sizes_of(x: Floats, weights: np.ndarray) -> np.ndarray:
    """Lengths of the rows of inputs, times the size of a weight."""
    return np.linalg.norm(x.astype(np.float64), axis=-1, keepdims=True) * float(np.sqrt(np.mean(weights**2)))


def counted(what: str) -> int:
    return use.counts()[what]


@pytest.mark.parametrize("name", TYPES + FLOATS)
@QUICK
@given(data=st.data())
def test_a_row_has_its_bits_in_every_product(name: str, data: st.DataObject, backend: CpuBackend) -> None:
    draw = data.draw
    n, rows, k = sizes(draw, types()[name])
    n_weights, repeated, n3 = draw(st.sampled_from([(1, 1, 1), (1, 3, 2), (2, 1, 1), (2, 2, 2)]))
    is_permuted, n_threads = draw(st.booleans()), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    values = (random.standard_normal((n_weights, rows, k)) * 0.1).astype(np.float32)
    x = inputs(random, (n3, n_weights * repeated, n, k))
    with pair(backend, name, values) as (own, plain):
        before = counted("products")
        found = graphs.product(backend, own, x, How(n_threads, is_permuted))
        assert counted("products") > before
        assert found is not None
        at = draw(st.integers(0, n - 1))
        alone = graphs.product(backend, own, x[:, :, at : at + 1], How())
        assert same(found[:, :, at : at + 1], alone)
        i, j = draw(st.integers(0, n3 - 1)), draw(st.integers(0, x.shape[1] - 1))
        if n_weights == 1:  # one row of one matrix, without neighbours of any kind
            assert same(found[i, j, at], graphs.product(backend, own, x[i : i + 1, j : j + 1, at : at + 1])[0, 0, 0])  # type: ignore[index]
        a, b = sorted((at, draw(st.integers(0, n - 1))))
        assert same(found[:, :, a : b + 1], graphs.product(backend, own, x[:, :, a : b + 1], How(1)))
        exact_weights = graphs.values_of(backend, plain).astype(np.float64).repeat(repeated, 0)
        exact = np.einsum("ambk,mrk->ambr", x.astype(np.float64), exact_weights)
        note_errors(name, found, graphs.product(backend, plain, x), exact, sizes_of(x, exact_weights))


@pytest.mark.parametrize("name", TYPES + FLOATS)
@QUICK
@given(data=st.data())
def test_a_row_has_its_bits_with_any_experts(name: str, data: st.DataObject, backend: CpuBackend) -> None:
    draw = data.draw
    n, rows, k = sizes(draw, types()[name])
    n_experts = draw(st.integers(2, 6))
    n_used = draw(st.integers(1, n_experts))
    n = max(1, n // n_used)
    random = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    values = (random.standard_normal((n_experts, rows, k)) * 0.1).astype(np.float32)
    x = inputs(random, (n, draw(st.sampled_from((1, n_used))), k))
    ids = np.stack([random.permutation(n_experts)[:n_used] for _ in range(n)]).astype(np.int32)
    with pair(backend, name, values) as (own, plain):
        before = counted("experts")
        found = graphs.experts(backend, own, x, ids, draw(st.integers(1, 4)))
        assert counted("experts") > before
        assert found is not None
        at = draw(st.integers(0, n - 1))
        assert same(found[at : at + 1], graphs.experts(backend, own, x[at : at + 1], ids[at : at + 1]))
        matrices = graphs.values_of(backend, plain).astype(np.float64)[ids]
        exact = np.einsum("nurk,nuk->nur", matrices, np.broadcast_to(x, (n, n_used, k)).astype(np.float64))
        note_errors(name, found, graphs.experts(backend, plain, x, ids), exact, sizes_of(x, matrices))


@pytest.mark.parametrize("name", TYPES + FLOATS)
def test_rows_of_a_weight_can_be_multiplied_alone(name: str, backend: CpuBackend) -> None:
    """Graphs that split a matrix (q, k and v in one) view its rows."""
    random = np.random.default_rng(5)
    k = graphs.block(types()[name]) * 2 if graphs.block(types()[name]) > 1 else 96
    values = random.standard_normal((1, 192, k)).astype(np.float32)
    x = inputs(random, (1, 1, 5, k))
    with pair(backend, name, values) as (own, _):
        whole = graphs.product(backend, own, x)
        for first, n in ((0, 64), (64, 128), (128, 64)):
            part = graphs.product(backend, own, x, How(2, first=first, n_rows=n))
            assert same(part, whole[..., first : first + n])  # type: ignore[index]


@pytest.mark.parametrize("name", TYPES + FLOATS)
def test_all_errors_together_are_not_above_llama_cpps(name: str) -> None:
    """Of what the tests above computed, in this process."""
    if len(_errors[name]) < EACH:
        pytest.skip("the tests of products did not run in this process")
    own, theirs = (float(np.mean(one)) for one in zip(*_errors[name], strict=True))
    assert own <= 1.02 * theirs + 1e-6
