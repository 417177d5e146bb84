"""Programs of `kernels/tests/`, compiled for this machine, or for another processor in an emulator."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"
COMPILED = KERNELS.parent / ".cache" / "compiled"
AVX2 = ("-mavx2", "-mfma", "-mf16c")
NEON = ("-march=armv8.2-a+dotprod+fp16", "-DUAD_NEON", "-DUAD_KIND=neon")
I8MM = ("-march=armv8.2-a+dotprod+fp16+i8mm", "-DUAD_NEON", "-DUAD_I8MM", "-DUAD_KIND=i8mm")
AMX = ("-DUAD_BF16", "-DUAD_AMX", "-DUAD_EMULATED_TILES", "-mamx-tile", "-mamx-int8", "-mamx-bf16")
_EMULATED = {"AVX-512": (), "AVX-512 BF16": ("-DUAD_BF16",), "AMX": AMX}
"""Flags of processors with AVX-512, beside those of all of them."""
_ARM = {"NEON": NEON, "i8mm": I8MM}
ARM_COMPILER, ARM_EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
CLANG = "clang++"


def output(
    folder: Path,
    compiler: str,
    flags: tuple[str, ...],
    sources: tuple[str, ...],
    *runner: str,
    words: tuple[str, ...] = (),
) -> str:
    """What the program of these sources (paths in `kernels/`) prints if it ends well. Skips the test where a tool is
    missing.
    """
    objects = [str(object_of(folder, compiler, flags, source)) for source in sources]
    require(*runner)
    program = compiled([compiler, *flags, *objects, "-pthread"], folder)
    ran = subprocess.run([*runner, str(program), *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def object_of(folder: Path, compiler: str, flags: tuple[str, ...], source: str) -> Path:
    """The compiled source, which several programs share."""
    require(compiler)
    command = [compiler, "-std=c++17", "-O1", "-ffp-contract=off", "-Wno-psabi", *flags, f"-I{KERNELS / 'src'}"]
    return compiled([*command, "-c", str(KERNELS / source)], folder)


def kinds_as_installed(compiler: str, folder: Path) -> dict[str, Path]:
    """The object of each kind of processor, compiled with the flags of CMakeLists.txt, by the kind's name."""
    return {kind: compiled(command, folder) for kind, command in commands_of_kinds(compiler, folder).items()}


def commands_of_kinds(compiler: str, folder: Path) -> dict[str, list[str]]:
    """How CMakeLists.txt compiles each kind of processor, by its name."""
    require("cmake", "nm", compiler)
    machine = "aarch64" if compiler == ARM_COMPILER else "x86_64"
    if machine == "x86_64" != platform.machine():
        pytest.skip("no compiler for x86-64")
    options = {
        "SYSTEM_NAME": "Linux",
        "SYSTEM_PROCESSOR": machine,
        "CXX_COMPILER": compiler,
        "EXPORT_COMPILE_COMMANDS": "ON",
    }
    words = [f"-DCMAKE_{name}={value}" for name, value in options.items()]
    subprocess.run(["cmake", "-S", str(KERNELS), "-B", str(folder / "build"), *words], check=True, capture_output=True)
    made = {}
    for entry in json.loads((folder / "build/compile_commands.json").read_text(encoding="utf-8")):
        command = shlex.split(entry["command"])
        for kind in [word.removeprefix("-DUAD_KIND=") for word in command if word.startswith("-DUAD_KIND=")]:
            at = command.index("-o")
            made[kind] = [*command[:at], *command[at + 2 :]]
    return made


def require(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")


def compiled(command: list[str], folder: Path) -> Path:
    """What this command makes of the kernels as they are. It is kept from one run to the next, since compiling takes
    longer than all that the programs do. A worker that wants what another one compiles waits for it.
    """
    kept = COMPILED / digest(command)
    COMPILED.mkdir(parents=True, exist_ok=True)
    with (COMPILED / f"{kept.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            made = folder / "made"
            built = subprocess.run([*command, "-o", str(made)], capture_output=True, text=True)
            assert built.returncode == 0, built.stderr
            moved = COMPILED / f"{kept.name}.{os.getpid()}"
            shutil.move(made, moved)
            moved.replace(kept)
    return kept


def digest(command: list[str]) -> str:
    """Names a command, its compiler and all sources of the kernels."""
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    key = hashlib.sha256("\0".join(command).encode() + version)
    for path in sorted(one for part in ("src", "tests") for one in (KERNELS / part).rglob("*") if one.is_file()):
        key.update(b"\0%b\0" % str(path.relative_to(KERNELS)).encode() + path.read_bytes())
    return key.hexdigest()[:32]


def native() -> tuple[str, ...]:
    """The flags of this machine's own vectors. Skips the test where there are none that the kernels know."""
    if platform.machine() in ("aarch64", "arm64"):
        return NEON
    info = Path("/proc/cpuinfo")
    if not info.exists() or not {"avx2", "fma", "f16c"} <= set(info.read_text(encoding="utf-8").split()):
        pytest.skip("no AVX2 here")
    return (*AVX2, "-DUAD_AVX2", "-DUAD_KIND=avx2")


def emulated() -> tuple[str, ...]:
    """The flags of AVX-512, every instruction of which is emulated. Skips the test where the emulator is missing."""
    native()
    if not Path("/usr/include/simde").is_dir():
        pytest.skip("no simde (libsimde-dev)")
    return (*AVX2, "-DUAD_AVX512", "-DUAD_EMULATED", "-DUAD_KIND=avx512")


def sanitized(*names: str) -> tuple[str, ...]:
    """The flags of GCC's sanitizers of these names, which end a program at its first error. Skips the test where one is
    missing.
    """
    require("g++")
    libraries = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}
    for name in names:
        command = ["g++", f"-print-file-name={libraries[name]}"]
        if not Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()).is_absolute():
            pytest.skip(f"no {libraries[name]}")
    joined = ",".join(names)
    return f"-fsanitize={joined}", f"-fno-sanitize-recover={joined}", "-g1"


def of_both(processor: str, folder: Path, sources: tuple[str, ...], words: tuple[str, ...] = ()) -> tuple[str, str]:
    """What a program prints on this machine, and on another processor in an emulator: one of `_EMULATED`, or of `_ARM`.
    words: its arguments.
    """
    here = output(folder, "g++", native(), sources, words=words)
    if processor in _ARM:
        flags = ("-static", "-O2", *_ARM[processor])
        return here, output(folder, ARM_COMPILER, flags, sources, ARM_EMULATOR, words=words)
    return here, output(folder, "g++", (*emulated(), *_EMULATED[processor]), sources, words=words)
