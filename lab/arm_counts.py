"""Instructions of products on ARM, in uad's kernels and in llama.cpp's own, counted in an emulator: no ARM is needed.

    python lab/arm_counts.py LLAMA_CPP FOLDER [--kind neon] [--types q8_0 q4_K] [--columns 1 8 512]

LLAMA_CPP: its sources (vendor/llama.cpp in llama-cpp-python's). FOLDER: where both are compiled, and kept. Prints rows
of a table: instructions for 1,000 products, uad's and llama.cpp's, the rounding of columns included. A star: llama.cpp
does not rearrange weights of this type. Needs cmake, a compiler for ARM (g++-aarch64-linux-gnu) and qemu-user.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from uad.base.common.files import path_of
from uad.base.config.argv import Parser
from uad.tools.cli import run

LAB = Path(__file__).parent
COMPILER = "aarch64-linux-gnu-g++"
FEATURES = {"i8mm": "armv8.2-a+dotprod+fp16+i8mm", "neon": "armv8.2-a+dotprod+fp16"}
LINUX_ON_ARM = (
    "SYSTEM_NAME=Linux",
    "SYSTEM_PROCESSOR=aarch64",
    "C_COMPILER=aarch64-linux-gnu-gcc",
    f"CXX_COMPILER={COMPILER}",
)
OPTIONS = (
    "CMAKE_BUILD_TYPE=Release",
    "BUILD_SHARED_LIBS=OFF",
    "GGML_NATIVE=OFF",
    "GGML_OPENMP=OFF",
    "LLAMA_BUILD_COMMON=OFF",
)
TYPES = (
    "q8_0",
    "q4_0",
    "iq4_nl",
    "mxfp4",
    "q1_0",
    "q4_K",
    "q5_K",
    "q6_K",
    "iq4_xs",
    "q2_K",
    "q3_K",
    "iq3_s",
    "f16",
    "bf16",
)
K, ROWS = 1024, 512
PLAIN = 3  # exit code of arm_counts.cpp where llama.cpp multiplies weights as they are


def build(llama_cpp: Path, folder: Path, kind: str) -> Path:
    """The program of arm_counts.cpp. Raises CalledProcessError where something does not compile."""
    ours, theirs = folder / "uad", folder / f"llama-{kind}"
    options = [*OPTIONS, *(f"CMAKE_{one}" for one in LINUX_ON_ARM)]
    _cmake(LAB.parent / "kernels", ours, options, kind)
    _cmake(llama_cpp, theirs, [*options, f"GGML_CPU_ARM_ARCH={FEATURES[kind]}"], "ggml")
    libraries = [str(theirs / "ggml/src" / f"lib{name}.a") for name in ("ggml", "ggml-cpu", "ggml-base")]
    words = ["-std=c++17", "-O2", "-static", "-pthread", f"-DUAD_KIND={kind}", f"-I{llama_cpp / 'ggml/include'}"]
    program = folder / kind
    kernels = ours / f"CMakeFiles/{kind}.dir/src/kind.cpp.o"
    _run(COMPILER, *words, str(LAB / "arm_counts.cpp"), str(kernels), *libraries, "-o", str(program))
    _run("gcc", "-shared", "-fPIC", "-O2", str(LAB / "instructions.c"), "-o", str(folder / "instructions.so"))
    return program


def _cmake(sources: Path, folder: Path, options: Sequence[str], target: str) -> None:
    _run("cmake", "-S", str(sources), "-B", str(folder), *(f"-D{one}" for one in options))
    _run("cmake", "--build", str(folder), "--target", target, "--parallel", "2")


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=sys.stderr)


def count(program: Path, side: str, kind_of_weights: str, columns: int) -> str:
    """Instructions for 1,000 products: one product more, less what the program takes before and after it."""
    emulator = ["qemu-aarch64", "-plugin", str(program.parent / "instructions.so"), str(program)]
    counts = []
    for times in (1, 2):
        words = [*emulator, side, kind_of_weights, *map(str, (columns, times, K, ROWS))]
        ran = subprocess.run(words, capture_output=True, text=True)
        if ran.returncode not in (0, PLAIN):
            raise subprocess.CalledProcessError(ran.returncode, words, stderr=ran.stderr)
        counts.append(int(ran.stderr.split()[-1]))
    return f"{1000 * (counts[1] - counts[0]) / (K * ROWS * columns):.0f}{'*' if ran.returncode else ''}"


def main(argv: Sequence[str]) -> int:
    """Compile and count. Raises CalledProcessError where something does not compile, or ends badly."""
    parser = Parser("lab/arm_counts.py", "Count instructions of products on ARM.", positional="LLAMA_CPP FOLDER")
    parser.add_argument("llama_cpp", metavar="LLAMA_CPP", type=path_of, help="sources of llama.cpp")
    parser.add_argument("folder", metavar="FOLDER", type=path_of, help="where to compile")
    parser.add_argument("--kind", choices=FEATURES, default="i8mm", help="instructions that both may use")
    parser.add_argument("--types", metavar="TYPE", nargs="+", default=TYPES, help="of weights")
    parser.add_argument("--columns", metavar="N", nargs="+", type=int, default=[1, 8, 512], help="of the products")
    args = parser.parse(argv)
    program = build(args.llama_cpp, args.folder.resolve(), args.kind)
    for name in args.types:
        cells = (f"{count(program, 'uad', name, n)}, {count(program, 'llama', name, n)}" for n in args.columns)
        print("|", name.upper(), "|", " | ".join(cells), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, sys.argv[1:]))
