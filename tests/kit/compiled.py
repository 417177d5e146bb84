"""Programs of `kernels/tests/`, compiled for this machine, or for another processor in an emulator."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"
AVX2 = ("-mavx2", "-mfma", "-mf16c")
NEON = ("-march=armv8.2-a+dotprod+fp16", "-DUAD_NEON", "-DUAD_KIND=neon")
_EMULATED = {"AVX-512": (), "AVX-512 BF16": ("-DUAD_BF16",), "AMX": ("-DUAD_AMX", "-mamx-tile", "-mamx-int8")}
"""Flags of processors with AVX-512, beside those of all of them."""
ARM_COMPILER, ARM_EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


def output(folder: Path, compiler: str, flags: tuple[str, ...], sources: tuple[str, ...], *runner: str) -> str:
    """Compiles these sources (paths in `kernels/`) with these flags, and returns what the program prints if it ends
    well. Skips the test where a tool is missing.
    """
    for tool in (compiler, *runner):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    program = folder / "program"
    command = [compiler, "-std=c++17", "-O1", "-ffp-contract=off", "-Wno-psabi", *flags, f"-I{KERNELS / 'src'}"]
    command += [*(str(KERNELS / one) for one in sources), "-pthread", "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([*runner, str(program)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


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
    return ("-O2", *AVX2, "-DUAD_AVX512", "-DUAD_EMULATED", "-DUAD_KIND=avx512")


def of_both(processor: str, folder: Path, sources: tuple[str, ...]) -> tuple[str, str]:
    """What a program prints on this machine, and on another processor in an emulator: one of `_EMULATED`, or NEON."""
    own, other = folder / "own", folder / "other"
    own.mkdir()
    other.mkdir()
    here = output(own, "g++", native(), sources)
    if processor == "NEON":
        return here, output(other, ARM_COMPILER, ("-static", "-O2", *NEON), sources, ARM_EMULATOR)
    return here, output(other, "g++", (*emulated(), *_EMULATED[processor]), sources)
