"""The kernels' programs with GCC's sanitizers: no read or write out of bounds, nothing undefined, no data race.

Arrays of the programs end where a model's do. So a vector that is loaded beyond a weight, a column or a cell is seen,
which elsewhere ends a process only where a page ends there, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.compiled import native, output, sanitized

PRODUCTS = ("src/kind.cpp", "tests/products.cpp")
ATTENTION = ("tests/attend_check.cpp",)
ACTIVATIONS = ("tests/activations_check.cpp",)


@pytest.mark.emulated
@pytest.mark.parametrize("sources", [PRODUCTS, ATTENTION, ACTIVATIONS], ids=["products", "attention", "activations"])
@pytest.mark.parametrize("names", [("address", "undefined"), ("thread",)], ids=["memory", "threads"])
def test_a_sanitizer_finds_nothing(sources: tuple[str, ...], names: tuple[str, ...], tmp_path: Path) -> None:
    output(tmp_path, "g++", (*native(), *sanitized(*names)), sources)


@pytest.mark.emulated
@pytest.mark.parametrize(
    ("name", "wrong", "found"),
    [
        ("address", "std::vector<int> x(4); int * p = x.data(); return p[n + 3];", "heap-buffer-overflow"),
        ("undefined", "return (n << 30) * 4;", "cannot be represented"),
        ("thread", "int x = 0; std::thread t([&] { x++; }); x++; t.join(); return x - 2;", "data race"),
    ],
)
def test_a_sanitizer_would_end_the_program(name: str, wrong: str, found: str, tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text(f"#include <thread>\n#include <vector>\nint main(int n, char **) {{ {wrong} }}\n")
    with pytest.raises(AssertionError, match=found):
        output(tmp_path, "g++", sanitized(name), (str(source),))
