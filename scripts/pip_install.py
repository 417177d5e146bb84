"""pip install -e with progress: pip is silent while it compiles llama.cpp, which takes minutes the first time.

The kernels come from kernels/ beside it, where the processor has any. Standard library only. Usage:
python scripts/pip_install.py '.[dev]' [kernels]. With the second word only the kernels are installed, which takes
seconds. The whole output goes to .cache/build.log.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

LOG = Path(".cache/build.log")
CPUINFO = Path("/proc/cpuinfo")
HEADER = Path(__file__).with_name("amx.h")
STEP = re.compile(r"\[\s*(\d+/\d+|\d+%)\]")
NAMES = re.compile(r"(Collecting|Building wheel for|Building editable for|Installing collected packages:) ?(\S*)")
PIP = [sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check"]
PLAIN_SECONDS = 20.0
KERNELS = "./kernels"
KERNEL_MACHINES = {("linux", "x86_64"), ("linux", "aarch64")}  # as pyproject.toml has them
TAIL_LINES = 25
BROKEN_AMX, NO_RPC = 7, 8  # exit codes
LOOK = (
    "import sys; from uad.llama.backend import amx, rpc; "
    f"sys.exit({BROKEN_AMX} if amx.is_broken() else 0 if rpc.is_built() else {NO_RPC})"
)
AGAIN = {
    BROKEN_AMX: "without scripts/amx.h and would crash on this processor",  # see uad/llama/backend/amx.py
    NO_RPC: "without its RPC backend",
}


def main() -> int:
    """Install the requirement into the environment of this interpreter; returns pip's exit code."""
    requirement, *only = sys.argv[1:]
    # pip's cached wheel does not know which CMAKE_ARGS it was built with
    uncached = ["--no-cache-dir"] if os.environ.get("CMAKE_ARGS") else []
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    started = time.monotonic()
    if only and is_kernel_there():
        print("uad: the kernels (kernels/) are compiled", flush=True)
        return ended(follow([*PIP, "install", "-v", *kernels(), "--force-reinstall", "--no-deps"], started), started)
    print(
        "uad: installing; the first time on a machine llama.cpp is compiled, which takes about 4 minutes on 2 cores",
        flush=True,
    )
    # in one call: what is named by its folder is not looked for on an index
    code = follow([*PIP, "install", *uncached, "-v", *kernels(), "-e", requirement], started)
    if not code and (why := why_again()):
        print(f"uad: this llama.cpp was compiled {why}: compiling it again", flush=True)
        subprocess.run([*PIP, "cache", "remove", "llama_cpp_python"], capture_output=True)
        again = f"llama-cpp-python=={version('llama-cpp-python')}"
        code = follow([*PIP, "install", *uncached, "-v", "--force-reinstall", "--no-deps", again], started)
    return ended(code, started)


def kernels() -> list[str]:
    """Packages for pip to install beside uad: the kernels of this checkout, where there are any for the processor."""
    return [KERNELS] if (sys.platform, platform.machine()) in KERNEL_MACHINES else []


def is_kernel_there() -> bool:
    """Whether the kernels alone are worth an installation: there are some for the processor, and uad has been
    installed.
    """
    return bool(kernels()) and find_spec("llama_cpp") is not None


def ended(code: int, started: float) -> int:
    """Say how an installation ended, and return pip's exit code."""
    if code:
        print(f"uad: error: the installation failed; the end of {LOG}:", file=sys.stderr)
        print("".join(LOG.read_text(encoding="utf-8").splitlines(keepends=True)[-TAIL_LINES:]), file=sys.stderr)
    else:
        print(f"uad: installed in {time.monotonic() - started:.0f} s (log: {LOG})", flush=True)
    return code


def why_again() -> str:
    """The fault of llama.cpp as it is installed, which may be a wheel from pip's cache; "" for none."""
    code = subprocess.run([sys.executable, "-P", "-c", LOOK]).returncode
    return AGAIN.get(code, "") if code != NO_RPC or "GGML_RPC" not in os.environ.get("CMAKE_ARGS", "") else ""


def cmake_args() -> str:
    """The user's arguments of llama.cpp's build. Beside them the RPC backend, which costs nothing where it is not used
    and which tests try, and the header that saves AMX from GCC where there is such a processor.
    """
    given = os.environ.get("CMAKE_ARGS", "")
    if "GGML_RPC" not in given:
        given = f"{given} -DGGML_RPC=on".strip()
    if "CMAKE_CXX_FLAGS" in given or not CPUINFO.exists() or "amx_int8" not in CPUINFO.read_text(errors="replace"):
        return given
    flags = f'-include "{HEADER.resolve()}"'
    return f"{given} {shlex.quote(f'-DCMAKE_CXX_FLAGS={flags}')}".strip()


def follow(command: list[str], started: float, state: str = "starting", log_file: Path = LOG) -> int:
    """Run pip, or a build, add all it says to the log and show where it is: in place on a terminal, a line now and then
    elsewhere. state: what it begins with.
    """
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "CMAKE_ARGS": cmake_args()}
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    live = sys.stdout.isatty()
    shown, last = "", started
    with log_file.open("a", encoding="utf-8", buffering=1) as log, _Pip(command, environment) as pip:
        while (line := pip.line(0.5)) is not None:
            log.write(line)
            state = step(line, state)
            now = time.monotonic()
            if live:
                print(f"\r\x1b[K  {now - started:4.0f} s  {state}", end="", flush=True)
            elif now - last >= PLAIN_SECONDS and state != shown:
                print(f"  {now - started:4.0f} s  {state}", flush=True)
                shown, last = state, now
        if live:
            print("\r\x1b[K", end="", flush=True)
        return pip.code()


def step(line: str, state: str) -> str:
    """The step that pip is at after this line of its output."""
    if match := NAMES.search(line):
        verb = {"Collecting": "fetching", "Installing collected packages:": "installing"}.get(match[1], "building")
        return f"{verb} {match[2]}".removesuffix(",")
    if match := STEP.search(line):
        return f"{state.partition(' (')[0]} (step {match[1]})"
    return state


class _Pip:
    """pip as a child whose lines can be waited for with a time limit."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> _Pip:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def line(self, seconds: float) -> str | None:
        """The next line, "" if none comes in time, None after the last."""
        try:
            return self._lines.get(timeout=seconds)
        except Empty:
            return ""

    def code(self) -> int:
        return self._process.wait()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
