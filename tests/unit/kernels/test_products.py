"""Products of the kernels, by themselves: bits for any number of columns, threads, views, experts, kinds of processors.

`kernels/tests/products.cpp` has the cases, and prints a hash of all results for each type.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kit.compiled import ARM_COMPILER, ARM_EMULATOR, KERNELS, NEON, emulated, native, output

SOURCES = ("src/kind.cpp", "tests/products.cpp")
N_TYPES = 16


@pytest.mark.long
def test_a_column_has_the_bits_that_it_has_alone(tmp_path: Path) -> None:
    assert len(output(tmp_path, "g++", native(), SOURCES).splitlines()) == N_TYPES


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["AVX-512", "NEON"])
def test_all_kinds_of_processors_give_the_same_bits(processor: str, tmp_path: Path) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    own = output(tmp_path / "own", "g++", native(), SOURCES)
    if processor == "AVX-512":
        other = output(tmp_path / "other", "g++", emulated(), SOURCES)
    else:
        other = output(tmp_path / "other", ARM_COMPILER, ("-static", "-O2", *NEON), SOURCES, ARM_EMULATOR)
    assert own == other


@pytest.mark.long
def test_no_function_of_a_kind_can_replace_that_of_another(tmp_path: Path) -> None:
    """The linker keeps one of several equal inline functions: that of AVX-512 would end processes elsewhere."""
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    made = tmp_path / "kind.o"
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-Wno-psabi",
        *native(),
        "-c",
        str(KERNELS / "src" / "kind.cpp"),
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True, capture_output=True)
    names = subprocess.run(["nm", str(made)], check=True, capture_output=True, text=True).stdout
    assert [line for line in names.splitlines() if line.split()[-2] in "WVu"] == []
