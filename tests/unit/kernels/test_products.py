"""Products of the kernels, by themselves: bits for any number of columns, threads, views, experts, kinds of processors.

`kernels/tests/products.cpp` has the cases, and prints a hash of all results for each type.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kit.compiled import native, object_of, of_both, output

SOURCES = ("src/kind.cpp", "tests/products.cpp")
N_TYPES = 16


@pytest.mark.long
def test_a_column_has_the_bits_that_it_has_alone(tmp_path: Path) -> None:
    assert len(output(tmp_path, "g++", native(), SOURCES).splitlines()) == N_TYPES


@pytest.mark.emulated
@pytest.mark.parametrize("processor", ["AVX-512", "AMX", "NEON"])
def test_all_kinds_of_processors_give_the_same_bits(processor: str, tmp_path: Path) -> None:
    own, other = of_both(processor, tmp_path, SOURCES)
    assert own == other


@pytest.mark.emulated
def test_instructions_of_bf16_change_no_other_type(tmp_path: Path) -> None:
    """They round a column's values, so results are others: but a column's are still its own."""
    own, other = of_both("AVX-512 BF16", tmp_path, SOURCES)
    differ = [a.split()[0] for a, b in zip(own.splitlines(), other.splitlines(), strict=True) if a != b]
    assert differ == ["30"], "ggml's number of BF16"


@pytest.mark.long
def test_no_function_of_a_kind_can_replace_that_of_another(tmp_path: Path) -> None:
    """The linker keeps one of several equal inline functions: that of AVX-512 would end processes elsewhere."""
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    made = object_of(tmp_path, "g++", native(), "src/kind.cpp")
    names = subprocess.run(["nm", str(made)], check=True, capture_output=True, text=True).stdout
    assert [line for line in names.splitlines() if line.split()[-2] in "WVu"] == []
