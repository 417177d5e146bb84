"""The scripts behind `make serve`: what is missing is said in one line, and a silent build shows where it is."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


def setup(tmp_path, programs):
    """Run setup.sh where only these programs exist (name -> script or real path)."""
    for name, body in {"sh": shutil.which("sh"), **programs}.items():
        if body.startswith("#!"):
            (tmp_path / name).write_text(body, encoding="utf-8")
            (tmp_path / name).chmod(0o755)
        else:
            (tmp_path / name).symlink_to(body)
    command = ["/bin/sh", "scripts/setup.sh", str(tmp_path / "venv"), "."]
    return subprocess.run(command, env={"PATH": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True, check=False)


WRAPPER = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
BROKEN, STUB = "#!/bin/sh\nexit 127\n", "#!/bin/sh\nexit 0\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
@pytest.mark.parametrize(
    ("programs", "missing", "remedy"),
    [
        ({}, "Python 3.11", "python3-venv"),
        ({"python3.13": BROKEN, "python3": BROKEN}, "Python 3.11", "PYTHON="),
        ({"python3.13": BROKEN, "python3": WRAPPER}, "C++ compiler", "apt install g++"),
        ({"python3": WRAPPER, "clang++": STUB}, "cmake", "apt install cmake"),
    ],
)
def test_what_is_missing_is_one_line_with_the_remedy(tmp_path, programs, missing, remedy):
    done = setup(tmp_path, programs)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("uad: error: no ")
    assert done.stderr.count("\n") == 1
    assert missing in done.stderr
    assert remedy in done.stderr
    assert not (tmp_path / "venv").exists()


def pip_install():
    spec = importlib.util.spec_from_file_location("pip_install", ROOT / "scripts" / "pip_install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_build_steps_are_recognised():
    step, state, seen = pip_install().step, "starting", []
    for line in (
        "Collecting llama-cpp-python<0.4,>=0.3.36\n",
        "  Using cached llama_cpp_python.tar.gz\n",
        "  Building wheel for llama-cpp-python (pyproject.toml): started\n",
        "  [12/345] /usr/bin/c++ -O3 -c x.cpp\n",
        "  [ 40%] Building CXX object\n",
        "Installing collected packages: numpy, uad\n",
    ):
        state = step(line, state)
        seen.append(state)
    assert seen == [
        *["fetching llama-cpp-python<0.4,>=0.3.36"] * 2,
        *(
            "building llama-cpp-python",
            "building llama-cpp-python (step 12/345)",
            "building llama-cpp-python (step 40%)",
            "installing numpy",
        ),
    ]


@pytest.mark.parametrize("code", [0, 3])
def test_the_log_has_everything_and_the_exit_code_is_kept(tmp_path, monkeypatch, capsys, code):
    module = pip_install()
    monkeypatch.chdir(tmp_path)
    module.LOG.parent.mkdir()
    program = (
        f"import os; print('[1/2] c++'); print(os.environ['CMAKE_BUILD_PARALLEL_LEVEL']); raise SystemExit({code})"
    )
    assert module.follow([sys.executable, "-c", program], 0.0) == code
    assert module.LOG.read_text(encoding="utf-8").splitlines()[0] == "[1/2] c++"
    assert "step 1/2" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["", "-DGGML_CUDA=on"])
def test_gcc_gets_the_header_where_there_is_amx(tmp_path, monkeypatch, given):
    module = pip_install()
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(module, "CPUINFO", cpuinfo)
    monkeypatch.setattr(module, "HEADER", tmp_path / "a folder" / "amx.h")
    monkeypatch.setenv("CMAKE_ARGS", given)
    expected = f"{given} -DGGML_RPC=on".strip()
    assert module.cmake_args() == expected
    cpuinfo.write_text("flags : avx2 avx512f")
    assert module.cmake_args() == expected
    cpuinfo.write_text("flags : avx2 amx_tile amx_int8")
    *others, flags = shlex.split(module.cmake_args())
    assert others == expected.split()
    assert flags == f'-DCMAKE_CXX_FLAGS=-include "{tmp_path}/a folder/amx.h"'
    monkeypatch.setenv("CMAKE_ARGS", "-DCMAKE_CXX_FLAGS=-O2")
    assert module.cmake_args() == "-DCMAKE_CXX_FLAGS=-O2 -DGGML_RPC=on"
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_RPC=off -DCMAKE_CXX_FLAGS=-O2")
    assert module.cmake_args() == "-DGGML_RPC=off -DCMAKE_CXX_FLAGS=-O2", "who says no gets none"


@pytest.mark.parametrize(
    ("machine", "words", "wanted"),
    [
        ("x86_64", [], ["-v", "./kernels", "-e", ".[dev]"]),
        ("aarch64", [], ["-v", "./kernels", "-e", ".[dev]"]),
        ("riscv64", [], ["-v", "-e", ".[dev]"]),
        ("x86_64", ["kernels"], ["-v", "./kernels", "--force-reinstall", "--no-deps"]),
        ("riscv64", ["kernels"], ["-v", "-e", ".[dev]"]),
    ],
)
def test_the_kernels_of_the_checkout_are_installed_where_there_are_any(machine, words, wanted, tmp_path, monkeypatch):
    module, commands = pip_install(), []
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    monkeypatch.setattr(module.platform, "machine", lambda: machine)
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    monkeypatch.setattr(module, "follow", lambda command, started: commands.append(command) or 0)
    monkeypatch.setattr(module, "why_again", lambda: "")
    monkeypatch.setattr(sys, "argv", ["pip_install.py", ".[dev]", *words])
    assert module.main() == 0
    (command,) = commands
    assert command[command.index("install") + 1 :] == wanted
    if words and machine == "x86_64":
        monkeypatch.setattr(module, "find_spec", lambda name: None)
        assert module.main() == 0
        assert commands[1][-2:] == ["-e", ".[dev]"], "without llama.cpp all is installed"


@pytest.mark.llama
@pytest.mark.parametrize(
    ("code", "given", "broken"), [(0, "", False), (7, "", True), (8, "", True), (8, "-DGGML_RPC=off", False)]
)
def test_a_cached_llama_cpp_that_would_crash_or_lacks_rpc_is_compiled_again(
    tmp_path, monkeypatch, capsys, code, given, broken
):
    module = pip_install()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CMAKE_ARGS", given)
    commands, run = [], []
    monkeypatch.setattr(module, "follow", lambda command, started: commands.append(command) or 0)
    monkeypatch.setattr(
        module.subprocess, "run", lambda command, **options: run.append(command) or SimpleNamespace(returncode=code)
    )
    monkeypatch.setattr(sys, "argv", ["pip_install.py", ".[dev]"])
    assert module.main() == 0
    assert commands[0][-2:] == ["-e", ".[dev]"]
    assert len(commands) == 1 + broken
    assert any(command[-2:] == ["remove", "llama_cpp_python"] for command in run) == broken
    assert ("compiling it again" in capsys.readouterr().out) == broken
    if broken:
        assert commands[1][-1].startswith("llama-cpp-python==")
