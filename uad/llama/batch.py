"""A batch of rows for `llama_decode`, filled through numpy views of its own memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int32]


class Batch:
    """Up to `capacity` rows. A row is (id, position, sequence, wants logits); rows keep the order in which they were
    added. width: numbers of the hidden row that each has besides, `hidden`, in the same order (0: none).
    """

    def __init__(self, capacity: int, width: int = 0) -> None:
        self.capacity = capacity
        self._ids = np.zeros(capacity, np.int32)
        self._pos = np.zeros(capacity, np.int32)
        self._seq = np.zeros(capacity, np.int32)
        self._n_seq = np.ones(capacity, np.int32)
        self._want = np.zeros(capacity, np.int8)
        self.hidden = np.zeros((capacity, width), np.float32) if width else None
        # llama.cpp wants one pointer per row to that row's list of sequences; each list has one entry here
        self._seq_pointers = self._seq.ctypes.data + 4 * np.arange(capacity, dtype=np.uint64)
        self.native = _native(self._ids, self._pos, self._n_seq, self._seq_pointers, self._want)
        if self.hidden is not None:
            self.native.embd = self.hidden.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self.n = 0
        self.n_outputs = 0

    def clear(self) -> None:
        self.n = 0
        self.n_outputs = 0

    def add(self, seq: int, pos: int, ids: Sequence[int], n_logits: int) -> int:
        """Append ids of one sequence from position pos on; the last n_logits rows give logits. Returns the first one's
        output index.
        """
        n = len(ids)
        lo, hi = self.n, self.n + n
        if hi > self.capacity:
            raise ValueError(f"{hi} rows do not fit into a batch of {self.capacity}")
        if n == 1:  # of every plain round; slices take several times as long
            self._ids[lo], self._pos[lo], self._seq[lo], self._want[lo] = ids[0], pos, seq, n_logits
        else:
            self._ids[lo:hi] = ids
            self._pos[lo:hi] = np.arange(pos, pos + n, dtype=np.int32)
            self._seq[lo:hi] = seq
            self._want[lo : hi - n_logits] = 0
            self._want[hi - n_logits : hi] = 1
        first = self.n_outputs
        self.n = hi
        self.n_outputs += n_logits
        return first

    @property
    def outputs(self) -> _Ints:
        """The rows that want logits, in order."""
        return np.flatnonzero(self._want[: self.n]).astype(np.int32)

    def seal(self) -> Any:
        """llama.cpp's batch of the rows added so far: always the same object, over the memory that `add` writes."""
        self.native.n_tokens = self.n
        return self.native


def _native(
    ids: _Ints, pos: _Ints, n_seq: _Ints, seq_pointers: npt.NDArray[np.uint64], want: npt.NDArray[np.int8]
) -> Any:
    int32 = ctypes.POINTER(ctypes.c_int32)
    batch: Any = lib.llama_batch()  # the binding declares its pointer fields as arrays
    batch.n_tokens = 0
    batch.token = ids.ctypes.data_as(int32)
    batch.embd = None
    batch.pos = pos.ctypes.data_as(int32)
    batch.n_seq_id = n_seq.ctypes.data_as(int32)
    batch.seq_id = seq_pointers.ctypes.data_as(ctypes.POINTER(int32))
    batch.logits = want.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
    return batch
