"""Build llama-server of ik_llama.cpp, a fork with fast kernels for CPUs, to measure beside: `make table ARGS="--ik
PATH"`.

    python lab/ik_server.py             fetch it with git, build it where it is not there yet, and print its path
    python lab/ik_server.py SOURCES     build these sources instead of fetching any

The commit is a known one, so that figures can be repeated. Flags of the build are CMake's defaults for this processor.
The program stays in uad's cache folder; sources and objects are deleted. Its attention alone takes two cores half an
hour to compile.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import overhead
from platformdirs import user_cache_path

ADDRESS = "https://github.com/ikawrakow/ik_llama.cpp"
COMMIT = "8337e4cd3861406fc04e0854b1409cd1b027fbc9"
OPTIONS = ("CMAKE_BUILD_TYPE=Release", "LLAMA_BUILD_TESTS=OFF", "LLAMA_CURL=OFF", "BUILD_SHARED_LIBS=OFF")


def command(server: Path, target: Path, n_slots: int, n_ctx: int) -> tuple[list[str], str]:
    """The command that starts it, and the address at which it listens. n_ctx: tokens of all slots together."""
    port = overhead.free_port()
    words = ["-m", str(target), "-c", str(n_ctx), "-np", str(n_slots), "--host", "127.0.0.1", "--port", str(port)]
    return [str(server), *words, "--webui", "none", "--jinja", "--log-disable"], f"http://127.0.0.1:{port}"


def program() -> Path:
    """Where the program of the known commit lies, or would lie."""
    return user_cache_path("uad") / "ik-llama-server" / COMMIT[:9] / "llama-server"


def ensure(sources: Path | None) -> Path:
    """The program, built where it is missing. Raises CalledProcessError where git, CMake or the compiler fails."""
    if program().is_file():
        return program()
    work = program().parent / "work"
    work.mkdir(parents=True, exist_ok=True)
    if sources is None:
        sources = work / "sources"
        if not sources.is_dir():
            shutil.rmtree(work / "part", ignore_errors=True)  # of a run that was interrupted
            _run("git", "clone", "--filter=blob:none", "--no-checkout", ADDRESS, str(work / "part"))
            _run("git", "-C", str(work / "part"), "checkout", COMMIT)
            (work / "part").rename(sources)
    build = work / "build"
    _run("cmake", "-S", str(sources), "-B", str(build), *(f"-D{one}" for one in OPTIONS))
    _run("cmake", "--build", str(build), "--target", "llama-server", "--parallel")
    (build / "bin" / "llama-server").rename(program())
    shutil.rmtree(work)
    return program()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=sys.stderr)


def main(argv: Sequence[str]) -> int:
    """0 and the path on stdout; 1 where it could not be built."""
    try:
        print(ensure(Path(argv[0]) if argv else None))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
