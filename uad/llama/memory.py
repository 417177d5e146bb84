"""A context's memory of its sequences, and how the last ids are taken back: by position, by snapshots, or by
checkpoints.

Attention keeps every position, so any number of the last ones can be forgotten. A recurrent state has no positions:
llama.cpp can keep its last few values (snapshots, `n_rs_seq`). Or the state is copied before ids that may be wrong (a
checkpoint) and put back; then the ids that were right are decoded again. A cache of a sliding window has lost what lies
before the window: there, too, a checkpoint goes further back.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from uad.base.common.logits import Logits
from uad.base.errors import DecodeError
from uad.base.types import Rows
from uad.llama.window_cells import Bytes, in_their_cells

FREE_IDS = 1 << 30  # ids: any number can be taken back
TAIL_IDS = 16  # ids of a prompt that are decoded apart, after a mark: the next turn often differs from there on
MARK_BYTES = 1 << 30  # of all marks of a context: the window of a large model takes hundreds of megabytes
_ALL = 0
_PARTIAL = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: without what attention keeps of every position
_PADDED_TO = 256  # cells of a window's cache
_TIMES = 3
_CLOSE = 1e-2  # share of the largest logit by which logits after a state that was put back may differ
Decode = Callable[[Rows], None]
LogitsOf = Callable[[], Logits]


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
    data: Bytes


@dataclass(frozen=True, slots=True)
class SavedSequence:
    """All that a sequence held: `end` ids, of which the copy of a sliding window has those from `first` on; its marks
    and images.
    """

    end: int
    first: int
    data: Bytes
    marks: tuple[Checkpoint, ...]
    images: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class _Points:
    """The checkpoints of one sequence."""

    last: Checkpoint | None = None
    """The one before its last draft."""
    marks: list[Checkpoint] = field(default_factory=list)
    """Checkpoints that stay for later prompts, in order."""
    n_rows: int = 0
    """Rows of its last decode, of which the snapshots are; 0 once some were taken back."""
    images: list[tuple[int, int]] = field(default_factory=list)
    """Where images begin and end. llama.cpp knows one position of an image whose rows lie in a plane: the first."""

    def all(self) -> list[Checkpoint]:
        """The marks, then the last one."""
        return self.marks if self.last is None else [*self.marks, self.last]

    def before(self, n: int) -> Checkpoint | None:
        """The last checkpoint after n ids at most."""
        return max((point for point in self.all() if point.pos <= n), key=lambda point: point.pos, default=None)

    def forget(self, n: int) -> None:
        """Checkpoints after n are of a text that is no more, and snapshots of a decode that is past."""
        self.n_rows = 0
        self.marks = [mark for mark in self.marks if mark.pos <= n]
        self.images = [image for image in self.images if image[1] <= n]
        if self.last is not None and self.last.pos > n:
            self.last = None


class _NativeMemory:
    """llama.cpp's memory of the sequences of a context.

    With snapshots the states of sequences must keep their places: where a pass needs states side by side llama.cpp
    moves others out of the way, and leaves their snapshots behind. So the sequences get their places in order
    (`Context`), and an emptied one gives its place back only when it begins again: it is then the first free one.
    Several that begin in one decode, in order, get the free ones in order.
    """

    def __init__(self, handle: ctypes.c_void_p, n_window_cells: int = 0) -> None:
        """n_window_cells: of each sequence, in the cache of a sliding window; 0: there is none."""
        self._n_window_cells = n_window_cells
        self.reopen(handle)

    def reopen(self, handle: ctypes.c_void_p) -> None:
        """Use this context's memory from now on."""
        self._handle: Any = handle
        self._memory: Any = lib.llama_get_memory(handle)
        self._filled: dict[int, int] = {}  # positions before these have no keys and values, though they have cells
        self._emptied: set[int] = set()  # with snapshots: what llama.cpp holds of these is forgotten when they begin
        self._torn: set[int] = set()  # with a window: their next position would get another cell than its own

    def close(self) -> None:
        """The context is freed: what is asked after that raises ctypes.ArgumentError."""
        self._handle = self._memory = object()

    def n_snapshots(self) -> int:
        """Earlier values of a recurrent state that are kept after a decode."""
        return int(lib.llama_n_rs_seq(self._handle))

    def first(self, seq: int) -> int:
        """The first position whose keys and values are there: 0, or where a sliding window begins."""
        return max(int(lib.llama_memory_seq_pos_min(self._memory, seq)), self._filled.get(seq, 0))

    def end(self, seq: int) -> int:
        """How many ids the sequence holds."""
        return 0 if seq in self._emptied else int(lib.llama_memory_seq_pos_max(self._memory, seq)) + 1

    def empty(self, seq: int) -> None:
        """Forget all of a sequence."""
        if self.n_snapshots():
            self._emptied.add(seq)
        else:
            self.remove(seq, -1)

    def begin(self, seqs: Sequence[int]) -> None:
        """To be called before these get rows or a state: they may have been emptied, or torn. Raises DecodeError, and
        ValueError where emptied ones are not in order: they would change places.
        """
        if not self._torn and not self._emptied:
            return
        for seq in self._torn.intersection(seqs):
            state = self.copy(seq, _PARTIAL)
            if state is not None and not self.put(seq, state, _PARTIAL):
                raise DecodeError("the window of the model's cache could not be put back")
        begun = [seq for seq in seqs if seq in self._emptied]
        if begun != sorted(begun):
            raise ValueError(f"sequences begin in the order {begun} in one decode, and would change places")
        for seq in begun:
            self._emptied.remove(seq)
            self.remove(seq, -1)

    def failed(self, seqs: Sequence[int], n: int) -> None:
        """A decode of n rows of these failed: llama.cpp forgot rows that it had given cells."""
        self._torn.update(seq for seq in seqs if _tears(self._n_window_cells, self.end(seq), self.end(seq) + n))

    def remove(self, seq: int, n: int) -> bool:
        """Forget positions from n on; False: this memory cannot stop there. -1: all of them."""
        if n <= 0:
            self._filled.pop(seq, None)
            self._torn.discard(seq)
        end = self.end(seq) if self._n_window_cells and n > 0 else 0
        if not lib.llama_memory_seq_rm(self._memory, seq, n, -1):
            return False
        if 0 < n < end and _tears(self._n_window_cells, n, end):
            self._torn.add(seq)
        return True

    def size(self, seq: int, flags: int) -> int:
        """Bytes of a copy."""
        return 0 if seq in self._emptied else int(lib.llama_state_seq_get_size_ext(self._handle, seq, flags))

    def copy(self, seq: int, flags: int) -> Bytes | None:
        """A copy of what the sequence holds; None where there is nothing, or it failed. Raises MemoryError."""
        size = self.size(seq, flags)
        data = np.empty(size, np.uint8)
        n = size and int(lib.llama_state_seq_get_data_ext(self._handle, _pointer(data), size, seq, flags))
        return data if n == size > 0 else None

    def put(self, seq: int, data: Bytes, flags: int) -> bool:
        """Put a copy in place of what the sequence holds; False: that failed."""
        self._torn.discard(seq)
        self.begin((seq,))
        self._filled.pop(seq, None)
        if self._n_window_cells:
            try:
                data, self._filled[seq] = in_their_cells(data, self._n_window_cells, is_partial=flags == _PARTIAL)
            except MemoryError:  # --swa-full has cells for all positions before a window, too
                return False
        return int(lib.llama_state_seq_set_data_ext(self._handle, _pointer(data), len(data), seq, flags)) == len(data)

    def checkpoint(self, seq: int, pos: int) -> Checkpoint | None:
        """The state of a sequence that holds `pos` ids; None where it cannot be copied."""
        data = self.copy(seq, _PARTIAL)
        return Checkpoint(pos, data) if data is not None else None

    def go_back(self, seq: int, point: Checkpoint) -> None:
        """Let a sequence be as it was at a checkpoint. Raises DecodeError."""
        if not self.put(seq, point.data, _PARTIAL):
            raise DecodeError("the model's state could not be put back")
        self.remove(seq, point.pos)  # what attention holds after it


def _tears(n_cells: int, n: int, end: int) -> bool:
    """Whether cells may be free at both ends of a window's cache without positions n to `end`: llama.cpp goes on with
    the first free one, not that of position n.
    """
    return n_cells > 0 and n // n_cells != end // n_cells


def _pointer(data: Bytes) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


class _Trial:
    """Tries out on a new context how ids are taken back. Decodes some ids in sequence 0, and leaves them there."""

    def __init__(self, states: _NativeMemory, decode: Decode, logits: LogitsOf) -> None:
        self._states, self._decode, self._logits = states, decode, logits
        self.way = Way.POSITIONS
        self.n_snapshots = 0
        self.keep_ms = 0.0
        # Of four ids two are taken back, then one more. Attention allows both. Snapshots allow the first: they are of
        # the last decode, so going back leaves none. A state without them allows neither.
        decode(Rows(0, 0, (0,) * 4, 1))
        some = states.remove(0, 2)
        if not some:
            self.way = Way.CHECKPOINTS
        elif not states.remove(0, 1):
            self.way, self.n_snapshots = Way.SNAPSHOTS, states.n_snapshots()
        states.remove(0, -1)
        if self.way is not Way.POSITIONS and not self._checkpoints_work():
            self.way = Way.NOTHING

    def _checkpoints_work(self) -> bool:
        """Whether a state that is put back gives the same logits; and what that takes."""
        decode, states = self._decode, self._states
        decode(Rows(0, 0, (0, 0), 0))
        times = []
        for _ in range(_TIMES):
            began = perf_counter()
            point = states.checkpoint(0, 2)
            times.append(perf_counter() - began)
        if point is None:
            return False
        decode(Rows(0, 2, (0,), 1))
        expected = self._logits()[0].copy()
        decode(Rows(0, 3, (0, 0), 1))
        began = perf_counter()
        states.go_back(0, point)
        self.keep_ms = 1e3 * (median(times) + perf_counter() - began)
        decode(Rows(0, 2, (0,), 1))
        return bool(np.abs(self._logits()[0] - expected).max() <= _CLOSE * max(float(np.abs(expected).max()), 1e-6))


class Memory:
    """The memory of a context's sequences.

    window: positions that a sliding window sees; 0: no window. is_full: its cache holds all positions, but for
    those that a copy lacked. most_marks: of each sequence. mark_step: ids between two marks at least.
    """

    def __init__(
        self,
        handle: ctypes.c_void_p,
        n_seq: int,
        window: int = 0,
        is_full: bool = False,
        most_marks: int = 0,
        mark_step: int = 0,
    ) -> None:
        n_cells = _window_cells(handle, window, is_full) if window else 0
        self.states = _NativeMemory(handle, n_cells)
        self.n_window_cells = n_cells if n_cells < int(lib.llama_n_ctx_seq(handle)) else 0
        """Cells of a sliding window's cache, in which positions take turns; 0: each has its own, or there is none."""
        self.points = [_Points() for _ in range(n_seq)]
        self.window = window
        self.n_swa = 0 if is_full else window
        """Positions of a sliding window whose cache holds no more; 0: all are held."""
        self._most_marks = most_marks
        self._mark_step = mark_step
        self.way = Way.POSITIONS
        self.n_snapshots = 0
        self.keep_ms = 0.0
        """Milliseconds that a checkpoint costs, 0 where none is needed."""

    def reopen(self, handle: ctypes.c_void_p) -> None:
        """The context was made again, as it was, and holds nothing."""
        self.states.reopen(handle)
        self.points[:] = [_Points() for _ in self.points]

    def probe(self, decode: Decode, logits: LogitsOf) -> None:
        """Find out how ids are taken back. Decodes some ids in sequence 0, which is empty afterwards."""
        trial = _Trial(self.states, decode, logits)
        self.way, self.n_snapshots, self.keep_ms = trial.way, trial.n_snapshots, trial.keep_ms
        self.clear(0)

    @property
    def n_free(self) -> int:
        """How many ids can be taken back after a decode without a checkpoint."""
        return FREE_IDS if self.way is Way.POSITIONS else self.n_snapshots

    @property
    def marks_help(self) -> bool:
        """Whether a prompt can go on from the middle of what a sequence holds only where there is a mark."""
        return self._most_marks > 0 and (self.way in (Way.SNAPSHOTS, Way.CHECKPOINTS) or self.n_swa > 0)

    def end(self, seq: int) -> int:
        """How many ids the sequence holds. All of an image's count, once it was seen to its end."""
        end = self.states.end(seq)
        return next((stop for start, stop in self.points[seq].images if start < end <= stop), end)

    # --- before and after decodes

    def needs_checkpoint(self, rows: Rows) -> bool:
        """Whether the last `n_unsure` of these rows cannot be taken back without one."""
        if not rows.n_unsure or self.way in (Way.POSITIONS, Way.NOTHING):
            return False
        # the snapshots are those of one decode: one of 3 rows has values after its first and second, so that 2 can be
        # taken back, however many snapshots there is room for
        return rows.n_unsure > min(self.n_snapshots, len(rows.ids) - 1)

    def keep(self, seq: int) -> None:
        """A checkpoint here, unless there is one. Raises DecodeError."""
        points, at = self.points[seq], self.end(seq)
        if self.way is Way.POSITIONS or at == 0 or any(point.pos == at for point in points.all()):
            return
        points.last = self.states.checkpoint(seq, at)
        if points.last is None:
            raise DecodeError("the model's state could not be copied")

    def mark(self, seq: int, is_last: bool) -> None:
        """A checkpoint here that stays for later prompts, where that helps; is_last: of this prompt, however near the
        one before it is.
        """
        at, points = self.end(seq), self.points[seq]
        before = points.marks[-1].pos if points.marks else 0
        if not self.marks_help or at == 0 or at - before < (1 if is_last else self._mark_step):
            return
        point = self.states.checkpoint(seq, at)
        if point is not None:
            # the newest ones stay: of 4 sequences with 80 MiB a mark, each keeps 1 GiB / (4 x 80 MiB) = 3
            most = MARK_BYTES // (len(self.points) * len(point.data))
            points.marks = [*points.marks, point][-min(self._most_marks, most) :] if most else []

    def decoded(self, rows: Rows) -> None:
        """These rows were decoded."""
        self.points[rows.seq].n_rows = len(rows.ids)

    def seen(self, seq: int, start: int, end: int) -> None:
        """All rows of an image were decoded, which takes these positions."""
        points = self.points[seq]
        points.images.append((start, end))
        points.n_rows = 0

    # --- taking back

    def reach(self, seq: int, n: int) -> int:
        """How many ids, n at most, the sequence would hold after `take_back(seq, n)`."""
        end = self.end(seq)
        if n >= end or n <= 0:
            return max(min(n, end), 0)
        if self._can_remove(seq, n, end):
            return n
        point = self.points[seq].before(n)
        return point.pos if point is not None else 0

    def take_back(self, seq: int, n: int) -> int:
        """Forget ids so that at most n are held; returns how many are: what lies between must be decoded again. Raises
        DecodeError.

        With a recurrent state, a checkpoint after 20 ids and a draft of 4 of which 2 were right, the text has 22 ids.
        The state goes back to 20, and the two that were right are decoded again with the next ones.
        """
        end, points = self.end(seq), self.points[seq]
        if n >= end:
            return end
        if n > 0 and self._can_remove(seq, n, end) and self.states.remove(seq, n):
            points.forget(n)
            return n
        point = points.before(n)
        if point is None or n <= 0:
            self.clear(seq)
            return 0
        self.states.go_back(seq, point)
        points.forget(point.pos)
        return point.pos

    def clear(self, seq: int) -> None:
        """Forget all ids of a sequence."""
        self.states.empty(seq)
        self.points[seq] = _Points()

    def _can_remove(self, seq: int, n: int, end: int) -> bool:
        if self.way is Way.POSITIONS:  # what attention sees from position n on must still be there
            return sees(self.window, self.states.first(seq), n)
        return self.way is Way.SNAPSHOTS and end - n <= min(self.n_snapshots, self.points[seq].n_rows - 1)


def _window_cells(handle: ctypes.c_void_p, window: int, is_full: bool) -> int:
    """How many cells llama.cpp has for a sliding window of each sequence: `llama_kv_cache_iswa`."""
    n_ctx = int(lib.llama_n_ctx_seq(handle))
    return n_ctx if is_full else -(-min(n_ctx, window + int(lib.llama_n_ubatch(handle))) // _PADDED_TO) * _PADDED_TO


def sees(window: int, first: int, n: int) -> bool:
    """Whether all is there that attention looks at from position n on, where positions before `first` are lost; window:
    how many it looks back, 0: at all.

    With a window of 512, position 1,000 looks back to 488. If the cache begins at 400, a text can be cut to 1,000 ids,
    but not to 900, which would have to see 388.
    """
    return not window or first <= max(n - window, 0)


class SequenceCopies:
    """Copies of all that single sequences hold, for the prompt cache."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._states = memory.states

    def size(self, seq: int) -> int:
        """Bytes of a copy of all that a sequence holds, its marks included."""
        return self._states.size(seq, _ALL) + sum(len(mark.data) for mark in self._memory.points[seq].marks)

    def save(self, seq: int) -> SavedSequence | None:
        """A copy of all that a sequence holds; None where llama.cpp or the machine has no room for it."""
        try:
            data = self._states.copy(seq, _ALL)
        except MemoryError:
            return None
        if data is None:
            return None
        points = self._memory.points[seq]
        end, first = self._memory.end(seq), self._states.first(seq)
        if self._memory.window:  # llama.cpp copies of a window's cache what the next position sees, whatever is held
            first = max(first, end - self._memory.window)
        return SavedSequence(end, first, data, tuple(points.marks), tuple(points.images))

    def restore(self, seq: int, saved: SavedSequence) -> bool:
        """Put a copy in place of what the sequence holds. False: that failed, and the sequence is empty."""
        self._memory.clear(seq)
        if not self._states.put(seq, saved.data, _ALL):
            self._memory.clear(seq)
            return False
        points = self._memory.points[seq]
        points.marks, points.images = list(saved.marks), list(saved.images)
        return True

    def reach_of(self, saved: SavedSequence, n: int) -> int:
        """`Memory.reach` of a sequence into which this copy was put."""
        if n >= saved.end or n <= 0:
            return max(min(n, saved.end), 0)
        if self._memory.way is Way.POSITIONS and sees(self._memory.window, saved.first, n):
            return n
        return max((mark.pos for mark in saved.marks if mark.pos <= n), default=0)
