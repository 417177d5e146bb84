"""Lists of texts in the header of a GGUF file, which llama.cpp reads and does not hand out. Knows the container, not what its keys mean.

Source: GGUF's description in ggml's docs. llama.cpp has loaded the file before, so what is not understood here is only left out.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection
from pathlib import Path

_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_U32, _U64, _HEAD = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<4sIQQ")


def read_texts(path: Path, keys: Collection[str]) -> dict[str, list[str]]:
    """The arrays of texts under these keys, as far as the file has them; empty if it is damaged, or not little-endian GGUF of version 2
    or 3."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data, keys)
    except (OSError, ValueError, KeyError, OverflowError, struct.error):
        return {}


def _read(data: mmap.mmap, keys: Collection[str]) -> dict[str, list[str]]:
    magic, version, _, n_pairs = _HEAD.unpack_from(data)
    if magic != b"GGUF" or version not in (2, 3):
        return {}
    found: dict[str, list[str]] = {}
    at = _HEAD.size
    for _ in range(n_pairs):
        key, at = _string(data, at)
        kind, at = _U32.unpack_from(data, at)[0], at + 4
        if kind == _STRING:
            at += 8 + _U64.unpack_from(data, at)[0]
        elif kind == _ARRAY:
            values, at = _array(data, at, key in keys)
            if values is not None:
                found[key] = values
            if len(found) == len(keys):
                break
        else:
            at += _SIZES[kind]
    return found


def _string(data: mmap.mmap, at: int) -> tuple[str, int]:
    end = at + 8 + _U64.unpack_from(data, at)[0]
    return data[at + 8 : end].decode(errors="replace"), end


def _array(data: mmap.mmap, at: int, wanted: bool) -> tuple[list[str] | None, int]:
    """The values, None where they are not wanted or of another kind, and where the next pair begins."""
    kind, n = _U32.unpack_from(data, at)[0], _U64.unpack_from(data, at + 4)[0]
    at += 12
    if kind != _STRING:
        return None, at + n * _SIZES[kind]
    size_of, texts = _U64.unpack_from, []
    for _ in range(n):
        end = at + 8 + size_of(data, at)[0]
        if wanted:
            texts.append(data[at + 8 : end].decode(errors="replace"))
        at = end
    return texts if wanted else None, at
