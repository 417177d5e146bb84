"""Files of slots: what a model remembers of a text, with the text's ids, and of which model it is.

    magic, version, length of the header, checksum of all that follows      24 bytes
    header: JSON with the names of model, vocabulary and so on, and the lengths of the parts
    parts: ids, the target's state, its marks, the same of each draft

A file is written beside its place and moved there whole. Names of files are names, never paths, and links are not
followed. A file that cannot be used is refused before anything is changed.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uad.base.common.files import write_atomically
from uad.base.errors import InvalidRequestError, UadError
from uad.llama.memory import Checkpoint, SavedSequence
from uad.llama.window_cells import Bytes

VERSION = 1
_MAGIC = b"uadslot\n"
_PREFIX = struct.Struct("<8sIQI")
_MOST_HEADER_BYTES = 1 << 20
_MOST_NAME_BYTES = 255  # bytes
# control characters, what Windows refuses, and what looks like a path's separators or like nothing
_FORBIDDEN = frozenset([*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *'/\\:*?"<>|．∕∖\ufffd\ufeff'])
_STEP_BYTES = 1 << 24
_SHOWN_LETTERS = 120
_NO_BYTES: Bytes = np.empty(0, np.uint8)
Facts = Mapping[str, str]
"""Facts about a state, in people's words: a state fits only where all of these are the same."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A text as a model held it: its ids, of which the first `skip` are not in the memory. facts: see `Facts`."""

    facts: Facts
    ids: Sequence[int]
    state: SavedSequence
    skip: int = 0


@dataclass(frozen=True, slots=True)
class SavedSlot:
    """A slot: the target's state, and those of draft models, as far as they can be kept. rate: ids of such a text that
    were read per second; 0: not known.
    """

    target: SavedState
    drafts: tuple[SavedState, ...] = ()
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Outline:
    """A file's description of itself: a slot without the bytes of its states, and without ids of drafts. ids: the
    target's, int32 [n]. n_bytes: of the file.
    """

    slot: SavedSlot
    ids: npt.NDArray[np.int32]
    n_bytes: int


class UnusableFileError(InvalidRequestError):
    """A file that is damaged, no slot, or of another model; `why` says which."""

    def __init__(self, action: str, path: Path, why: str) -> None:
        super().__init__(f"Unable to {action} slot: {path.name}: {why}", "filename")
        self.why = why


class TooSlowError(UadError):
    """Reading took longer than it may."""


def file_in(folder: Path, name: str) -> Path:
    """The file of this name in a folder, by llama-server's rule for names. Raises InvalidRequestError."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    is_fine = 0 < size <= _MOST_NAME_BYTES and ".." not in name and not name.startswith(" ") and name[-1] not in " ."
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
    header, parts = _content(slot)
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


def size_in_file(slot: SavedSlot) -> int:
    """Bytes of the file that `write_slot` writes."""
    header, parts = _content(slot)
    return _PREFIX.size + len(header) + sum(len(part) for part in parts)


def read_slot(
    path: Path, target: Facts, drafts: Sequence[Facts], go_on: Callable[[int], bool] = lambda n_bytes: True
) -> tuple[SavedSlot, int]:
    """A file's slot, and its size in bytes. drafts: facts of the draft models; the state of another one, or with other
    settings, is left out. go_on: says after n bytes whether reading may go on.

    Raises InvalidRequestError, which says why, for a file that is missing, damaged, of another version, or of another
    model; TooSlowError where go_on said no; UadError where it cannot be read.
    """
    try:
        with _opened(path) as (file, size):
            data = np.empty(size, np.uint8)
            data = data[: _fill(file, data, go_on)]
    except OSError as error:
        raise _failed("restore", path, error) from error
    except MemoryError:
        raise UadError(f"Unable to restore slot: {path.name}: there is no memory for it") from None
    n_header, checksum = _checked(path, data[: _PREFIX.size].tobytes())
    crc = 0
    for piece in _pieces(data.data[_PREFIX.size :]):
        crc = zlib.crc32(piece, crc)
    if crc != checksum or n_header > _MOST_HEADER_BYTES:
        raise _refused("restore", path, "it was damaged or cut: its checksum is wrong")
    at = _PREFIX.size + n_header

    def take(n: int) -> Bytes:
        nonlocal at
        if not 0 <= n <= len(data) - at:
            raise ValueError
        at += n
        return data[at - n : at]

    with _sense(path):
        slot = _slot(
            json.loads(data[_PREFIX.size : at].tobytes()),
            lambda n: np.frombuffer(take(4 * n).tobytes(), "<i4").tolist(),
            take,
        )
        if at != len(data):
            raise ValueError
    _check_facts(path, slot, target)
    return replace(slot, drafts=tuple(draft for draft in slot.drafts if draft.facts in drafts)), len(data)


def read_outline(path: Path, target: Facts) -> Outline:
    """A file's description of itself, without the states; whether these are whole is seen when they are read.

    Raises what `read_slot` does.
    """
    try:
        with _opened(path) as (file, size):
            data = np.empty(_PREFIX.size, np.uint8)
            n_header, _ = _checked(path, data[: _fill(file, data)].tobytes())
            at = _PREFIX.size + n_header
            ids: list[npt.NDArray[np.int32]] = []
            if n_header > _MOST_HEADER_BYTES or at > size:
                raise _refused("restore", path, "it was damaged or cut")
            header = np.empty(n_header, np.uint8)
            _fill(file, header)

            def skip(n: int) -> Bytes:
                nonlocal at
                if not 0 <= n <= size - at:
                    raise ValueError
                at += n
                return _NO_BYTES

            def some_ids(n: int) -> Sequence[int]:
                skip(4 * n)
                if not ids:  # those of the target come first
                    ids.append(np.empty(n, "<i4"))
                    if _fill(file, ids[0].view(np.uint8)) != 4 * n:
                        raise ValueError
                return ()

            with _sense(path):
                slot = _slot(json.loads(header.tobytes()), some_ids, skip)
                if at != size:
                    raise ValueError
    except OSError as error:
        raise _failed("restore", path, error) from error
    _check_facts(path, slot, target)
    return Outline(slot, ids[0], size)


def _checked(path: Path, prefix: bytes) -> tuple[int, int]:
    """Length of the header, and the checksum, of the first bytes of a file. Raises UnusableFileError."""
    if not prefix.startswith(_MAGIC) or len(prefix) < _PREFIX.size:
        raise _refused("restore", path, "it is not a slot of uad")
    _, version, n_header, checksum = _PREFIX.unpack(prefix)
    if version != VERSION:
        raise _refused("restore", path, f"it has version {version} of the format, this program reads {VERSION}")
    return n_header, checksum


def _check_facts(path: Path, slot: SavedSlot, target: Facts) -> None:
    for what, own in target.items():
        if (other := slot.target.facts.get(what)) != own:
            raise _refused("restore", path, f"it is of another {what} ({_short(other)}; here it is {_short(own)})")


def _short(fact: object) -> str:
    """A fact as a line of a log can hold it."""
    text = str(fact)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…"


@contextmanager
def _sense(path: Path) -> Iterator[None]:
    """Says in one sentence that a header makes no sense, whatever is wrong with it."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise _refused("restore", path, "its header makes no sense") from None


def _refused(action: str, path: Path, why: str) -> UnusableFileError:
    return UnusableFileError(action, path, why)


def _failed(action: str, path: Path, error: OSError) -> UadError:
    """The error of a file that cannot be written or read; a name that is not there is the request's fault."""
    if isinstance(error, FileNotFoundError) and action == "restore":
        return _refused(action, path, "there is no such file")
    return UadError(f"Unable to {action} slot: {path.name}: {error.strerror or error}")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[FileIO, int]]:
    """A file, no link, and its bytes. Raises OSError or UnusableFileError."""
    if path.is_symlink():  # for systems without the flag
        raise _refused("restore", path, "it is a link")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise _refused("restore", path, "it is a folder or a device, not a file")
        yield file, about.st_size


def _fill(file: FileIO, data: Bytes, go_on: Callable[[int], bool] = lambda n_bytes: True) -> int:
    """Read as many bytes as there is room for, or as the file has; returns how many. Raises OSError or TooSlowError."""
    at = 0
    while at < len(data) and (n := file.readinto(data.data[at : at + _STEP_BYTES])):
        at += n
        if not go_on(at):
            raise TooSlowError("reading takes too long")
    return at


def _pieces(part: memoryview) -> Iterator[memoryview]:
    """A part of a file in steps that a signal or another thread need not wait long for."""
    for at in range(0, len(part), _STEP_BYTES):
        yield part[at : at + _STEP_BYTES]


def _content(slot: SavedSlot) -> tuple[bytes, list[memoryview]]:
    """Header and parts of a file."""
    states = [slot.target, *slot.drafts]
    headers = [_header(state) for state in states]
    headers[0]["rate"] = slot.rate
    return json.dumps(headers).encode(), [part for state in states for part in _parts(state)]


def _parts(state: SavedState) -> list[memoryview]:
    ids = np.asarray(state.ids, "<i4").view(np.uint8)
    return [part.data for part in (ids, state.state.data, *(mark.data for mark in state.state.marks))]


def _header(state: SavedState) -> dict[str, Any]:
    own = state.state
    marks = [[mark.pos, len(mark.data)] for mark in own.marks]
    lengths = {"ids": len(state.ids), "skip": state.skip, "end": own.end, "first": own.first, "data": len(own.data)}
    return {"facts": dict(state.facts), **lengths, "marks": marks}


def _slot(headers: Any, ids: Callable[[int], Sequence[int]], take: Callable[[int], Bytes]) -> SavedSlot:
    """The slot that the header names. ids, take: the next n ids, or bytes, of the file. Raises ValueError, TypeError,
    AttributeError or LookupError.
    """
    states = []
    for header in headers:
        own = ids(header["ids"])
        state = take(header["data"])
        marks = tuple(Checkpoint(pos, take(n)) for pos, n in header["marks"])
        if not all(
            type(n) is int for n in (header["skip"], header["end"], header["first"], *(mark.pos for mark in marks))
        ):
            raise ValueError
        states.append(
            SavedState(
                dict(header["facts"]), own, SavedSequence(header["end"], header["first"], state, marks), header["skip"]
            )
        )
    return SavedSlot(states[0], tuple(states[1:]), float(headers[0].get("rate", 0.0)))
