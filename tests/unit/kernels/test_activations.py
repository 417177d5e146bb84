"""Products of two activations of the kernels, by themselves: values beside a reference in double, and a column's bits
beside those that it has alone.

`kernels/tests/activations_check.cpp` has the cases, and prints a hash of all results. The order of a sum does not
depend on vectors, so all kinds of processors print the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.compiled import native, of_both, output

SOURCES = ("tests/activations_check.cpp",)


@pytest.mark.long
def test_values_are_the_references_and_a_columns_bits_are_its_own(tmp_path: Path) -> None:
    assert "lanes" in output(tmp_path, "g++", native(), SOURCES)


@pytest.mark.emulated
@pytest.mark.parametrize("processor", ["AVX-512", "NEON"])
def test_all_kinds_of_processors_give_the_same_bits(processor: str, tmp_path: Path) -> None:
    own, other = of_both(processor, tmp_path, SOURCES)
    assert own.split(",")[0] == other.split(",")[0]
