"""A pass over a prompt is interrupted from another thread, and any cut of a prompt gives the same bits: on the bundled
models.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
from kit.models import TARGET, config
from stepper import Stepper

from uad.base.errors import AbortedError
from uad.base.types import Rows
from uad.llama.context import Context
from uad.llama.kernels import use as kernels
from uad.llama.model import Model

N = 700
CONFIG = replace(config(TARGET).target, n_ctx=1024)
PLAIN = replace(CONFIG, kernels=False)
"""In llama.cpp's kernels, where passes of 64 rows and more have other bits than smaller ones."""
pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def context():
    kernels.started()  # before a model without them
    with Model(PLAIN) as model, Context(model, PLAIN, 1) as opened:
        yield opened


def ids_of(context: Context) -> list[int]:
    return [int(i) for i in np.random.default_rng(1).integers(0, context.n_vocab, N)]


def read(context: Context, sizes: list[int], may_stop: bool = False) -> np.ndarray:
    """The logits behind the last id, the prompt cut like that."""
    context.clear(0)
    ids, at = ids_of(context), 0
    for n in sizes:
        context.decode([Rows(0, at, ids[at : at + n], int(at + n == N))], may_stop)
        at += n
    assert at == N
    return context.logits()[0].copy()


def read_for_ever(context: Context) -> None:
    while True:
        read(context, [N], may_stop=True)


@pytest.mark.parametrize("sizes", [[512, 188], [128] * 4 + [188], [64] * 9 + [124], [256, 64, 380], [448, 252]])
def test_a_prompt_has_the_same_bits_however_it_is_cut(context: Context, sizes: list[int]) -> None:
    assert np.array_equal(read(context, sizes), read(context, [N]))


def test_short_pieces_have_other_bits_than_long_ones_or_the_cut_would_not_matter(context: Context) -> None:
    assert not np.array_equal(read(context, [50] * 14), read(context, [N]))


@pytest.mark.parametrize("exact", [False, True])
def test_the_same_target_alone_reads_prompts_in_the_same_passes(exact: bool) -> None:
    given = config(TARGET, None, exact=exact)
    with Stepper.open(replace(given, target=replace(given.target, kernels=False))) as drafted, drafted.alone() as alone:
        sizes = [one._parts.target.context.n_ubatch for one in (drafted, alone)]
    assert sizes == ([60, 60] if exact else [512, 512])


def test_an_interrupted_pass_leaves_the_text_as_it_was(context: Context) -> None:
    expected = read(context, [300, 400])
    read(context, [300, 400])
    context.take_back(0, 300)
    context.interrupt()
    rows = [Rows(0, 300, ids_of(context)[300:], 1)]
    with pytest.raises(AbortedError):
        context.decode(rows, may_stop=True)
    context.take_back(0, 300)
    context.decode([Rows(0, 300, ids_of(context)[300:310], 1)])  # others cannot be stopped
    context.take_back(0, 300)
    context.interrupt(False)
    context.decode(rows, may_stop=True)
    assert np.array_equal(context.logits()[0], expected)


def test_it_stops_in_the_middle(context: Context) -> None:
    began = perf_counter()
    read(context, [N])
    whole = perf_counter() - began
    timer = threading.Timer(0.3 * whole, context.interrupt)
    timer.start()
    try:
        with pytest.raises(AbortedError):
            read_for_ever(context)
    finally:
        timer.join()
        context.interrupt(False)
