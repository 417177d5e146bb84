"""Products of the kernels, by themselves: bits for any number of columns, threads, views, experts, kinds of processors.

`kernels/tests/products.cpp` has the cases, and prints a hash of all results for each type.
"""

from __future__ import annotations

import shutil
import subprocess
from math import sqrt
from pathlib import Path

import pytest
from kit.compiled import (
    AMX,
    ARM_COMPILER,
    ARM_EMULATOR,
    CLANG,
    I8MM,
    KERNELS,
    NEON,
    commands_of_kinds,
    compiled,
    emulated,
    kinds_as_installed,
    native,
    object_of,
    of_both,
    output,
    require,
)

SOURCES = ("src/kind.cpp", "tests/products.cpp")
N_TYPES = 28


@pytest.mark.long
def test_a_column_has_the_bits_that_it_has_alone(tmp_path: Path) -> None:
    assert len(output(tmp_path, "g++", native(), SOURCES).splitlines()) == N_TYPES


@pytest.mark.emulated
@pytest.mark.parametrize("processor", ["AVX-512", "NEON", "i8mm"])
def test_all_kinds_of_processors_give_the_same_bits(processor: str, tmp_path: Path) -> None:
    own, other = of_both(processor, tmp_path, SOURCES)
    assert own == other


@pytest.mark.emulated
@pytest.mark.parametrize("arm", [(), NEON, I8MM], ids=["native", "NEON", "i8mm"])
def test_clang_gives_the_same_bits(arm: tuple[str, ...], tmp_path: Path) -> None:
    flags, runner = native(), ()
    if arm:
        require(ARM_COMPILER)  # Clang takes its headers and libraries
        flags, runner = ("--target=aarch64-linux-gnu", "-static", "-O2", *arm), (ARM_EMULATOR,)
    object_of(tmp_path, CLANG, flags, "src/library.cpp")
    assert output(tmp_path, CLANG, flags, SOURCES, *runner) == output(tmp_path, "g++", native(), SOURCES)


@pytest.mark.emulated
def test_a_kind_that_the_compiler_does_not_know_is_left_out(tmp_path: Path) -> None:
    native()
    old = tmp_path / "g++-old"
    old.write_text('#!/bin/sh\ncase " $* " in *" -mavxvnni "*) exit 1;; esac\nexec g++ "$@"\n')
    old.chmod(0o755)
    commands = commands_of_kinds(str(old), tmp_path)
    assert [kind for kind, command in commands.items() if "-DUAD_LEFT_OUT" in command] == ["avxvnni"]
    # without instructions of their own all are compiled at once
    objects = [compiled([*command, "-DUAD_LEFT_OUT"], tmp_path) for command in commands.values()]
    sources = [str(KERNELS / name) for name in ("src/library.cpp", "src/grids.cpp", "tests/kinds.cpp")]
    program = compiled(["g++", "-std=c++17", "-pthread", *sources, *map(str, objects)], tmp_path)
    assert subprocess.run([program], check=True, capture_output=True, text=True).stdout == "\n"


@pytest.mark.emulated
def test_instructions_of_bf16_change_no_other_type(tmp_path: Path) -> None:
    """They round a column's values, so results are others: but a column's are still its own."""
    own, other = of_both("AVX-512 BF16", tmp_path, SOURCES)
    differ = [a.split()[0] for a, b in zip(own.splitlines(), other.splitlines(), strict=True) if a != b]
    assert differ == ["30"], "ggml's number of BF16"


@pytest.mark.emulated
def test_matrix_units_round_weights_but_a_column_has_its_own_bits(tmp_path: Path) -> None:
    """Weights and columns are BF16 there, so results are others, if near: on vectors columns are rounded to 8 bits."""
    own, other = (
        {line.split()[0]: [float(word) for word in line.split()[1:]] for line in text.splitlines()}
        for text in of_both("AMX", tmp_path, SOURCES, ("40", "values"))
    )
    assert len(other) == N_TYPES
    for number, values in own.items():
        root = sqrt(sum(value**2 for value in values))
        error = sqrt(sum((a - b) ** 2 for a, b in zip(values, other[number], strict=True)))
        assert error < 0.03 * root, number
    assert own["0"] == other["0"]


@pytest.mark.emulated
def test_emulated_tiles_add_up_as_intel_says(tmp_path: Path) -> None:
    output(tmp_path, "g++", (*emulated(), *AMX), ("tests/tiles_check.cpp",))


def weak_symbols(made: Path) -> list[str]:
    names = subprocess.run(["nm", str(made)], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line for line in names if line.split()[-2] in "WVu"]


@pytest.mark.emulated
@pytest.mark.parametrize(("compiler", "n_kinds"), [("g++", 5), (ARM_COMPILER, 2)])
def test_no_function_of_a_kind_can_replace_that_of_another(compiler: str, n_kinds: int, tmp_path: Path) -> None:
    """The linker keeps one of several equal inline functions: that of AVX-512 would end processes elsewhere. So all
    kinds are compiled as they are installed.
    """
    objects = kinds_as_installed(compiler, tmp_path)
    assert len(objects) == n_kinds
    assert {kind: weak_symbols(made) for kind, made in objects.items()} == {kind: [] for kind in objects}


@pytest.mark.emulated
def test_arm_runs_what_the_processor_has(tmp_path: Path) -> None:
    made = kinds_as_installed(ARM_COMPILER, tmp_path).values()
    sources = [str(KERNELS / name) for name in ("src/library.cpp", "src/grids.cpp", "tests/kinds.cpp")]
    program = compiled([ARM_COMPILER, "-std=c++17", "-static", "-pthread", *sources, *map(str, made)], tmp_path)
    require(ARM_EMULATOR)
    kinds = {}
    for processor in ("max", "neoverse-n1", "cortex-a72"):
        ran = subprocess.run(
            [ARM_EMULATOR, "-cpu", processor, str(program)], check=True, capture_output=True, text=True
        )
        kinds[processor] = ran.stdout.strip()
    assert kinds == {"max": "i8mm neon", "neoverse-n1": "neon", "cortex-a72": ""}


def test_a_function_that_the_linker_may_replace_is_seen(tmp_path: Path) -> None:
    if shutil.which("g++") is None or shutil.which("nm") is None:
        pytest.skip("no g++ or nm")
    (tmp_path / "weak.cpp").write_text("inline int shared(int x) { return x; }\nint (*of)(int) = shared;\n")
    subprocess.run(["g++", "-c", "weak.cpp", "-o", "weak.o"], cwd=tmp_path, check=True)
    assert [line.split()[-1] for line in weak_symbols(tmp_path / "weak.o")] == ["_Z6sharedi"]
