"""Attention of the kernels, by itself: values beside a reference in double, and bits beside themselves.

`kernels/tests/attend_check.cpp` has the cases. It is compiled for this machine's vectors (seconds); those of other
processors are emulated, which takes minutes: they are marked `slow`.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[3] / "kernels"
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
NEON = ["-march=armv8.2-a+dotprod+fp16", "-DUAD_NEON"]


def checks(folder: Path, compiler: str, flags: list[str], *runner: str) -> str:
    """Compiles the checks with these flags, and returns what they print if all hold."""
    for tool in (compiler, *runner):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    program = folder / "check"
    source = KERNELS / "tests" / "attend_check.cpp"
    command = [compiler, "-std=c++17", "-O1", "-ffp-contract=off", *flags, f"-I{KERNELS / 'src'}", str(source)]
    built = subprocess.run([*command, "-pthread", "-o", str(program)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([*runner, str(program)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def native() -> list[str]:
    """The flags of this machine's own vectors."""
    if platform.machine() in ("aarch64", "arm64"):
        return NEON
    info = Path("/proc/cpuinfo")
    if not info.exists() or not {"avx2", "fma", "f16c"} <= set(info.read_text(encoding="utf-8").split()):
        pytest.skip("no AVX2 here")
    return [*AVX2, "-DUAD_AVX2"]


@pytest.mark.long
def test_values_are_the_references_and_a_rows_bits_are_its_own(tmp_path: Path) -> None:
    assert " 0 failed" in checks(tmp_path, "g++", native())


@pytest.mark.slow
def test_the_same_holds_for_avx512_where_every_instruction_is_emulated(tmp_path: Path) -> None:
    if not Path("/usr/include/simde").is_dir():
        pytest.skip("no simde (libsimde-dev)")
    native()
    out = checks(tmp_path, "g++", ["-O2", *AVX2, "-DUAD_AVX512", "-DUAD_EMULATED"])
    assert "16 lanes" in out


@pytest.mark.slow
def test_the_same_holds_for_neon_under_an_emulator(tmp_path: Path) -> None:
    out = checks(tmp_path, "aarch64-linux-gnu-g++", ["-static", "-O2", *NEON], "qemu-aarch64")
    assert "4 lanes" in out
