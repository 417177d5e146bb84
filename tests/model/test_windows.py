"""Caches of sliding windows: a text that goes on from a copy, or after wrong ids, has the bits of one that was read in
one go. Each position then lies in the cell where reading puts it, since attention adds cells in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.tiny_models import make
from numpy.typing import NDArray

from uad.base.config import KvOverride, ModelConfig
from uad.base.errors import AbortedError
from uad.base.types import Rows
from uad.llama.context import Context
from uad.llama.memory import SequenceCopies
from uad.llama.model import Model

pytestmark = pytest.mark.model
CELLS = 256
"""Of the window's cache."""
IDS = [3 + (7 * i * i + 31) % 190 for i in range(1400)]
OTHER = [3 + (11 * i * i + 5) % 190 for i in range(1400)]
ENDS = (20, 203, 254, 256, 270, 300, 511, 700)
Logits = NDArray[np.float32]


PARTS: tuple[tuple[str, dict], ...] = (
    ("gemma3", {}),
    ("gemma3", {"flash_attn": "off"}),
    ("gemma3", {"swa_full": True}),
    ("gemma3", {"kernels": False}),
    ("lfm2", {"overrides": (KvOverride("lfm2.attention.sliding_window", 32),)}),
)
"""Models and fields: the last one has a recurrent state beside its window."""


@pytest.fixture(scope="module", params=PARTS, ids=lambda part: "-".join((part[0], *part[1])))
def context(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    name, fields = request.param
    path: Path = make(name, tmp_path_factory.mktemp("windows"))
    own = ModelConfig(path, n_ctx=3072, n_threads=1, n_ubatch=64, n_checkpoints=4, n_snapshots=8, **fields)
    with Model(own) as model, Context(model, own, 2) as one:
        yield one


def read(context: Context, begin: int, end: int, ids: list[int] = IDS, seq: int = 0) -> Logits:
    """The last row's logits; passes of 64 ids at most, as a prompt's."""
    for first in range(begin, end, 64):
        context.decode([Rows(seq, first, tuple(ids[first : min(first + 64, end)]), 1)])
    return context.logits()[-1].copy()


def following(context: Context, end: int, seq: int = 0) -> list[Logits]:
    """Logits of some rows after `end`: of single ones, and after the cache was filled again."""
    singles = [read(context, i, i + 1, seq=seq) for i in range(end, end + 3)]
    return [*singles, *(read(context, i, i + 97, seq=seq) for i in range(end + 3, end + 300, 97))]


def fresh(context: Context, end: int, seq: int = 0) -> list[Logits]:
    context.clear(seq)
    read(context, 0, end, seq=seq)
    return following(context, end, seq)


def same(found: list[Logits], wanted: list[Logits]) -> None:
    assert [bool((a == b).all()) for a, b in zip(found, wanted, strict=True)] == [True] * len(wanted)


@pytest.mark.parametrize("end", ENDS)
def test_a_text_that_goes_back_to_a_mark_is_as_one_read_in_one_go(end: int, context: Context) -> None:
    wanted = fresh(context, end)
    context.clear(0)
    read(context, 0, end)
    context.mark(0, is_last=True)
    read(context, end, end + 2 * CELLS, OTHER)
    assert context.take_back(0, end) == end
    same(following(context, end), wanted)


@pytest.mark.parametrize("end", ENDS)
def test_a_text_that_comes_back_from_a_copy_is_as_one_read_in_one_go(end: int, context: Context) -> None:
    copies = SequenceCopies(context.memory)
    wanted = fresh(context, end)
    context.clear(0)
    read(context, 0, end)
    saved = copies.save(0)
    assert saved is not None
    for seq in (0, 1):
        context.clear(seq)
        read(context, 0, 90, OTHER, seq)
        assert copies.restore(seq, saved)
        same(following(context, end, seq), wanted)


@pytest.mark.parametrize("right", [CELLS - 3, CELLS - 1, 2 * CELLS - 2])
def test_wrong_ids_on_both_ends_of_the_cache_leave_no_other_order(right: int, context: Context) -> None:
    wanted = fresh(context, right)
    context.clear(0)
    read(context, 0, right - 1)
    context.decode([Rows(0, right - 1, (IDS[right - 1], *OTHER[:7]), 1)])
    assert context.take_back(0, right) == right
    same(following(context, right), wanted)


def test_ids_that_are_taken_back_in_two_steps_leave_no_other_order(context: Context) -> None:
    """The first step ends where the cache does, so that cell 0 is the next one, and the second goes further back."""
    wanted = fresh(context, CELLS - 3)
    context.clear(0)
    read(context, 0, CELLS - 4)
    if context.can_stop:  # snapshots are used once
        read(context, CELLS - 4, CELLS + 1)
        assert context.take_back(0, CELLS) == CELLS
    else:
        read(context, CELLS - 4, CELLS)
    assert context.take_back(0, CELLS - 3) == CELLS - 3
    same(following(context, CELLS - 3), wanted)


def test_a_decode_that_was_interrupted_on_both_ends_leaves_no_other_order(context: Context) -> None:
    if not context.can_stop:
        pytest.skip("nothing is interrupted there")
    end = CELLS - 20
    wanted = fresh(context, end)
    context.clear(0)
    read(context, 0, end)
    context.interrupt()
    with pytest.raises(AbortedError):
        context.decode([Rows(0, end, tuple(IDS[end : end + 100]), 1)], may_stop=True)
    context.interrupt(False)
    assert context.take_back(0, end) == end
    same(following(context, end), wanted)


def test_the_window_of_a_copy_is_all_that_can_be_gone_back_in(context: Context) -> None:
    """Cells before it hold nothing, though they have positions."""
    window = context.memory.window
    copies = SequenceCopies(context.memory)
    context.clear(0)
    read(context, 0, 300)
    saved = copies.save(0)
    assert saved is not None
    assert copies.restore(0, saved)
    assert context.reach(0, 300) == 300
    assert context.reach(0, 299) in (0, 299)
    assert context.reach(0, 300 - window // 2) == 0
    same(following(context, 300), fresh(context, 300))


def test_the_number_of_cells_is_known_where_positions_take_turns_in_them(context: Context) -> None:
    assert context.memory.n_window_cells == (CELLS if context.memory.n_swa else 0)
