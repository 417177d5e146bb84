"""Tables of the types with grids, which the library reads from ggml's functions.

`kernels/tests/grids_check.cpp` has the cases.
"""

from __future__ import annotations

from pathlib import Path

from kit.compiled import native, output


def test_grids_are_read_and_those_of_other_values_are_left_out(tmp_path: Path) -> None:
    assert output(tmp_path, "g++", native(), ("src/grids.cpp", "tests/grids_check.cpp")) == "0 wrong\n"
