"""Small data that expands to mebibytes of equal bytes."""

from __future__ import annotations

import zlib

MIB = 1 << 20
_GZIP_HEAD = b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff"
_ZLIB_HEAD = b"\x78\xda"


def zlib_bomb(n_mib: int, byte: bytes = b"\0") -> bytes:
    """A zlib stream of so many equal bytes."""
    total = 1
    for _ in range(n_mib):
        total = zlib.adler32(byte * MIB, total)
    return _ZLIB_HEAD + _packed(n_mib, byte) + total.to_bytes(4, "big")


def gzip_bomb(n_mib: int, byte: bytes = b"\0") -> bytes:
    """A gzip file of so many equal bytes."""
    total = 0
    for _ in range(n_mib):
        total = zlib.crc32(byte * MIB, total)
    return _GZIP_HEAD + _packed(n_mib, byte) + total.to_bytes(4, "little") + (n_mib * MIB).to_bytes(4, "little")


def _packed(n_mib: int, byte: bytes) -> bytes:
    """Each mebibyte is a block of its own, so that compressing one of them is enough, and takes no memory: tests
    measure the memory of who reads them.
    """
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = packer.compress(byte * MIB) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * n_mib + packer.flush()
