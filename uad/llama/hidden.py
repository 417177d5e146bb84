"""The hidden rows of a target's last positions, kept for a head that reads them later. Decodes nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from uad.llama import nextn
from uad.llama.nextn import Hidden
from uad.types import Rows

_NEVER = 1 << 62  # position


class _Ring:
    """Rows of consecutive positions `first` to `end` of one sequence; of more than there is room for, the last ones."""

    def __init__(self, room: int, width: int) -> None:
        self._room, self._width = room, width
        self._rows: Hidden | None = None  # made when first written: most slots of a server never run
        self.first = self.end = 0

    def put(self, pos: int, rows: Hidden) -> None:
        """Rows of positions from pos on; what was held of these and after them is of another text."""
        if self._rows is None:
            self._rows = np.zeros((self._room, self._width), np.float32)
        if not self.first <= pos <= self.end:
            self.first = pos
        self.end = pos + len(rows)
        rows = rows[-self._room :]
        self._rows[np.arange(self.end - len(rows), self.end) % self._room] = rows
        self.first = max(self.first, self.end - self._room)

    def cut(self, pos: int) -> None:
        """What is held from pos on is of another text."""
        self.end = min(self.end, pos)
        self.first = min(self.first, self.end)

    def get(self, start: int, end: int) -> Hidden:
        """Copies of those from start to end, all of which are held."""
        if self._rows is None or not self.first <= start <= end <= self.end:
            raise ValueError(f"hidden rows {start} to {end} are not held, but {self.first} to {self.end}")
        return self._rows[np.arange(start, end) % self._room]


class HiddenRows:
    """Those of all sequences of a target's context, the last `room` positions of each.

    Only rows that will be read are asked for: a target that keeps them computes its last block for all rows of a
    prompt, not for the last one alone.
    """

    def __init__(self, handle: ctypes.c_void_p, n_seq: int, width: int, room: int) -> None:
        self._handle = handle
        self._width = width
        self._rings = [_Ring(room, width) for _ in range(n_seq)]
        self._wanted = [_NEVER] * n_seq
        self._on = False

    def expect(self, seq: int, first: int) -> None:
        """From now on the rows of this sequence from position `first` on are kept."""
        self._wanted[seq] = first

    def ignore(self, seq: int) -> None:
        """Rows of this sequence are no longer needed; those that are held stay."""
        self._wanted[seq] = _NEVER

    def span(self, seq: int) -> tuple[int, int]:
        """The positions whose rows are held: from, and up to but without."""
        ring = self._rings[seq]
        return ring.first, ring.end

    def get(self, seq: int, start: int, end: int) -> Hidden:
        """The rows of positions start to end, [n, width]. Raises ValueError where not all of them are held."""
        return self._rings[seq].get(start, end)

    # --- around decodes

    def ask(self, rows: Sequence[Rows]) -> None:
        """Before these rows are decoded."""
        on = any(row.pos + len(row.ids) > self._wanted[row.seq] for row in rows)
        if on != self._on:
            nextn.keep_hidden(self._handle, on, outputs_only=False)
            self._on = on

    def take(self, rows: Sequence[Rows]) -> None:
        """These rows were decoded."""
        found = nextn.hidden(self._handle, sum(len(row.ids) for row in rows), self._width) if self._on else None
        at = 0
        for row in rows:
            n, ring = len(row.ids), self._rings[row.seq]
            if found is not None and row.pos + n > self._wanted[row.seq]:
                ring.put(row.pos, found[at : at + n])
            else:
                ring.cut(row.pos)
            at += n
