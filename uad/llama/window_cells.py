"""Copies of a sliding window's cache, whose positions come back to the cells that they had.

A text that is read in order has position p in cell p % n_cells. Attention adds cells in their order, so a position in
another cell would change the last bits. llama.cpp puts a copy into the first cells, one after the other. So a copy gets
cells without keys and values in between: they have positions before the window, which nothing sees, and are the first
ones to be written over.

Of 256 cells and a window of 32, a copy of 300 positions has those from 268 on. They belong into cells 12 to 43. Cells 0
to 11 before them get positions 256 to 267, which were there when the text was read.

The layout of a copy is llama.cpp's own (`llama_kv_cache::state_write`), of one or two caches: that of all positions,
which a partial copy lacks, and that of the window. Where the model has a recurrent state, it follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
_HEAD_BYTES = 8  # of a copy
_EXTRA_BYTES = (0, 12)  # of a cell, after its position: none, or places in an image and a token
_NO_BYTES: Bytes = np.empty(0, np.uint8)
_MOST = 1 << 20  # layers, streams, values of a row: more are no such copy


class _UnknownLayoutError(Exception):
    """These bytes are laid out in another way."""


@dataclass(slots=True)
class _CopyReader:
    """Reads a copy from its beginning on."""

    data: Bytes
    at: int = 0

    def take(self, n: int) -> Bytes:
        if n > len(self.data) - self.at:
            raise _UnknownLayoutError
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, n_bytes: int = 4) -> int:
        return int.from_bytes(self.take(n_bytes).tobytes(), "little")

    def count(self, n_bytes: int = 4) -> int:
        n = self.number(n_bytes)
        if n > _MOST:
            raise _UnknownLayoutError
        return n


@dataclass(frozen=True, slots=True)
class _CellBytes:
    """Bytes of all cells: [n_values, cells, bytes]. n_values is 1 where a cell's values lie together."""

    head: Bytes
    """Their type and sizes, as they stand before them."""
    rows: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Section:
    """One cache of a copy. Its cells belong to one sequence, in one stream; other streams are empty."""

    before: Bytes
    """The number of streams, and the zeros of those before this one."""
    cells: Bytes
    """[cells, bytes]: a position, the number of sequences (1), extra bytes, and the sequence."""
    layers: Bytes
    """Whether values are transposed, and the number of layers."""
    rows: tuple[_CellBytes, ...]
    after: Bytes

    @property
    def positions(self) -> npt.NDArray[np.int32]:
        return self.cells[:, :4].copy().view(np.int32)[:, 0]


def _read(reader: _CopyReader, n_extra: int) -> _Section:
    """The next cache. Raises _UnknownLayoutError."""
    began = reader.at
    n_left = reader.count()
    n = 0
    while n_left and not n:
        n, n_left = reader.number(), n_left - 1
    if not n:
        return _Section(reader.data[began : reader.at], _NO_BYTES, _NO_BYTES, (), _NO_BYTES)
    before = reader.data[began : reader.at - 4]
    cells = reader.take(n * (12 + n_extra)).reshape(n, 12 + n_extra)
    if not (cells[:, 4:8].copy().view(np.int32) == 1).all():
        raise _UnknownLayoutError
    layers = reader.take(8)
    is_transposed, n_layers = (int(number) for number in layers.copy().view(np.uint32))
    if is_transposed > 1 or n_layers > _MOST:
        raise _UnknownLayoutError
    rows = [_read_cells(reader, n, is_transposed=False) for _ in range(n_layers)]
    rows += [_read_cells(reader, n, bool(is_transposed)) for _ in range(n_layers)]
    return _Section(before, cells, layers, tuple(rows), reader.take(4 * n_left))


def _read_cells(reader: _CopyReader, n: int, is_transposed: bool) -> _CellBytes:
    began = reader.at
    reader.number()  # the type
    n_bytes, n_values = (reader.count(), reader.count()) if is_transposed else (reader.count(8), 1)
    head = reader.data[began : reader.at]
    return _CellBytes(head, reader.take(n_values * n * n_bytes).reshape(n_values, n, n_bytes))


def in_their_cells(data: Bytes, n_cells: int, is_partial: bool) -> tuple[Bytes, int]:
    """A copy whose window lies in its own cells of n_cells, and the window's first position. The same copy, and 0,
    where it lies so already, or is laid out in another way: of other memories, or with several cells at a position.
    """
    for n_extra in _EXTRA_BYTES:
        reader = _CopyReader(data, _HEAD_BYTES)
        try:
            if not is_partial:
                _read(reader, n_extra)
            n_before = reader.at
            window = _read(reader, n_extra)
        except _UnknownLayoutError:
            continue
        state = data[reader.at :]
        if len(window.cells) and (not len(state) or _is_state(state, int(window.positions.max()))):
            return _placed(data[:n_before], window, state, n_cells) or (data, 0)
    return data, 0


def _is_state(data: Bytes, position: int) -> bool:
    """Whether these bytes begin as `llama_memory_recurrent::state_write` has it: one cell of this position, that names
    no sequences.
    """
    return data[:12].tobytes() == np.array([1, position, 0], np.int32).tobytes()


def _placed(before: Bytes, window: _Section, state: Bytes, n_cells: int) -> tuple[Bytes, int] | None:
    positions = window.positions
    first, n = int(positions.min()), len(positions)
    places = positions % n_cells
    if n > n_cells or not (np.sort(positions) == np.arange(first, first + n)).all() or (places == np.arange(n)).all():
        return None
    n_placed = int(places.max()) + 1
    # where nothing is, the last position before the window that belongs there
    numbers = np.arange(n_placed)
    numbers += (first - 1 - numbers) // n_cells * n_cells
    numbers[places] = positions
    cells = np.repeat(window.cells[:1], n_placed, axis=0)
    cells[places] = window.cells
    cells[:, :4] = numbers.astype(np.int32)[:, np.newaxis].view(np.uint8)
    starts = [0, *(np.flatnonzero(np.diff(places) != 1) + 1), n]  # of cells that stay neighbours
    runs = [(int(places[begin]), begin, end) for begin, end in pairwise(starts)]
    n_bytes = sum(layer.rows.nbytes // n * n_placed + len(layer.head) for layer in window.rows)
    parts = (before, window.before, np.array([n_placed], np.uint32).view(np.uint8), cells.reshape(-1), window.layers)
    n_all = sum(map(len, (*parts, window.after, state))) + n_bytes
    placed = np.zeros(n_all, np.uint8)  # one copy: a window may be large
    at = 0

    def add(part: Bytes) -> None:
        nonlocal at
        placed[at : at + len(part)] = part
        at += len(part)

    for part in parts:
        add(part)
    for layer in window.rows:
        add(layer.head)
        n_values, _, size = layer.rows.shape
        rows = placed[at : at + n_values * n_placed * size].reshape(n_values, n_placed, size)
        for to, begin, end in runs:
            rows[:, to : to + end - begin] = layer.rows[:, begin:end]
        at += rows.size
    add(window.after)
    add(state)
    return placed, first
