"""scripts/llama_server.py: fetched, built and kept once; what is missing is said in one line. Commands are scripted."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace

import llama_server
import pytest

from uad.base.errors import UnavailableError


class Tools:
    """pip and CMake: notes what was run; fails: a word of the command that goes wrong, and what it says."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.fails: dict[str, str] = {}
        self.inside = "llama_cpp_python-0.3.36/vendor/llama.cpp/CMakeLists.txt"

    def follow(self, command: list[str], started: float, state: str, log: Path) -> int:
        kind = next(word for word in ("download", "--build", "-S") if word in command)
        self.ran.append(kind)
        self.command = command
        if (said := self.fails.get(kind)) is not None:
            log.write_text(f"{log.read_text() if log.exists() else ''}{said}\n", encoding="utf-8")
            return 1
        if kind == "download":
            scratch = Path(command[command.index("--dest") + 1])
            scratch.mkdir()
            with tarfile.open(scratch / "llama_cpp_python-0.3.36.tar.gz", "w:gz") as tar:
                tar.addfile(tarfile.TarInfo(self.inside), io.BytesIO())
        if kind == "-S":
            assert (Path(command[command.index("-S") + 1]) / "CMakeLists.txt").is_file()
        if kind == "--build":
            made = Path(command[command.index("--build") + 1]) / "bin" / "llama-server"
            made.parent.mkdir(parents=True)
            made.write_text("built")
        return 0


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    made = Tools()
    for name in ("CMAKE_ARGS", "CXX", "CMAKE_BUILD_PARALLEL_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(llama_server, "version", lambda name: "0.3.36")
    monkeypatch.setattr(llama_server, "user_cache_path", lambda name: tmp_path)
    monkeypatch.setattr(llama_server.pip_install, "follow", made.follow)
    monkeypatch.setattr(llama_server.shutil, "which", lambda name: f"/usr/bin/{name}")
    return made


def test_it_is_fetched_built_and_kept_and_nothing_else_is_left(tools: Tools) -> None:
    assert "the sources of llama-cpp-python 0.3.36" in llama_server.plan()
    program = llama_server.ensure()
    assert program.read_text() == "built"
    assert tools.ran == ["download", "-S", "--build"]
    assert [path.name for path in program.parent.iterdir() if path.name != "build.log"] == ["llama-server"]
    assert llama_server.ensure() == program
    assert len(tools.ran) == 3, "once for each version"
    assert "is there" in llama_server.plan()


def test_the_sources_are_those_of_the_installed_version(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.fails["-S"] = "CMake Error"
    seen: list[list[str]] = []
    follow = tools.follow
    monkeypatch.setattr(llama_server.pip_install, "follow", lambda *given: (seen.append(given[0]), follow(*given))[1])
    with pytest.raises(UnavailableError):
        llama_server.ensure()
    assert seen[0][-1] == "llama-cpp-python==0.3.36"
    assert seen[0][seen[0].index("--no-binary") + 1] == "llama-cpp-python"


def test_an_interrupted_build_goes_on_where_it_was(tools: Tools) -> None:
    tools.fails["--build"] = "error: no space left"
    with pytest.raises(UnavailableError, match=r"it could not be compiled .*run it again to go on\n  error: no space"):
        llama_server.ensure()
    tools.fails.clear()
    llama_server.ensure()
    assert tools.ran == ["download", "-S", "--build", "-S", "--build"], "nothing is fetched twice"


def test_no_network_is_said_with_pips_words(tools: Tools) -> None:
    tools.fails["download"] = "Collecting it\nERROR: Could not find a version that satisfies it"
    with pytest.raises(UnavailableError, match=r"is there a network.*\n  ERROR: Could not find a version"):
        llama_server.ensure()
    assert tools.ran == ["download"]


def test_sources_without_llama_cpp_are_refused(tools: Tools) -> None:
    tools.inside = "llama_cpp_python-0.3.36/README.md"
    with pytest.raises(UnavailableError, match=r"holds no vendor/llama.cpp"):
        llama_server.ensure()


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (("c++", "g++", "clang++"), r"no C\+\+ compiler .*apt install g\+\+.*or give a program: --llama-server PATH"),
        (("cmake",), "no cmake .*apt install cmake.*--llama-server PATH"),
    ],
)
def test_tools_that_are_missing_are_named_before_anything_is_fetched(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(llama_server.shutil, "which", lambda name: None if name in missing else name)
    with pytest.raises(UnavailableError, match=message):
        llama_server.ensure()
    assert tools.ran == []


def test_a_full_disk_is_said_before_anything_is_fetched(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_server.shutil, "disk_usage", lambda path: SimpleNamespace(free=10**8))
    with pytest.raises(UnavailableError, match=r"needs 1.5 GB in .*, and 0.1 GB are free; XDG_CACHE_HOME names"):
        llama_server.ensure()
    assert tools.ran == []


def test_flags_are_those_of_uads_own_llama_cpp(tools: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = llama_server.program()
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags : avx2 amx_int8")
    monkeypatch.setattr(llama_server.pip_install, "CPUINFO", cpuinfo)
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=OFF -DGGML_AVX2=ON")
    command = llama_server.configure_command(Path("sources"), Path("build"))
    assert command[-4:-1] == ["-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_RPC=on"]
    assert "scripts/amx.h" in command[-1], "the header that saves AMX from GCC"
    assert "-DCMAKE_BUILD_TYPE=Release" in command
    assert llama_server.program() != plain, "another build has a place of its own"


def test_it_prints_its_path_or_one_line(tools: Tools, capsys: pytest.CaptureFixture[str]) -> None:
    assert llama_server.main(["--path"]) == 0
    assert capsys.readouterr().out == f"{llama_server.program()}\n"
    tools.fails["download"] = "ERROR: offline"
    assert llama_server.main([]) == 1
    assert capsys.readouterr().err.startswith("uad: error: llama-server: pip could not fetch")
    tools.fails.clear()
    assert llama_server.main([]) == 0
    assert capsys.readouterr().out.endswith(f"{llama_server.program()}\n")
