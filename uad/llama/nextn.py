"""llama.cpp's interface for heads of multi-token prediction: experimental names, on which nothing else depends.

A head is one more block of a model. From an id and the target's hidden row of the id before it, it predicts the next
one. Heads run in a context of their own, over the same weights.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import llama_cpp.llama_cpp as binding
import numpy as np

from uad.base.common.arrays import Hidden
from uad.base.errors import ConfigError, DecodeError
from uad.base.types import Rows
from uad.llama.backend import native, symbols


@cache
def _extension() -> ModuleType | None:
    """The binding's module of experimental functions; None where it has none, or llama.cpp lacks one of them."""
    try:
        return importlib.import_module("llama_cpp.llama_cpp_ext")
    except (ImportError, AttributeError):
        return None


def check() -> None:
    """Raises ConfigError where the installed binding lacks a name that heads need."""
    if missing := ", ".join(symbols.missing_for_heads(binding, _extension())):
        raise ConfigError(
            f"--spec-type draft-mtp: llama-cpp-python {native.build_info()} lacks {missing}, which heads need; leave "
            f"draft-mtp out, or pip install 'llama-cpp-python{symbols.VERSIONS}'"
        )


def load_heads(params: Any) -> None:
    """Have a model loaded with its heads."""
    params.load_mtp = True


def make_head(params: Any, target: ctypes.c_void_p | None) -> None:
    """Make the context that these parameters are for one of a head, beside that of the target."""
    params.ctx_type = binding.LLAMA_CONTEXT_TYPE_MTP
    params.ctx_other = target


def width(model: ctypes.c_void_p) -> int:
    """Numbers of a hidden row."""
    return int(binding.llama_model_n_embd_out(model))


def keep_hidden(context: ctypes.c_void_p, on: bool, outputs_only: bool) -> None:
    """Whether the decodes to come keep hidden rows: those of the rows that want logits, or all."""
    extension = _extension()
    assert extension is not None, "nextn.check() has passed before hidden rows are read"
    extension.llama_set_embeddings_nextn(context, on, outputs_only)


def hidden(context: ctypes.c_void_p, n: int, width: int) -> Hidden:
    """The n hidden rows of the last decode, in the order of its batch; a view that the next decode overwrites."""
    extension = _extension()
    assert extension is not None, "nextn.check() has passed before hidden rows are read"
    pointer = extension.llama_get_embeddings_nextn(context)
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    if address is None:
        raise DecodeError("no hidden rows after decode")
    flat = (ctypes.c_float * (n * width)).from_address(address)
    rows: Hidden = np.frombuffer(flat, np.float32)  # type: ignore[call-overload]
    return rows.reshape(n, width)


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

    def __init__(self, handle: ctypes.c_void_p, n_seq: int, width: int, room: int) -> None:
        self._width, self._room = width, room
        self._rings = [_Ring(room, width) for _ in range(n_seq)]
        self.reopen(handle)

    def reopen(self, handle: ctypes.c_void_p) -> None:
        """The target's context was made again, or is first used."""
        self._handle = handle
        self._wanted = [_NEVER] * len(self._rings)
        self._on = False

    def forget(self) -> None:
        """No row is held any more; their memory is free."""
        self._rings[:] = [_Ring(self._room, self._width) for _ in self._rings]

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
            keep_hidden(self._handle, on, outputs_only=False)
            self._on = on

    def skip(self, seq: int, pos: int) -> None:
        """An image is decoded next, from this position on; no head reads its rows."""
        self.ask(())
        self._rings[seq].cut(pos)

    def take(self, rows: Sequence[Rows]) -> None:
        """These rows were decoded."""
        hidden_rows = hidden(self._handle, sum(len(row.ids) for row in rows), self._width) if self._on else None
        at = 0
        for row in rows:
            n, ring = len(row.ids), self._rings[row.seq]
            if hidden_rows is not None and row.pos + n > self._wanted[row.seq]:
                ring.put(row.pos, hidden_rows[at : at + n])
            else:
                ring.cut(row.pos)
            at += n
