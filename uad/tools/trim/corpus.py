"""The texts that say which tokens a draft needs: the user's own files, or what is on every machine. Must not know any
vocabulary.
"""

from __future__ import annotations

import os
import sysconfig
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from uad.base.common.files import is_file, is_folder, is_there, why_hidden
from uad.base.errors import ConfigError

TEXTS = Path(__file__).parent / "texts"
PROJECT = Path(__file__).parents[2]
_SUFFIXES = (".py", ".toml", ".txt")
_WEIGHT = 20
_NO_PROSE = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "lib2to3"})
_BLOCK_BYTES, _HEAD_BYTES = 1 << 16, 1 << 13


@dataclass(frozen=True, slots=True)
class CorpusSource:
    """A file of text; each of its tokens counts `weight` times."""

    path: Path
    weight: int = 1


def bundled() -> list[CorpusSource]:
    """English and code from Python's library as it is installed here and from uad's own source; words and sentences of
    more languages.

    The latter are short and count for more.
    """
    own = [CorpusSource(path, _WEIGHT) for path in sorted(TEXTS.glob("*.txt"))]
    code = [*_walk(Path(sysconfig.get_path("stdlib")), _NO_PROSE), *_walk(PROJECT, _NO_PROSE)]
    return own + [CorpusSource(path) for path in code if path.suffix in _SUFFIXES and path.parent != TEXTS]


def named(paths: Sequence[Path]) -> list[CorpusSource]:
    """The user's files, and those in the user's folders that are text. Raises ConfigError for what is not there or is
    no text.
    """
    files: list[Path] = []
    for path in paths:
        if is_folder(path):
            files += (inner for inner in _walk(path) if not _is_binary(inner))
        elif not is_there(path):
            why = why_hidden(path) or "no such file"
            raise ConfigError(f"--corpus {path}: {why}; name text files, or folders of them")
        elif is_file(path) and _is_binary(path):
            raise ConfigError(f"--corpus {path}: not a text file (it holds zero bytes); name UTF-8 text")
        else:
            files.append(path)
    if not files:
        raise ConfigError(f"--corpus {' '.join(map(str, paths))}: no text files there")
    return [CorpusSource(path) for path in dict.fromkeys(files)]


def count(
    sources: Sequence[CorpusSource], encode: Callable[[bytes], Iterable[int]], progress: Callable[[float], None]
) -> Counter[int]:
    """How often each token occurs. `progress` gets the share that is read. Raises ConfigError where there is no
    text.
    """
    counts: Counter[int] = Counter()
    total, done = sum(source.path.stat().st_size for source in sources), 0
    for source in sources:
        for piece in pieces(source.path):
            for id_, n in Counter(encode(piece)).items():
                counts[id_] += n * source.weight
            done += len(piece)
            progress(min(done / max(total, 1), 0.999))
    progress(1.0)
    if not counts:
        raise ConfigError("the corpus holds no text; name files with --corpus")
    return counts


def pieces(path: Path) -> Iterator[bytes]:
    """A file in pieces of whole lines, as far as lines end; what is no UTF-8 is replaced. Raises ConfigError where it
    cannot be read.
    """
    rest = ""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            while block := file.read(_BLOCK_BYTES):
                block = rest + block
                end = block.rfind("\n") + 1 or len(block)
                rest = block[end:]
                yield block[:end].encode()
    except OSError as error:
        raise _unreadable(path, error) from error
    if rest:
        yield rest.encode()


def _walk(folder: Path, without: Collection[str] = ()) -> Iterator[Path]:
    """The files below a folder in order, without hidden ones and what Python compiled."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith((".", "__pycache__")) and name not in without
        )
        for name in sorted(names):
            path = Path(where, name)
            if not name.startswith(".") and is_file(path):
                yield path


def _is_binary(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"\0" in file.read(_HEAD_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--corpus {path}: cannot be read ({error.strerror})")
