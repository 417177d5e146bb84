"""Files of what drafters learned: one header line of JSON and rows of 32-bit numbers. Knows no drafter.

A file belongs to a vocabulary and to a version of this format. It is written beside its place and moved there whole, so
that a crash leaves the old file. A file that cannot be used is refused and never overwritten.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from uad.base.common.arrays import Ints
from uad.base.common.files import why_not_writable, write_atomically
from uad.text.vocab.table import VocabTable

_log = logging.getLogger("uad")
_MAGIC = "uad drafter store"
_VERSION = 1
_MOST_HEADER_BYTES = 4096


class Loadable(Protocol):
    """Something made from the rows of a file."""

    def load(self, rows: Ints) -> None:
        """Take over these rows, [n, width]."""


class StoreError(Exception):
    """A file cannot be used; the text says why."""


def fingerprint(vocab: VocabTable) -> str:
    """A name for a vocabulary: equal if and only if every id stands for the same bytes or special."""
    digest = hashlib.sha256()
    for id_, piece in enumerate(vocab.pieces):
        data = vocab.special_names.get(id_, "").encode() if id_ in vocab.special_names else piece
        digest.update(b"%d:%d:" % (id_ in vocab.special_names, len(data)))
        digest.update(data)
    return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file: where it is, what kind of rows it holds, how wide they are, and of which vocabulary."""

    path: Path
    kind: str
    width: int
    vocabulary: str

    def load(self) -> Ints | None:
        """The rows; None where the file cannot be used, with a line in the log. No rows where there is no file yet.

        A line also says where `save` will not be able to write it.
        """
        try:
            rows = self.read()
        except FileNotFoundError:
            rows = np.zeros((0, self.width), dtype=np.int32)
        except (StoreError, OSError, MemoryError) as error:
            self._refuse(
                (error.strerror or str(error))
                if isinstance(error, OSError)
                else str(error) or "there is no memory for it"
            )
            return None
        if why := why_not_writable(self.path):
            _log.warning("%s: cannot be written (%s): what is learned is lost when the server stops", self.path, why)
        return rows

    def fill(self, target: Loadable) -> bool:
        """Give the rows to target; False where the file cannot be used. A missing file has no rows."""
        rows = self.load()
        if rows is None:
            return False
        try:
            target.load(rows)
        except (ValueError, ArithmeticError, LookupError) as error:
            self._refuse(f"its rows make no sense ({error})")
            return False
        return True

    def _refuse(self, reason: str) -> None:
        _log.warning(
            "%s: not used: %s; the file is kept as it is, and the server goes on without it", self.path, reason
        )

    def read(self) -> Ints:
        """The rows, (n, width). Raises StoreError or OSError."""
        with self.path.open("rb") as file:
            header = self._header(file.readline(_MOST_HEADER_BYTES))
            body = file.read()
        expected = 4 * self.width * header["rows"]
        if len(body) != expected:
            raise StoreError(
                f"it has {len(body)} bytes of rows instead of {expected}: it was cut, or something was added"
            )
        if zlib.crc32(body) != header["crc32"]:
            raise StoreError("its checksum is wrong: the content was damaged")
        return np.frombuffer(body, dtype="<i4").astype(np.int32).reshape(-1, self.width)

    def _header(self, line: bytes) -> dict[str, int]:
        try:
            header = json.loads(line)
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict) or header.get("format") != _MAGIC:
            raise StoreError("it is not a store of uad")
        for key, wanted, reason in (
            ("version", _VERSION, "it has version {} of the format, this program reads version {}"),
            ("kind", self.kind, "it is a store of {}, not of {}"),
            ("width", self.width, "its rows have {} numbers, those of this program {}"),
            ("vocabulary", self.vocabulary, "it was written with another model's vocabulary"),
        ):
            if header.get(key) != wanted:
                raise StoreError(reason.format(header.get(key), wanted))
        rows, crc = header.get("rows"), header.get("crc32")
        if type(rows) is not int or type(crc) is not int or rows < 0:
            raise StoreError("its first line is damaged")
        return {"rows": rows, "crc32": crc}

    def save(self, rows: Ints) -> None:
        """Put the rows in place of the file; on failure the old one stays, and the log says so."""
        body = np.ascontiguousarray(rows, dtype="<i4").tobytes()
        header = {
            "format": _MAGIC,
            "version": _VERSION,
            "kind": self.kind,
            "width": self.width,
            "vocabulary": self.vocabulary,
            "rows": len(rows),
            "crc32": zlib.crc32(body),
        }
        try:
            write_atomically(self.path, json.dumps(header).encode() + b"\n" + body)
        except OSError as error:
            _log.warning("%s: could not be written: %s", self.path, error.strerror or error)
