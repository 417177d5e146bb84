"""Files of slots: what a model remembers of a text, with the text's ids, and of which model it is.

    magic, version, length of the header, checksum of all that follows      24 bytes
    header: JSON with the names of model, vocabulary and so on, and the lengths of the parts
    parts: ids, the target's state, its marks, the same of the draft

A file is written beside its place and moved there whole. Names of files are names, never paths, and links are not
followed. A file that cannot be used is refused before anything is changed.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uad.base.common.files import write_atomically
from uad.base.errors import InvalidRequestError, UadError
from uad.llama.memory import Bytes, Checkpoint, SavedSequence

VERSION = 1
_MAGIC = b"uadslot\n"
_PREFIX = struct.Struct("<8sIQI")
_HEADER_LIMIT = 1 << 20
_MOST_NAME = 255  # bytes
# control characters, what Windows refuses, and what looks like a path's separators or like nothing
_FORBIDDEN = frozenset([*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *'/\\:*?"<>|．∕∖\ufffd\ufeff'])
_STEP = 1 << 24
Facts = Mapping[str, str]
"""What a state is of, by what people call it: a state fits only where all of these are the same."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a model held of a text: its ids, of which the first `skip` are not in the memory. facts: see `Facts`."""

    facts: Facts
    ids: Sequence[int]
    state: SavedSequence
    skip: int = 0


@dataclass(frozen=True, slots=True)
class SavedSlot:
    """A slot: the target's state, and the draft model's, where it had one that can be kept."""

    target: SavedState
    draft: SavedState | None = None


def file_in(folder: Path, name: str) -> Path:
    """The file of this name in a folder, by llama-server's rule for names. Raises InvalidRequestError."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    is_fine = 0 < size <= _MOST_NAME and ".." not in name and not name.startswith(" ") and name[-1] not in " ."
    if not is_fine or not _FORBIDDEN.isdisjoint(name):
        raise InvalidRequestError("Invalid filename", "filename")
    return folder / name


def write_slot(path: Path, slot: SavedSlot) -> int:
    """Write a file, and return its bytes. Raises InvalidRequestError where a link or something else than a file has
    this name, and UadError where it cannot be written; what was there stays.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise _refused("save", path, "it is a link, a folder or a device, not a file")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _failed("save", path, error) from error
    states = [slot.target] if slot.draft is None else [slot.target, slot.draft]
    parts = [part for state in states for part in _parts(state)]
    header = json.dumps([_header(state) for state in states]).encode()
    checksum = zlib.crc32(header)
    for part in parts:
        for piece in _pieces(part):
            checksum = zlib.crc32(piece, checksum)
    whole: list[bytes | memoryview] = [_PREFIX.pack(_MAGIC, VERSION, len(header), checksum), header, *parts]
    try:
        write_atomically(path, *whole)
    except OSError as error:
        raise _failed("save", path, error) from error
    return sum(len(part) for part in whole)


def read_slot(path: Path, target: Facts, draft: Facts | None) -> tuple[SavedSlot, int]:
    """What a file holds, and its bytes. A draft's state that is of another model, or settings, is left out.

    Raises InvalidRequestError, which says why, for a file that is missing, damaged, of another version, or of another
    model; UadError where it cannot be read.
    """
    try:
        data = _whole(path)
    except OSError as error:
        raise _failed("restore", path, error) from error
    except MemoryError:
        raise UadError(f"Unable to restore slot: {path.name}: there is no memory for it") from None
    if data[: len(_MAGIC)].tobytes() != _MAGIC or len(data) < _PREFIX.size:
        raise _refused("restore", path, "it is not a slot of uad")
    _, version, n_header, checksum = _PREFIX.unpack_from(data.data)
    if version != VERSION:
        raise _refused("restore", path, f"it has version {version} of the format, this program reads {VERSION}")
    found = 0
    for piece in _pieces(data.data[_PREFIX.size :]):
        found = zlib.crc32(piece, found)
    if found != checksum or n_header > _HEADER_LIMIT:
        raise _refused("restore", path, "it was damaged or cut: its checksum is wrong")
    try:
        states = _states(json.loads(data[_PREFIX.size : _PREFIX.size + n_header].tobytes()), data, n_header)
    except (ValueError, TypeError, LookupError, RecursionError):
        raise _refused("restore", path, "its header makes no sense") from None
    for what, own in target.items():
        if (other := states[0].facts.get(what)) != own:
            raise _refused("restore", path, f"it is of another {what} ({other}; here it is {own})")
    others = [state for state in states[1:] if state.facts == draft]
    return SavedSlot(states[0], others[0] if others else None), len(data)


def _refused(action: str, path: Path, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"Unable to {action} slot: {path.name}: {why}", "filename")


def _failed(action: str, path: Path, error: OSError) -> UadError:
    """The error of a file that cannot be written or read; a name that is not there is the request's fault."""
    if isinstance(error, FileNotFoundError) and action == "restore":
        return _refused(action, path, "there is no such file")
    return UadError(f"Unable to {action} slot: {path.name}: {error.strerror or error}")


def _whole(path: Path) -> Bytes:
    """All bytes of a file, no link. Raises OSError, MemoryError or InvalidRequestError."""
    if path.is_symlink():  # for systems without the flag
        raise _refused("restore", path, "it is a link")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise _refused("restore", path, "it is a folder or a device, not a file")
        data = np.empty(about.st_size, np.uint8)
        at = 0
        while at < len(data) and (n := file.readinto(data.data[at : at + _STEP])):
            at += n
    return data[:at]


def _pieces(part: memoryview) -> Iterator[memoryview]:
    """A part of a file in steps that a signal or another thread need not wait long for."""
    for at in range(0, len(part), _STEP):
        yield part[at : at + _STEP]


def _parts(state: SavedState) -> list[memoryview]:
    ids = np.asarray(state.ids, "<i4").view(np.uint8)
    return [one.data for one in (ids, state.state.data, *(mark.data for mark in state.state.marks))]


def _header(state: SavedState) -> dict[str, Any]:
    own = state.state
    marks = [[mark.pos, len(mark.data)] for mark in own.marks]
    lengths = {"ids": len(state.ids), "skip": state.skip, "end": own.end, "first": own.first, "data": len(own.data)}
    return {"facts": dict(state.facts), **lengths, "marks": marks}


def _states(headers: Any, data: Bytes, n_header: int) -> list[SavedState]:
    """The states that the header names, as views of the file. Raises ValueError, TypeError or LookupError."""
    at = _PREFIX.size + n_header
    states = []

    def take(n: int) -> npt.NDArray[np.uint8]:
        nonlocal at
        if not 0 <= n <= len(data) - at:
            raise ValueError
        at += n
        return data[at - n : at]

    for one in headers:
        ids = take(4 * one["ids"]).tobytes()
        state = take(one["data"])
        marks = tuple(Checkpoint(pos, take(n)) for pos, n in one["marks"])
        if not all(type(n) is int for n in (one["skip"], one["end"], one["first"], *(mark.pos for mark in marks))):
            raise ValueError
        saved = SavedSequence(one["end"], one["first"], state, marks)
        states.append(SavedState(dict(one["facts"]), np.frombuffer(ids, "<i4").tolist(), saved, one["skip"]))
    if at != len(data) or not states:
        raise ValueError
    return states
