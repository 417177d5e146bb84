"""The target's hidden rows that heads read, of the last positions of each sequence."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uad.base.common.arrays import Hidden
from uad.base.types import Rows
from uad.llama import nextn


@dataclass(frozen=True, slots=True)
class Tap:
    """Where rows are taken from: what some layers are given, side by side, or the end of the target where none is
    named. n_embd: numbers of a row of one of them.
    """

    n_embd: int
    layers: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.n_embd * max(len(self.layers), 1)

    def open(self, context: ctypes.c_void_p) -> None:
        """The context was made. Layers are kept from then on: llama.cpp plans its memory anew with each change."""
        nextn.keep_layers(context, self.layers)

    def keep(self, context: ctypes.c_void_p, on: bool) -> None:
        """Whether the decodes to come keep rows of the end, for which the last block is computed for all ids."""
        if not self.layers:
            nextn.keep_hidden(context, on, outputs_only=False)

    def rows(self, context: ctypes.c_void_p, n: int) -> Hidden:
        """The n rows of the last decode, in the order of its batch; perhaps a view that the next decode overwrites."""
        if self.layers:
            return nextn.layers(context, self.layers, n, self.n_embd)
        return nextn.hidden(context, n, self.n_embd)


_NEVER = 1 << 62  # position


class _Ring:
    """Rows of consecutive positions `first` to `end` of one sequence; of more than there is room for, the last ones.

    A row lies at its position modulo the room: with room for 4, positions 5 to 8 lie at 1 2 3 0, and 9 takes the place
    of 5.
    """

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
        """Drop the rows held from pos on, which are of another text."""
        self.end = min(self.end, pos)
        self.first = min(self.first, self.end)

    def get(self, start: int, end: int) -> Hidden:
        """Copies of those from start to end, all of which are held."""
        if self._rows is None or not self.first <= start <= end <= self.end:
            raise ValueError(f"hidden rows {start} to {end} are not held, but {self.first} to {self.end}")
        return self._rows[np.arange(start, end) % self._room]


class HiddenRows:
    """Hidden rows of all sequences of a target's context, the last `room` positions of each.

    Only rows that will be read are asked for: a target that keeps them computes its last block for all rows of a
    prompt, not for the last one alone.
    """

    def __init__(self, handle: ctypes.c_void_p, n_seq: int, tap: Tap, room: int) -> None:
        self._tap, self._room = tap, room
        self._rings = [_Ring(room, tap.width) for _ in range(n_seq)]
        self.reopen(handle)

    def reopen(self, handle: ctypes.c_void_p) -> None:
        """The target's context was made again, or is first used."""
        self._handle = handle
        self._tap.open(handle)
        self._wanted = [_NEVER] * len(self._rings)
        self._on = False

    def forget(self) -> None:
        """No row is held any more; their memory is free."""
        self._rings[:] = [_Ring(self._room, self._tap.width) for _ in self._rings]

    def expect(self, seq: int, first: int) -> None:
        """From now on the rows of this sequence from position `first` on are kept."""
        self._wanted[seq] = first

    def ignore(self, seq: int) -> None:
        """Rows of this sequence are no longer needed; those that are held stay."""
        self._wanted[seq] = _NEVER

    def cut(self, seq: int, pos: int) -> None:
        """Rows from position pos on are of another text."""
        self._rings[seq].cut(pos)

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
            self._tap.keep(self._handle, on)
            self._on = on

    def skip(self, seq: int, pos: int) -> None:
        """An image is decoded next, from this position on; no head reads its rows."""
        self.ask(())
        self._rings[seq].cut(pos)

    def take(self, rows: Sequence[Rows]) -> None:
        """These rows were decoded."""
        hidden_rows = self._tap.rows(self._handle, sum(len(row.ids) for row in rows)) if self._on else None
        at = 0
        for row in rows:
            n, ring = len(row.ids), self._rings[row.seq]
            if hidden_rows is not None and row.pos + n > self._wanted[row.seq]:
                ring.put(row.pos, hidden_rows[at : at + n])
            else:
                ring.cut(row.pos)
            at += n
