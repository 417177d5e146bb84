"""What a context remembers of its sequences, and how the last ids are taken back: by position, by snapshots, or by
checkpoints.

Attention keeps every position, so any number of the last ones can be forgotten. A recurrent state has no positions:
llama.cpp can keep its last few values (snapshots, `n_rs_seq`). Or the state is copied before ids that may be wrong (a
checkpoint) and put back; then the ids that were right are decoded again. A cache of a sliding window has lost what lies
before the window: there, too, a checkpoint goes further back.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt

from uad.errors import DecodeError
from uad.types import Rows

FREE = 1 << 30  # ids: any number can be taken back
TAIL = 16  # ids of a prompt that are decoded apart, after a mark: the next turn often differs from there on
MARK_BYTES = 1 << 30  # of all marks of a context: the window of a large model takes hundreds of megabytes
_ALL = 0
_PARTIAL = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: without what attention keeps of every position
_TIMES = 3
_CLOSE = 1e-2  # share of the largest logit by which logits after a state that was put back may differ
Decode = Callable[[Rows], None]
Logits = Callable[[], npt.NDArray[np.float32]]


class Way(enum.StrEnum):
    """How ids are taken back."""

    POSITIONS = "positions"
    SNAPSHOTS = "snapshots"
    CHECKPOINTS = "checkpoints"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a sequence after `pos` ids, without what attention keeps of all positions."""

    pos: int
    data: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class SavedSequence:
    """All that a sequence held: `end` ids, of which a sliding window held those from `first` on, and its marks."""

    end: int
    first: int
    data: npt.NDArray[np.uint8]
    marks: tuple[Checkpoint, ...]


@dataclass(slots=True)
class _Kept:
    """Of one sequence: the checkpoint before its last draft, those that stay for later prompts (marks), and how many
    rows its last decode had that the snapshots are of.
    """

    last: Checkpoint | None = None
    marks: list[Checkpoint] = field(default_factory=list)
    n_rows: int = 0


class Memory:
    """The memory of a context's sequences.

    n_swa: positions of a sliding window whose cache holds no more (0: all are held). most_marks: of each sequence.
    mark_step: ids between two marks at least. n_free: ids that can be taken back after a decode at no cost. keep_ms:
    what a checkpoint costs, 0 where not needed.
    """

    def __init__(
        self, handle: ctypes.c_void_p, n_seq: int, n_swa: int = 0, most_marks: int = 0, mark_step: int = 0
    ) -> None:
        self._handle = handle
        self._memory = lib.llama_get_memory(handle)
        self.n_swa = n_swa
        self._most_marks = most_marks
        self._mark_step = mark_step
        self._kept = [_Kept() for _ in range(n_seq)]
        self.way = Way.POSITIONS
        self.n_snapshots = 0
        self.keep_ms = 0.0

    def probe(self, decode: Decode, logits: Logits) -> None:
        """Find out how ids are taken back. Decodes some ids in sequence 0, which is empty afterwards."""
        decode(Rows(0, 0, (0,) * 4, 1))
        some = self._remove(0, 2)
        if some and self._remove(0, 1):
            self.way = Way.POSITIONS
        elif some:
            self.way, self.n_snapshots = Way.SNAPSHOTS, int(lib.llama_n_rs_seq(self._handle))
        else:
            self.way = Way.CHECKPOINTS
        self.clear(0)
        if self.way is not Way.POSITIONS and not self._checkpoints_work(decode, logits):
            self.way = Way.NOTHING
        self.clear(0)

    def _checkpoints_work(self, decode: Decode, logits: Logits) -> bool:
        """Whether a state that is put back gives the same logits; and what that takes."""
        decode(Rows(0, 0, (0, 0), 0))
        times = []
        for _ in range(_TIMES):
            began = perf_counter()
            point = self._save(0)
            times.append(perf_counter() - began)
        if point is None:
            return False
        decode(Rows(0, 2, (0,), 1))
        expected = logits()[0].copy()
        decode(Rows(0, 3, (0, 0), 1))
        began = perf_counter()
        self._restore(0, point)
        self.keep_ms = 1e3 * (median(times) + perf_counter() - began)
        decode(Rows(0, 2, (0,), 1))
        return bool(np.abs(logits()[0] - expected).max() <= _CLOSE * max(float(np.abs(expected).max()), 1e-6))

    @property
    def n_free(self) -> int:
        """How many ids can be taken back after a decode without a checkpoint."""
        return FREE if self.way is Way.POSITIONS else self.n_snapshots

    @property
    def marks_help(self) -> bool:
        """Whether a prompt can go on from the middle of what a sequence holds only where there is a mark."""
        return self._most_marks > 0 and (self.way in (Way.SNAPSHOTS, Way.CHECKPOINTS) or self.n_swa > 0)

    def end(self, seq: int) -> int:
        """How many ids the sequence holds."""
        return int(lib.llama_memory_seq_pos_max(self._memory, seq)) + 1

    # --- before and after decodes

    def needs_checkpoint(self, rows: Rows) -> bool:
        """Whether the last `n_unsure` of these rows cannot be taken back without one."""
        if not rows.n_unsure or self.way in (Way.POSITIONS, Way.NOTHING):
            return False
        return rows.n_unsure > min(self.n_snapshots, len(rows.ids) - 1)

    def keep(self, seq: int) -> None:
        """A checkpoint here, unless there is one. Raises DecodeError."""
        kept, at = self._kept[seq], self.end(seq)
        if self.way is Way.POSITIONS or at == 0 or any(one.pos == at for one in self._points(seq)):
            return
        kept.last = self._save(seq)
        if kept.last is None:
            raise DecodeError("the model's state could not be copied")

    def mark(self, seq: int, is_last: bool) -> None:
        """A checkpoint here that stays for later prompts, where that helps; is_last: of this prompt, however near the
        one before it is.
        """
        at, kept = self.end(seq), self._kept[seq]
        before = kept.marks[-1].pos if kept.marks else 0
        if not self.marks_help or at == 0 or at - before < (1 if is_last else self._mark_step):
            return
        point = self._save(seq)
        if point is not None:
            most = MARK_BYTES // (len(self._kept) * len(point.data))
            kept.marks = [*kept.marks, point][-min(self._most_marks, most) :] if most else []

    def decoded(self, rows: Rows) -> None:
        """These rows were decoded."""
        self._kept[rows.seq].n_rows = len(rows.ids)

    # --- whole sequences, for the prompt cache

    def size(self, seq: int) -> int:
        """Bytes of a copy of all that a sequence holds, its marks included."""
        return self._whole_size(seq) + sum(len(mark.data) for mark in self._kept[seq].marks)

    def save(self, seq: int) -> SavedSequence | None:
        """A copy of all that a sequence holds; None where llama.cpp or the machine has no room for it."""
        size, first = self._whole_size(seq), int(lib.llama_memory_seq_pos_min(self._memory, seq))
        try:
            data = np.empty(size, np.uint8)
        except MemoryError:
            return None
        n = int(lib.llama_state_seq_get_data_ext(self._handle, _bytes(data), size, seq, _ALL))
        return SavedSequence(self.end(seq), first, data, tuple(self._kept[seq].marks)) if n == size > 0 else None

    def restore(self, seq: int, saved: SavedSequence) -> bool:
        """Put a copy in place of what the sequence holds. False: that failed, and the sequence is empty."""
        self.clear(seq)
        size = len(saved.data)
        if int(lib.llama_state_seq_set_data_ext(self._handle, _bytes(saved.data), size, seq, _ALL)) != size:
            self.clear(seq)
            return False
        self._kept[seq].marks = list(saved.marks)
        return True

    def reach_of(self, saved: SavedSequence, n: int) -> int:
        """`reach` of a sequence into which this copy was put."""
        if n >= saved.end or n <= 0:
            return max(min(n, saved.end), 0)
        if self.way is Way.POSITIONS and self._sees(saved.first, n):
            return n
        return max((mark.pos for mark in saved.marks if mark.pos <= n), default=0)

    def _whole_size(self, seq: int) -> int:
        return int(lib.llama_state_seq_get_size_ext(self._handle, seq, _ALL))

    # --- taking back

    def reach(self, seq: int, n: int) -> int:
        """How many ids, n at most, the sequence would hold after `take_back(seq, n)`."""
        end = self.end(seq)
        if n >= end or n <= 0:
            return max(min(n, end), 0)
        if self._can_remove(seq, n, end):
            return n
        point = self._before(seq, n)
        return point.pos if point is not None else 0

    def take_back(self, seq: int, n: int) -> int:
        """Forget ids so that at most n are held; returns how many are: what lies between must be decoded again. Raises
        DecodeError.
        """
        end, kept = self.end(seq), self._kept[seq]
        if n >= end:
            return end
        if n > 0 and self._can_remove(seq, n, end) and self._remove(seq, n):
            self._forget(kept, n)
            return n
        point = self._before(seq, n)
        if point is None or n <= 0:
            self.clear(seq)
            return 0
        self._restore(seq, point)
        self._forget(kept, point.pos)
        return point.pos

    def clear(self, seq: int) -> None:
        """Forget all ids of a sequence."""
        lib.llama_memory_seq_rm(self._memory, seq, -1, -1)
        self._kept[seq] = _Kept()

    def _can_remove(self, seq: int, n: int, end: int) -> bool:
        if self.way is Way.POSITIONS:  # what attention sees from position n on must still be there
            return self._sees(int(lib.llama_memory_seq_pos_min(self._memory, seq)), n)
        return self.way is Way.SNAPSHOTS and end - n <= min(self.n_snapshots, self._kept[seq].n_rows - 1)

    def _sees(self, first: int, n: int) -> bool:
        """Whether all is there that attention looks at from position n on, where the window begins at `first`."""
        return not self.n_swa or first <= max(n - self.n_swa, 0)

    def _remove(self, seq: int, n: int) -> bool:
        return bool(lib.llama_memory_seq_rm(self._memory, seq, n, -1))

    def _points(self, seq: int) -> list[Checkpoint]:
        kept = self._kept[seq]
        return [*kept.marks, *([kept.last] if kept.last is not None else [])]

    def _before(self, seq: int, n: int) -> Checkpoint | None:
        """The last checkpoint after n ids at most."""
        return max((one for one in self._points(seq) if one.pos <= n), key=lambda one: one.pos, default=None)

    @staticmethod
    def _forget(kept: _Kept, n: int) -> None:
        """Checkpoints after n are of a text that is no more, and snapshots of a decode that is past."""
        kept.n_rows = 0
        kept.marks = [one for one in kept.marks if one.pos <= n]
        if kept.last is not None and kept.last.pos > n:
            kept.last = None

    def _save(self, seq: int) -> Checkpoint | None:
        size = int(lib.llama_state_seq_get_size_ext(self._handle, seq, _PARTIAL))
        data = np.empty(size, np.uint8)
        n = int(lib.llama_state_seq_get_data_ext(self._handle, _bytes(data), size, seq, _PARTIAL))
        return Checkpoint(self.end(seq), data) if n == size > 0 else None

    def _restore(self, seq: int, point: Checkpoint) -> None:
        size = len(point.data)
        if int(lib.llama_state_seq_set_data_ext(self._handle, _bytes(point.data), size, seq, _PARTIAL)) != size:
            raise DecodeError("the model's state could not be put back")
        self._remove(seq, point.pos)  # what attention holds after it


def _bytes(data: npt.NDArray[np.uint8]) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
