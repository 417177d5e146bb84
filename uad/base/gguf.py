"""GGUF files as containers: pairs of keys and values, and tensors, read in place and written again; and the names of
those that are split into parts. Does not know what keys and tensors mean.

Source: GGUF's description in ggml's docs. Little-endian files of version 2 and 3, which is all that llama.cpp writes.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Self

from uad.base.common.files import is_file, is_there, no_such_file
from uad.base.errors import ModelLoadError

STRING, ARRAY = 8, 9
BLOCKS = (
    {0: (1, 4), 1: (1, 2), 30: (1, 2), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8)}
    | {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 20: (32, 18), 39: (32, 17)}
    | {10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292)}
    | {
        16: (256, 66),
        17: (256, 74),
        18: (256, 98),
        19: (256, 50),
        21: (256, 110),
        22: (256, 82),
        23: (256, 136),
        29: (256, 56),
    }
    | {34: (256, 54), 35: (256, 66), 40: (64, 36), 41: (128, 18)}
)
"""How tensors store numbers, by ggml's number of the type: how many share a block, and its bytes."""
TypeSizes = Callable[[int], tuple[int, int] | None]
_askable: list[TypeSizes] = []

_TensorInfo = tuple[str, tuple[int, ...], int, int]
Span = tuple[int, int]
"""Where something begins in a file, and where it ends."""

_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_WHOLE = frozenset(_FORMATS) - {6, 7, 12}
_PACKED = {kind: struct.Struct(f"<{letter}") for kind, letter in _FORMATS.items()}
_U32, _U64, _HEAD = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<4sIQQ")
_DAMAGED = (struct.error, ValueError, LookupError, ArithmeticError, MemoryError)
_ALIGNMENT = "general.alignment"
_ALIGNMENT_BYTES, _MOST_DIMENSIONS = 32, 8
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Value:
    """A value where it stands: `kind` is GGUF's number of its type, for arrays that of the elements; `span` holds the
    value, without it.
    """

    kind: int
    is_array: bool
    span: Span

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number, or several."""
        return self.kind in _WHOLE


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor where it stands: `shape` begins with the length of a row, `kind` is ggml's number of the type."""

    name: str
    shape: tuple[int, ...]
    kind: int
    span: Span

    @property
    def n_bytes(self) -> int:
        """Bytes of its data in the file."""
        return self.span[1] - self.span[0]


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor to be written, put together of stretches of the file that it comes from."""

    name: str
    shape: tuple[int, ...]
    kind: int
    spans: Sequence[Span]

    @property
    def n_bytes(self) -> int:
        """Bytes of its data, all stretches together."""
        return sum(end - start for start, end in self.spans)


class GgufFile:
    """An open file, mapped into memory: nothing is read before it is needed. Use with `with`. Raises ModelLoadError
    when opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _mapped(path)
        try:
            self._header = _header_of(path, self._data)
        except _DAMAGED as error:
            self.close()
            why = "it ends within its header" if isinstance(error, struct.error) else error
            raise ModelLoadError(f"{path}: damaged or truncated GGUF file ({why}); is it complete?") from error
        except BaseException:
            self.close()
            raise
        self.values: Mapping[str, Value] = self._header.values
        self.version, self.size = self._header.version, self._header.size
        self.alignment = self._header.alignment
        """Tensors begin at multiples of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._data.close()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors. Raises ModelLoadError where the type of one is not known; the values are there all the same."""
        if self._header.unknown:
            raise ModelLoadError(
                f"{self.path}: {self._header.unknown}, which is not known here; a newer llama-cpp-python may know it"
            )
        return self._header.tensors

    def bytes_of(self, span: Span) -> bytes:
        """A copy of the bytes of a span; what lies beyond the end of the file is missing."""
        return self._data[span[0] : span[1]]

    def text(self, key: str) -> str | None:
        """A single text; None if the key has none."""
        value = self.values.get(key)
        if value is None or value.is_array or value.kind != STRING:
            return None
        return self.bytes_of(value.span)[_U64.size :].decode(errors="replace")

    def whole(self, key: str) -> int | None:
        """A single whole number; None if the key has none, or a value of another kind."""
        value = self.values.get(key)
        return (
            int(_numbers(self._data, value)[0]) if value is not None and value.is_whole and not value.is_array else None
        )

    def texts(self, key: str, errors: str = "replace") -> list[str]:
        """An array of texts; empty if the key has none. `errors` as in `bytes.decode`."""
        return [text.decode(errors=errors) for text in self.raw_texts(key)]

    def raw_texts(self, key: str) -> list[bytes]:
        """An array of texts as the file has them, not decoded; empty if the key has none."""
        value = self.values.get(key)
        if value is None or not value.is_array or value.kind != STRING:
            return []
        texts, data, at, unpack = [], self.bytes_of(value.span), _U32.size + _U64.size, _U64.unpack_from
        for _ in range(self.length(key)):  # no call for each: vocabularies have 500,000
            start = at + _U64.size
            at = start + unpack(data, at)[0]
            texts.append(data[start:at])
        return texts

    def numbers(self, key: str) -> list[int | float]:
        """An array of numbers; empty if the key has none."""
        value = self.values.get(key)
        return _numbers(self._data, value) if value is not None and value.is_array and value.kind != STRING else []

    def length(self, key: str) -> int:
        """How many elements an array has; 0 if the key has no array."""
        value = self.values.get(key)
        return _Cursor(self._data, value.span[0] + _U32.size).u64() if value is not None and value.is_array else 0

    def elements(self, key: str) -> list[Span]:
        """Where the elements of an array stand, of texts with their length before them; empty where there is none."""
        value = self.values.get(key)
        if value is None or not value.is_array:
            return []
        cursor = _Cursor(self._data, value.span[0] + _U32.size)
        n = cursor.u64()
        if value.kind == STRING:
            return list(pairwise(cursor.texts(n)))
        size = _PACKED[value.kind].size
        return [cursor.skip(size) for _ in range(n)]


@dataclass(frozen=True, slots=True)
class _Header:
    """A header that was parsed: the file's size and version, where the header ends, a hash of its bytes, and what it
    holds. infos: name, shape, type and place of each tensor; n_askable: of those who know sizes of types, when
    `tensors` were placed; unknown: what is stored in a way that nobody knows.
    """

    size: int
    version: int
    end: int
    digest: bytes
    values: dict[str, Value]
    infos: Sequence[_TensorInfo]
    alignment: int
    n_askable: int = -1
    tensors: tuple[Tensor, ...] = ()
    unknown: str = ""


_MOST_HEADERS = 8
_headers: dict[Path, _Header] = {}
"""The latest headers: a start reads each a dozen times, and a vocabulary of 150,000 tokens takes 0.15 s to parse, but
0.01 s to hash.
"""


def _header_of(path: Path, data: mmap.mmap) -> _Header:
    """The header of a file, parsed or kept. Raises ModelLoadError, or one of `_DAMAGED`."""
    kept = _headers.get(path)
    is_same = kept is not None and kept.size == len(data) and kept.digest == _digest(data, kept.end)
    header = kept if kept is not None and is_same else _parsed(path, data)
    if header.n_askable != len(_askable):
        header = _placed(data, header)
    if header is not kept:
        _headers.pop(path, None)
        while len(_headers) >= _MOST_HEADERS:
            del _headers[next(iter(_headers))]
        _headers[path] = header
    return header


def _digest(data: mmap.mmap, end: int) -> bytes:
    """A hash of the first `end` bytes."""
    with memoryview(data) as view, view[:end] as head:
        return blake2b(head, digest_size=16).digest()


def _parsed(path: Path, data: mmap.mmap) -> _Header:
    if data[:4] != b"GGUF":
        raise ModelLoadError(f"{path}: not a GGUF file")
    _, version, n_tensors, n_values = _HEAD.unpack_from(data)
    if version not in (2, 3):
        raise ModelLoadError(f"{path}: GGUF version {version} is not known here; convert the model again")
    cursor = _Cursor(data, _HEAD.size)
    values = {}
    for _ in range(n_values):
        key = cursor.name()
        values[key] = cursor.value()
    infos = [cursor.tensor() for _ in range(n_tensors)]
    aligned = values.get(_ALIGNMENT)
    is_number = aligned is not None and aligned.is_whole and not aligned.is_array
    alignment = int(_numbers(data, aligned)[0]) if aligned is not None and is_number else _ALIGNMENT_BYTES
    return _Header(len(data), version, cursor.at, _digest(data, cursor.at), values, infos, alignment)


def _placed(data: mmap.mmap, header: _Header) -> _Header:
    """The header with its tensors where they stand, by the sizes of types that are known now."""
    # the weights begin at the next multiple of the alignment: a header of 1,001 bytes ends with 23 of padding
    start = header.end + -header.end % header.alignment
    tensors, unknown = [], ""
    for name, shape, kind, offset in header.infos:
        if (sizes := type_sizes(kind)) is None:
            unknown = unknown or f"tensor {name} is of type {kind}"
            continue
        block, n_bytes = sizes
        if not shape or shape[0] % block:
            raise ValueError(f"tensor {name} has rows of {shape[0] if shape else 0} numbers in blocks of {block}")
        span = _Cursor(data, start + offset).skip(math.prod(shape) // block * n_bytes)
        tensors.append(Tensor(name, shape, kind, span))
    return replace(header, n_askable=len(_askable), tensors=tuple(tensors), unknown=unknown)


def _numbers(data: mmap.mmap, value: Value) -> list[int | float]:
    start = value.span[0] + (_U32.size + _U64.size if value.is_array else 0)
    return [number for (number,) in _PACKED[value.kind].iter_unpack(data[start : value.span[1]])]


class _Cursor:
    """Reads a file from a place on. Raises ValueError or struct.error for a value that ends beyond the file."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self.at = at
        self._data = data

    def skip(self, n_bytes: int) -> Span:
        """Where the next bytes stand."""
        start, self.at = self.at, self.at + n_bytes
        if self.at > len(self._data):
            raise ValueError(f"it ends at byte {len(self._data)}, what it holds at {self.at}")
        return start, self.at

    def u32(self) -> int:
        (number,) = _U32.unpack_from(self._data, self.at)
        self.at += _U32.size
        return int(number)

    def u64(self) -> int:
        (number,) = _U64.unpack_from(self._data, self.at)
        self.at += _U64.size
        return int(number)

    def text(self) -> Span:
        """Where a text stands, its length before it included."""
        (n_bytes,) = _U64.unpack_from(self._data, self.at)
        return self.skip(_U64.size + n_bytes)

    def texts(self, n: int) -> Iterator[int]:
        """Where n texts begin, each with its length before it, and where the last one ends.

        A start of a model reads its header several times, and vocabularies have 500,000 texts: hence no call for each.
        """
        data, at, end, unpack = self._data, self.at, len(self._data), _U64.unpack_from
        yield at
        for _ in range(n):
            at += _U64.size + unpack(data, at)[0]
            if at > end:
                raise ValueError(f"it ends at byte {end}, what it holds at {at}")
            yield at
        self.at = at

    def name(self) -> str:
        start, end = self.text()
        return self._data[start + _U64.size : end].decode(errors="surrogateescape")

    def value(self) -> Value:
        """A value after its key: the number of its type, of arrays also that of the elements and how many there are.

        The array ["a", "bc"] has 4 bytes for ARRAY, then a span of 31: 4 for STRING, 8 for the 2, and two texts of
        8 + 1 and 8 + 2.
        """
        kind = self.u32()
        if kind == STRING:
            return Value(kind, False, self.text())
        if kind != ARRAY:
            return Value(kind, False, self.skip(_PACKED[kind].size))
        start, kind, n = self.at, self.u32(), self.u64()
        if kind != STRING:
            self.skip(n * _PACKED[kind].size)
        else:
            for _ in self.texts(n):
                pass
        return Value(kind, True, (start, self.at))

    def tensor(self) -> _TensorInfo:
        """Name, shape, type and place within the weights of a tensor."""
        name, n = self.name(), self.u32()
        if n > _MOST_DIMENSIONS:
            raise ValueError(f"tensor {name} has {n} dimensions")
        shape = struct.unpack_from(f"<{n}Q", self._data, self.at)
        self.at += n * _U64.size
        return name, shape, self.u32(), self.u64()


def _mapped(path: Path) -> mmap.mmap:
    if not is_there(path):
        raise ModelLoadError(f"{path}: {no_such_file(path)}")
    if not is_file(path):
        raise ModelLoadError(f"{path}: not a file; give the path of a .gguf file")
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:  # an empty file
        raise ModelLoadError(f"{path}: not a GGUF file") from error


def ask_for_types(sizes: TypeSizes) -> None:
    """From now on `sizes` is asked before `BLOCKS`: llama.cpp knows newer types, and reads the files in the end."""
    if sizes not in _askable:
        _askable.append(sizes)


def type_sizes(kind: int) -> tuple[int, int] | None:
    """How many numbers of a type share a block, and its bytes; None for a type that nobody knows."""
    return next((sizes for ask in _askable if (sizes := ask(kind)) is not None), BLOCKS.get(kind))


def all_tensors(path: Path) -> Iterator[Tensor]:
    """The tensors of a file, and those of the other parts of one that was split. Raises ModelLoadError."""
    for part in files_of(path):
        with GgufFile(part) as file:
            yield from file.tensors


def read_texts(path: Path, keys: Collection[str]) -> dict[str, list[str]]:
    """The arrays of texts under these keys, as far as the file has them; empty if it is damaged, or not such a file."""
    try:
        with GgufFile(path) as file:
            texts = {key: file.values[key] for key in keys if key in file.values}
            return {key: file.texts(key) for key, value in texts.items() if value.is_array and value.kind == STRING}
    except ModelLoadError:
        return {}


# --- writing


def array(kind: int, elements: Sequence[bytes]) -> bytes:
    """An array of this element type as it stands in a file; texts have their length before them."""
    return _U32.pack(kind) + _U64.pack(len(elements)) + b"".join(elements)


def number(kind: int, value: int) -> bytes:
    """A whole number of this type as it stands in a file."""
    return _PACKED[kind].pack(value)


def write(
    source: GgufFile,
    out: Path,
    replaced: dict[str, bytes],
    tensors: Iterable[NewTensor],
    progress: Callable[[int, int], None],
) -> None:
    """Write `out` from `source`: its pairs, some of them with other values of the same type, and these tensors. Raises
    OSError.

    `progress` gets the bytes of weights that are written, and all of them.
    """
    tensors = tuple(tensors)
    align, total = source.alignment, sum(tensor.n_bytes for tensor in tensors)
    with out.open("wb") as file:
        head = _head(source, replaced, tensors)
        file.write(head + bytes(-len(head) % align))
        done = 0
        for tensor in tensors:
            for start, end in tensor.spans:
                for at in range(start, end, _CHUNK_BYTES):
                    done += file.write(source.bytes_of((at, min(at + _CHUNK_BYTES, end))))
                progress(done, total)
            file.write(bytes(-tensor.n_bytes % align))


def _head(source: GgufFile, replaced: dict[str, bytes], tensors: Sequence[NewTensor]) -> bytes:
    parts = [_HEAD.pack(b"GGUF", source.version, len(tensors), len(source.values))]
    for key, value in source.values.items():
        kind = ARRAY if value.is_array else value.kind
        parts += [_named(key), _U32.pack(kind), replaced[key] if key in replaced else source.bytes_of(value.span)]
    offset = 0
    for tensor in tensors:
        shape = struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
        parts += [_named(tensor.name), _U32.pack(len(tensor.shape)), shape, _U32.pack(tensor.kind), _U64.pack(offset)]
        offset += tensor.n_bytes + -tensor.n_bytes % source.alignment
    return b"".join(parts)


def _named(text: str) -> bytes:
    data = text.encode(errors="surrogateescape")
    return _U64.pack(len(data)) + data


# --- split files, named as llama.cpp writes them: NAME-00001-of-00003.gguf and so on


_PART = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})(?P<end>\.gguf)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One part of a split file. `index` counts from 1; `stem` is the name without numbers and ending."""

    stem: str
    index: int
    count: int
    end: str

    def names(self) -> tuple[str, ...]:
        """The names of all parts, in order: llama.cpp loads them by the first."""
        return tuple(f"{self.stem}-{i:05d}-of-{self.count:05d}{self.end}" for i in range(1, self.count + 1))


def part_of(name: str) -> SplitPart | None:
    """The place of a file among its parts, from its name; None for a file that is whole."""
    match = _PART.fullmatch(name)
    return SplitPart(match["stem"], int(match["index"]), int(match["count"]), match["end"]) if match else None


def files_of(path: Path) -> tuple[Path, ...]:
    """All parts of the file that this path belongs to, in order; the path alone where the file is whole."""
    part = part_of(path.name)
    return tuple(path.with_name(name) for name in part.names()) if part else (path,)
