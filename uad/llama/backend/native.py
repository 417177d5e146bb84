"""Start-up of the native library: backend, log, number types, and a check that it has every name in `symbols`."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Self

import llama_cpp
import llama_cpp.llama_cpp as lib

from uad.base.common.files import is_file
from uad.base.errors import ConfigError
from uad.llama.backend import abort, symbols

_log = logging.getLogger("uad.llama")
_LEVEL_CONT = 5
_LEVEL_WARN = 3
_LOGGED_AS = {2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}


class Log:
    """llama.cpp's log: silent unless verbose; the last warnings and errors are kept, to say why a call failed."""

    def __init__(self) -> None:
        self.verbose = False
        self._recent: deque[str] = deque(maxlen=40)
        self._collected: list[str] | None = None
        self._last_level = 0
        self._unfinished = ""
        self._lock = threading.Lock()
        self.callback = lib.llama_log_callback(self._receive)

    def _receive(self, level: int, text: bytes, _user: object) -> None:
        line = text.decode(errors="replace")
        with self._lock:
            # "loading" at level 2, then "." and ".\n" as continuations: one line, of the level that it began with
            if level != _LEVEL_CONT:
                self._last_level = level
            if self._last_level >= _LEVEL_WARN:
                self._recent.append(line.strip())
            if self._collected is not None:
                self._collected.append(line.strip())
            self._unfinished += line if self.verbose else ""
            *lines, self._unfinished = self._unfinished.split("\n")
        for part in lines:  # among those of the program's own log; on stderr where the program has no log
            if _log.hasHandlers():
                _log.log(_LOGGED_AS.get(self._last_level, logging.DEBUG), "%s", part)
                continue
            with suppress(OSError):
                sys.stderr.write(f"{part}\n")

    @contextmanager
    def collecting(self) -> Iterator[list[str]]:
        """All lines of every level that are logged inside the block."""
        lines: list[str] = []
        self._collected = lines
        try:
            yield lines
        finally:
            self._collected = None

    def clear(self) -> None:
        with self._lock:
            self._recent.clear()

    def reason(self) -> str:
        """The first error since `clear`, shortened to what a person can use; empty if there was none."""
        with self._lock:
            lines = [line for line in self._recent if line]
        # the first error is the cause ("missing tensor 'blk.3.ffn_up.weight'"), those after it only say that it failed;
        # up to the first colon stands which function wrote it
        errors = [line for line in lines if "error" in line.lower() or "fail" in line.lower()] or lines
        return errors[0].split(": ", 1)[-1] if errors else ""


@cache
def start() -> Log:
    """Bind once per process: checks names, installs the log, initialises the backends. Raises ConfigError where the
    binding lacks one.
    """
    if missing := ", ".join(symbols.missing(lib)):
        remedy = f"uad needs {symbols.VERSIONS}: pip install 'llama-cpp-python{symbols.VERSIONS}'"
        raise ConfigError(f"llama-cpp-python {build_info()} lacks {missing}; {remedy}")
    log = Log()
    lib.llama_log_set(log.callback, ctypes.c_void_p(0))
    abort.install()
    lib.llama_backend_init()
    return log


def take_log_back() -> None:
    """Receive llama.cpp's log again, where that was begun: the binding's own API takes it when it is imported."""
    if start.cache_info().currsize:
        lib.llama_log_set(start().callback, ctypes.c_void_p(0))


class Owner:
    """An owner of memory of llama.cpp: use it with `with`, or call `close`, as often as you like."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def use_numa(strategy: str) -> None:
    """How threads and memory lie on a machine with several memory nodes; to be said before anything is loaded."""
    if strategy:
        lib.llama_numa_init(symbols.NUMA_STRATEGIES[strategy])


def trim() -> None:
    """Give memory that was freed back to the system, where the C library keeps it for later."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc
        libc.malloc_trim(0)


@cache
def build_digest() -> str:
    """Hash of names, sizes and dates of llama.cpp's libraries: the same version can be compiled in many ways."""
    files = sorted(path for name in ("ggml", "llama") for path in lib._base_path.glob(f"*{name}*") if is_file(path))
    stats = [(path.name, about.st_size, about.st_mtime_ns) for path in files for about in (path.stat(),)]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def build_info() -> str:
    """Version of the binding, which stands for the llama.cpp it holds."""
    if version := vars(llama_cpp).get("__version__"):  # the package has run
        return str(version)
    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:  # copied into the path, not installed
        return str(llama_cpp.__version__)
