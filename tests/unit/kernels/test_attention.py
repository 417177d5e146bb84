"""Attention of the kernels, by itself: values beside a reference in double, and bits beside themselves.

`kernels/tests/attend_check.cpp` has the cases. It is compiled for this machine's vectors (seconds); those of other
processors are emulated, which takes longer: these tests are marked `emulated`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.compiled import AMX, ARM_COMPILER, ARM_EMULATOR, NEON, emulated, native, output

SOURCES = ("tests/attend_check.cpp",)


@pytest.mark.long
def test_values_are_the_references_and_a_rows_bits_are_its_own(tmp_path: Path) -> None:
    assert " 0 failed" in output(tmp_path, "g++", native(), SOURCES)


@pytest.mark.emulated
def test_the_same_holds_for_avx512_where_every_instruction_is_emulated(tmp_path: Path) -> None:
    assert "16 lanes" in output(tmp_path, "g++", emulated(), SOURCES)


@pytest.mark.emulated
@pytest.mark.parametrize("flags", [("-DUAD_BF16",), AMX], ids=["vectors", "tiles"])
def test_the_same_holds_where_values_are_multiplied_in_bf16(flags: tuple[str, ...], tmp_path: Path) -> None:
    assert "16 lanes" in output(tmp_path, "g++", (*emulated(), *flags), SOURCES)


@pytest.mark.emulated
def test_the_same_holds_for_neon_under_an_emulator(tmp_path: Path) -> None:
    assert "4 lanes" in output(tmp_path, ARM_COMPILER, ("-static", "-O2", *NEON), SOURCES, ARM_EMULATOR)
