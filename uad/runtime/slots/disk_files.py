"""The files of the prompt cache on a disk: which there are, what they say of themselves, and which go first. Files that
others wrote, or that are damaged, are named once in the log and left alone. From any thread.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from uad.base.errors import ConfigError, UadError
from uad.engine.decode.guard import reason
from uad.runtime.slots.file import Facts, Outline, UnusableFileError, read_outline

_log = logging.getLogger("uad")
_OWN = re.compile(r"[0-9a-f]{32}\.uadtext")
_PART = re.compile(r"\.[0-9a-f]{32}\.uadtext\..+")
_LEFT_BEHIND_S = 600.0  # a file that was being written and did not change for so long is of a process that is gone
_SHOWN = 3  # names in a line of the log


@dataclass(frozen=True, slots=True)
class _OwnFile:
    """A file of the cache. changed: when, in ns; it is set to now where a text is used. outline: None where it cannot
    be used here.
    """

    n_bytes: int
    changed: int
    outline: Outline | None


def name_of(facts: Facts, ids: npt.NDArray[np.int32]) -> str:
    """The name of the file of a text: the same for the same text of the same model."""
    digest = hashlib.sha256(json.dumps(sorted(facts.items())).encode())
    digest.update(np.asarray(ids, "<i4").tobytes())
    return f"{digest.hexdigest()[:32]}.uadtext"


def make_folder(path: Path) -> None:
    """Raises ConfigError where the folder is not there and cannot be made."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--cache-disk: the directory {path} cannot be made ({error.strerror})") from None


class DiskFiles:
    """The files in a folder, which other servers may share. facts: what a text must be of to be used here. most: bytes
    of all files together; None: no limit.
    """

    def __init__(self, folder: Path, most: int | None, facts: Facts) -> None:
        self.folder, self.most = folder, most
        self.is_readable = True
        """Whether the folder could be read when it was looked at; the log says so where it could not."""
        self._facts = facts
        self._files: Mapping[str, _OwnFile] = {}
        self._n_parts = 0  # bytes of files that are being written
        self._seen = -1  # when the folder had changed that was read last
        self._bad: dict[str, tuple[int, int]] = {}  # size and time of files that cannot be used
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    # --- what there is

    @property
    def texts(self) -> Mapping[str, Outline]:
        """Texts that can be used here, by the names of their files."""
        return {name: file.outline for name, file in self._files.items() if file.outline is not None}

    @property
    def n_bytes(self) -> int:
        """Bytes of all files of the cache, also those of other models."""
        return sum(file.n_bytes for file in self._files.values()) + self._n_parts

    @property
    def has_changed(self) -> bool:
        """Whether files came or went since they were looked at."""
        try:
            return self.folder.stat().st_mtime_ns != self._seen
        except OSError:
            return False

    def look(self) -> None:
        """Read the folder, and the headers of files that are new. A folder that cannot be read is as if empty."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        files: dict[str, _OwnFile] = {}
        refused: dict[str, list[str]] = {}
        n_parts = 0
        self.is_readable = True
        try:
            self._seen = self.folder.stat().st_mtime_ns
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if _PART.fullmatch(entry.name):
                        n_parts += _part(entry)
                    elif _OWN.fullmatch(entry.name) and (own := self._own(entry, refused)) is not None:
                        files[entry.name] = own
        except Exception as error:
            self.is_readable = False
            self.warn(f"cannot be read ({getattr(error, 'strerror', None) or reason(error)})")
        self._files, self._n_parts = files, n_parts
        self._bad = {name: stamp for name, stamp in self._bad.items() if name in files}
        for why, names in refused.items():
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            level = logging.INFO if why.startswith("it is of another ") else logging.WARNING
            shown = ", ".join(sorted(names)[:_SHOWN])
            _log.log(level, "--cache-disk: %s%s cannot be used: %s", shown, more, why)

    def _own(self, entry: os.DirEntry[str], refused: dict[str, list[str]]) -> _OwnFile | None:
        """A file with a name of this cache; None where it is gone, or no file. refused: names by what is wrong."""
        try:
            about = entry.stat(follow_symlinks=False)
            if not entry.is_file(follow_symlinks=False):
                return None
        except OSError:
            return None
        stamp = about.st_size, about.st_mtime_ns
        known = self._files.get(entry.name)
        if known is not None and known.outline is not None and known.n_bytes == about.st_size:
            return _OwnFile(*stamp, known.outline)
        if self._bad.get(entry.name) == stamp:
            return _OwnFile(*stamp, None)
        try:
            outline = read_outline(Path(entry.path), self._facts)
            if len(outline.ids) and outline.slot.target.state.end == len(outline.ids):
                return _OwnFile(*stamp, outline)
            why = "its ids are not those of its state"
        except Exception as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            why = error.why if isinstance(error, UnusableFileError) else reason(error)
        self._bad[entry.name] = stamp
        refused.setdefault(why, []).append(entry.name)
        return _OwnFile(*stamp, None)

    # --- what comes and goes

    def make_room(self, n_bytes: int) -> None:
        """Remove files until n_bytes more may be written; the least recently used goes first."""
        with self._lock:
            self._look()
            left = self.n_bytes + n_bytes
            for name in sorted(self._files, key=lambda name: self._files[name].changed):
                if self.most is None or left <= self.most:
                    return
                left -= self._files[name].n_bytes
                self._remove(name)

    def remove(self, name: str) -> None:
        """A text is not needed any more."""
        with self._lock:
            self._remove(name)

    def _remove(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            self.warn(f"files cannot be removed ({error.strerror})")
        self._files = {other: file for other, file in self._files.items() if other != name}

    def refuse(self, name: str, error: UadError) -> None:
        """A file turned out to be unusable, or gone, when it was read."""
        is_gone = isinstance(error.__cause__, FileNotFoundError)
        with self._lock:
            kept = self._files.get(name)
            if kept is None:
                return
            try:
                about = (self.folder / name).stat()
                stamp = about.st_size, about.st_mtime_ns
            except OSError:
                is_gone = True
            left = {other: file for other, file in self._files.items() if other != name}
            self._files = left if is_gone else {**left, name: _OwnFile(kept.n_bytes, kept.changed, None)}
            if is_gone:
                return
            self._bad[name] = stamp
        why = error.why if isinstance(error, UnusableFileError) else reason(error)
        _log.warning("--cache-disk: %s cannot be used: %s", name, why)

    def touch(self, name: str) -> None:
        """A text was used."""
        now = time.time_ns()
        try:
            os.utime(self.folder / name, ns=(now, now))
        except OSError:  # another server removed it, or it is another user's
            return
        with self._lock:
            file = self._files.get(name)
            if file is not None:
                self._files = {**self._files, name: _OwnFile(file.n_bytes, now, file.outline)}

    def warn(self, what: str) -> None:
        """A line in the log, once for each of them."""
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("--cache-disk: %s %s; answers go on without it", self.folder, what)


def _part(entry: os.DirEntry[str]) -> int:
    """Bytes of a file that is being written; one that was left behind is removed."""
    try:
        about = entry.stat(follow_symlinks=False)
        if time.time() - about.st_mtime < _LEFT_BEHIND_S:
            return about.st_size
        os.unlink(entry.path)
    except OSError:
        pass
    return 0
