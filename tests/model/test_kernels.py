"""Kernels of uad: loaded or refused with a line that says why, proven in other processes, remembered, switched.

The library and the process that tries it are imitated here, but for the last part: it proves the one that is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kit.models import TARGET

from uad.base.common.cache import cache_folder
from uad.base.config import ModelConfig
from uad.base.errors import ConfigError
from uad.base.gguf import Tensor
from uad.base.types import Rows
from uad.llama.backend import ggml
from uad.llama.context import Context
from uad.llama.kernels import library, proof, proven, speed, use
from uad.llama.kernels.graphs import CpuBackend, GraphError, types
from uad.llama.kernels.library import Library, NoKernelsError
from uad.llama.kernels.proven import Proven
from uad.llama.kernels.sizes import copied
from uad.llama.model import Model

PARTS = ("q8_0", "q4_K", "attention")
ALL = (*PARTS, "activations")
CONFIG = ModelConfig(TARGET, n_ctx=512, n_threads=1)
use.started()  # before a model without them is loaded: llama.cpp reads its list of buffers once


class Functions:
    """The library's functions, imitated."""

    def __init__(
        self,
        kinds: str = "avx512 avx2",
        needed: str = "ggml_op_name",
        wrong: bytes | None = None,
        parts: Sequence[str] = PARTS,
    ) -> None:
        self.log: list[tuple[object, ...]] = []
        self.grids: list[tuple[bytes, int]] = []
        self._kinds, self._needed, self._wrong, self._parts = kinds, needed, wrong, parts

    def uad_kernels_kinds(self) -> bytes:
        return self._kinds.encode()

    def uad_kernels_parts(self) -> bytes:
        return " ".join(self._parts).encode()

    def uad_kernels_functions(self) -> bytes:
        return self._needed.encode()

    def uad_kernels_grids(self) -> bytes:
        return b"ggml_type_name ggml_no_such"

    def uad_kernels_read_grid(self, name: bytes, address: int) -> None:
        self.grids.append((name, address))

    def uad_kernels_register(self, kind: bytes, addresses: Sequence[int], n: int) -> bytes | None:
        self.log.append(("register", kind.decode(), [*addresses][:n]))
        return self._wrong

    def uad_kernels_set(self, part: bytes, is_on: bool) -> bool:
        self.log.append((part.decode(), is_on))
        return part.decode() in (*self._parts, library.IN_TILES)

    def uad_kernels_count(self, what: bytes) -> int:
        return len(what)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Library]:
    """Makes an imitated library, installed as if it were the real one; nothing that was found before counts."""
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setattr(use, "started", use.cache(use.started.__wrapped__))
    monkeypatch.setattr(use, "_switch", SimpleNamespace(parts=None))
    monkeypatch.setattr(use, "extra_buffers", lambda device: {library.BUFFER: 1})

    def make(*words: str, **options: Any) -> Library:
        path = tmp_path / "libuad_kernels.so"
        path.write_bytes(b"library")
        one = Library(path, "0.1.0", Functions(*words, **options))
        monkeypatch.setattr(use, "installed", lambda: one)
        return one

    return make


Answer = tuple[int, Sequence[object], str]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Answer], list[list[str]]]:
    """What other processes answer, one after the other: exit code, steps, and stderr; and the parts each was to try."""
    answers: list[Answer] = []
    tried: list[list[str]] = []

    def run(command: Sequence[str], **options: Any) -> SimpleNamespace:
        assert command[1:] == ["-P", "-m", "uad.llama.kernels.proof"]
        tried.append(json.loads(options["input"])["parts"])
        assert 0 < options["timeout"] <= proven.SECONDS
        code, steps, errors = answers.pop(0)
        out = "\n".join(json.dumps(one) for one in steps)
        if code == 124:
            raise subprocess.TimeoutExpired(command, 1, out.encode())
        return SimpleNamespace(returncode=code, stdout=out, stderr=errors)

    monkeypatch.setattr(proven.subprocess, "run", run)
    return answers, tried


def steps(*ended: str, wrong: dict[str, str] | None = None, at: str = "") -> list[object]:
    """Lines of a process that ended these steps, and came to its end at the last one."""
    lines: list[object] = []
    for name in ("register", *ended):
        lines += [{"step": name}, {"step": name, "why": (wrong or {}).get(name, "")}]
    return [*lines, *([{"step": at}] if at else [])]


def try_all(library: Library) -> Proven:
    return proven.try_parts(library, "avx2", library.parts)


# --- loading


@pytest.mark.parametrize(
    ("kinds", "variable", "kind"),
    [("avx512 avx2", "", "avx512"), ("avx512 avx2", "avx2", "avx2"), ("avx2", "off", "")],
)
def test_the_fastest_kind_is_chosen_or_the_one_that_is_named(kinds, variable, kind, monkeypatch) -> None:
    monkeypatch.setenv(library.VARIABLE, variable)
    assert library.chosen(kinds.split()) == kind


def test_a_kind_that_cannot_run_is_an_error_that_names_those_that_can(monkeypatch) -> None:
    monkeypatch.setenv(library.VARIABLE, "avx51")
    with pytest.raises(ConfigError, match="UAD_KERNELS=avx51: this machine can run avx2, off"):
        library.chosen(["avx2"])
    monkeypatch.delenv(library.VARIABLE)
    with pytest.raises(NoKernelsError, match="for this processor"):
        library.chosen([])


def test_a_package_that_is_missing_or_broken_is_named(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(library.importlib.sys.modules, "uad_kernels", None)
    with pytest.raises(NoKernelsError, match="uad-kernels is not installed"):
        library.installed()
    monkeypatch.delitem(library.importlib.sys.modules, "uad_kernels")
    (tmp_path / "uad_kernels.py").write_text("import no_such_module_of_it\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NoKernelsError, match="uad-kernels cannot be loaded: No module named 'no_such_module_of_it'"):
        library.installed()
    package = SimpleNamespace(library=lambda: tmp_path / "none.so", __version__="0.1.0")
    monkeypatch.setitem(library.importlib.sys.modules, "uad_kernels", package)
    with pytest.raises(NoKernelsError, match=r"uad-kernels cannot be loaded: .*none\.so"):
        library.installed()
    package.library = lambda: Path(ggml.lib._lib._name)  # a library without our functions
    with pytest.raises(NoKernelsError, match=r"cannot be loaded: .*uad_kernels_abi"):
        library.installed()


def test_another_interface_is_refused_before_its_functions_are_looked_up(monkeypatch, tmp_path) -> None:
    class Abi(SimpleNamespace):
        def __call__(self) -> int:
            return library.ABI + 1

    monkeypatch.setattr(library.ctypes, "CDLL", lambda path: SimpleNamespace(uad_kernels_abi=Abi()))
    package = SimpleNamespace(library=lambda: tmp_path / "x.so", __version__="0.9")
    monkeypatch.setitem(library.importlib.sys.modules, "uad_kernels", package)
    numbers = f"interface {library.ABI + 1}, and this uad needs {library.ABI}"
    line = rf"^uad-kernels 0\.9 has {numbers}: install the uad-kernels of this uad$"
    with pytest.raises(NoKernelsError, match=line):
        library.installed()


def test_functions_are_handed_over_in_order_and_a_missing_one_is_named(made) -> None:
    one = made(needed="ggml_op_name ggml_barrier")
    one.register("avx2")
    assert one.functions.grids == [(b"ggml_type_name", ggml.address("ggml_type_name"))], "those that this ggml has"
    assert one.functions.log == [("register", "avx2", [ggml.address("ggml_op_name"), ggml.address("ggml_barrier")])]
    with pytest.raises(NoKernelsError, match="does not export ggml_none"):
        made(needed="ggml_op_name ggml_none").register("avx2")
    with pytest.raises(NoKernelsError, match=r"^no luck"):
        made(wrong=b"no luck").register("avx2")
    with pytest.raises(ValueError, match="no part 'q9'"):
        one.set_part("q9", True)


# --- proving


def test_what_is_right_is_used_and_remembered(made, children) -> None:
    answers, tried = children
    answers.append((0, steps(*PARTS), ""))
    one = made()
    assert proven.prove_once(one, "avx2") == Proven(PARTS)
    assert proven.prove_once(one, "avx2") == Proven(PARTS)
    assert tried == [[*PARTS]], "once"
    answers.append((0, steps("q8_0"), ""))
    answers.append((0, steps(*PARTS), ""))
    one.path.write_bytes(b"another")
    assert proven.prove_once(one, "avx2").parts == ("q8_0",), "another library is tried"
    assert proven.prove_once(one, "avx512").parts == PARTS, "another kind, too"


def test_times_beside_llama_cpps_are_remembered(made, children) -> None:
    answers, tried = children
    lines = steps("q8_0", "q4_K")
    lines[3:3] = [{"step": "q8_0", "times": [0.5, 0.6, 1.2]}, {"step": "q8_0", "times": None}]
    answers += [
        (-11, lines, "ended while it was timed"),
        (0, [*steps("attention"), {"step": "q4_K", "times": []}], ""),
    ]
    one, wanted = made(), Proven(PARTS, times={"q8_0": (0.5, 0.6, 1.2), "q4_K": ()})
    assert [proven.prove_once(one, "avx2") for _ in range(2)] == [wanted] * 2
    assert tried == [[*PARTS], ["attention"]], "a type that ended the process while it was timed is right"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"parts": [], "wrong": {}, "reason": ""}', '{"parts": ["x"], "wrong": {}, "reason": ""}'),
        '{"parts": ["q8_0", "q8_0"], "wrong": {}, "reason": ""}',
        '{"parts": ["q8_0"], "wrong": {}, "reason": "", "pending": []}',
        '{"parts": ["q8_0", "q4_K", "attention"], "wrong": {}, "reason": "", "pending": ["q4_K"]}',
        '{"parts": ["q8_0", "q4_K", "attention"], "wrong": {}, "reason": ""}',
        '{"parts": ["q8_0", "q4_K", "attention"], "wrong": {}, "reason": "", "pending": [], "times": {"q8_0": ["a"]}}',
        '{"parts": ["q8_0", "q4_K", "attention"], "wrong": {}, "reason": "", "pending": [], "times": {"q8_0": [-1]}}',
        '{"parts": ["q8_0", "q4_K", "attention"], "wrong": {}, "reason": "", "pending": [], "times": {"q8_0": [NaN]}}',
        *('{"parts": 3, "wrong": 4, "reason": 5}', "[" * 5000),
    ],
)
def test_a_damaged_or_foreign_file_is_ignored(text, made, children) -> None:
    answers, tried = children
    answers += [(0, steps(*PARTS), "")] * 2
    one = made()
    proven.prove_once(one, "avx2")
    (file,) = (cache_folder() / "kernels").iterdir()
    file.write_text(text)
    assert proven.prove_once(one, "avx2").parts == PARTS
    assert len(tried) == 2
    assert proven.prove_once(one, "avx2").parts == PARTS
    assert len(tried) == 2, "and written again"


def test_a_folder_that_cannot_be_written_costs_the_memory_only(made, children, monkeypatch, tmp_path) -> None:
    answers, _ = children
    answers += [(0, steps(*PARTS), "")] * 2
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UAD_CACHE_DIR", str(tmp_path / "file"))
    one = made()
    assert [proven.prove_once(one, "avx2").parts for _ in range(2)] == [PARTS] * 2


def test_a_part_with_wrong_results_is_left_out_with_its_reason(made, children) -> None:
    children[0].append((0, steps(*PARTS, wrong={"q4_K": "products are off"}), ""))
    assert try_all(made()) == Proven(("q8_0", "attention"), {"q4_K": "products are off"})


def test_a_part_that_ends_the_process_is_left_out_and_those_after_it_are_tried(made, children) -> None:
    answers, tried = children
    answers.append((-11, steps("q8_0", at="q4_K"), "Fatal Python error: Segmentation fault"))
    answers.append((0, steps("attention"), ""))
    found = try_all(made())
    assert found.parts == ("q8_0", "attention")
    assert found.wrong["q4_K"].startswith("the process that tried it ended by signal 11")
    assert tried == [[*PARTS], ["attention"]]


def test_parts_are_not_tried_for_ever(made, children) -> None:
    answers, tried = children
    one = made()
    object.__setattr__(one, "parts", tuple(f"part{i}" for i in range(9)))
    answers += [(-4, steps(at=f"part{i}"), "") for i in range(9)]
    found = try_all(one)
    assert len(tried) == 4
    assert found.parts == ()
    assert found.reason.startswith("none of them was right: the process that tried it ended by signal 4")
    assert found.wrong["part8"] == "it was not tried, since others failed too often"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((-11, [{"step": "register"}], ""), "trying them failed: .*signal 11"),
        ((1, [], "ImportError: no"), "trying them failed: it ended with exit code 1 .ImportError: no"),
        ((0, [{"step": "register"}, {"step": "register", "why": "no luck"}], ""), "no luck"),
        ((124, [{"step": "register"}], ""), "trying them failed: it took more than"),
        ((0, steps(*PARTS, wrong=dict.fromkeys(PARTS, "off")), ""), "none of them was right: off"),
    ],
)
def test_where_nothing_can_be_used_the_line_says_why(answer, reason, made, children) -> None:
    children[0].append(answer)
    made()
    kernels = use.started()
    assert (kernels.library, kernels.parts) == (None, ())
    assert re.match(rf"kernels: llama\.cpp's own \(.*{reason}", kernels.note())


def test_a_process_that_fails_after_its_last_part_has_proven_them(made, children) -> None:
    answers, tried = children
    answers.append((-11, steps(*PARTS), "Segmentation fault"))
    one = made()
    assert [proven.prove_once(one, "avx2") for _ in range(2)] == [Proven(PARTS)] * 2
    assert tried == [[*PARTS]], "once"


def test_a_process_that_ends_between_two_parts_costs_neither(made, children) -> None:
    answers, tried = children
    answers += [(-11, steps("q8_0"), ""), (0, steps("q4_K", "attention"), "")]
    assert try_all(made()) == Proven(PARTS)
    assert tried == [[*PARTS], ["q4_K", "attention"]]


def test_what_was_not_tried_in_time_is_tried_at_the_next_start_and_nothing_else(made, children) -> None:
    answers, tried = children
    answers.append((124, steps("q8_0", at="q4_K"), ""))
    answers.append((0, steps("q4_K", "attention", wrong={"q4_K": "off"}), ""))
    one = made()
    late = proven.prove_once(one, "avx2")
    assert (late.parts, late.pending) == (("q8_0",), ("q4_K", "attention"))
    assert late.wrong == {
        "q4_K": "it took more than 120 s",
        "attention": "it was not tried within 120 s",
    }
    assert proven.prove_once(one, "avx2") == Proven(("q8_0", "attention"), {"q4_K": "off"})
    assert proven.prove_once(one, "avx2").parts == ("q8_0", "attention")
    assert tried == [[*PARTS], ["q4_K", "attention"]]


def test_a_part_that_takes_all_the_time_alone_is_given_up(made, children) -> None:
    answers, tried = children
    answers += [(124, steps(at="q8_0"), ""), (124, steps(at="q4_K"), ""), (0, steps("attention"), "")]
    one = made()
    results = [proven.prove_once(one, "avx2") for _ in range(4)]
    assert [result.pending for result in results] == [("q4_K", "attention"), ("attention",), (), ()]
    assert results[0].reason == "none of them was right: it took more than 120 s"
    assert (results[3].parts, sorted(results[3].wrong)) == (("attention",), ["q4_K", "q8_0"])
    assert tried == [[*PARTS], ["q4_K", "attention"], ["attention"]]


def test_all_processes_together_have_a_bound(made, children, monkeypatch) -> None:
    answers, _ = children
    answers += [(-11, steps(at="q8_0"), ""), (124, steps(at="q4_K"), "")]
    clock = iter((0.0, 0.0, 100.0))
    monkeypatch.setattr(proven, "monotonic", lambda: next(clock))
    limits: list[float] = []
    run = proven.subprocess.run
    monkeypatch.setattr(
        proven.subprocess,
        "run",
        lambda *words, **options: (limits.append(options["timeout"]), run(*words, **options))[1],
    )
    assert try_all(made()).pending == ("q4_K", "attention")
    assert limits == [120, 20]


@pytest.mark.parametrize("number", [9, 15, 2])
def test_a_process_that_somebody_ended_says_nothing_about_its_part(number, made, children) -> None:
    answers, tried = children
    answers += [(-number, steps("q8_0", at="q4_K"), ""), (0, steps("attention"), ""), (0, steps("q4_K"), "")]
    one = made()
    assert proven.prove_once(one, "avx2").parts == ("q8_0", "attention")
    assert [proven.prove_once(one, "avx2") for _ in range(2)] == [Proven(PARTS)] * 2
    assert tried == [[*PARTS], ["attention"], ["q4_K"]]


def test_what_was_pending_stays_so_where_no_process_can_be_started(made, children, monkeypatch) -> None:
    children[0].append((124, steps("q8_0", at="q4_K"), ""))
    one = made()
    proven.prove_once(one, "avx2")

    def run(*words: object, **options: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(proven.subprocess, "run", run)
    for _ in range(2):
        result = proven.prove_once(one, "avx2")
        assert (result.parts, result.pending) == (("q8_0",), ("q4_K", "attention"))
        assert "Resource temporarily unavailable" in result.wrong["q4_K"]


def test_a_line_says_that_kernels_are_tried_and_another_one_where_it_lasts(made, children, monkeypatch, caplog) -> None:
    children[0].append((0, steps(*PARTS), ""))
    monkeypatch.setattr(
        proven, "Timer", lambda seconds, call, words: SimpleNamespace(start=lambda: call(*words), cancel=int)
    )
    one = made()
    with caplog.at_level("INFO", "uad.llama"):
        proven.prove_once(one, "avx2")
        assert [record.getMessage() for record in caplog.records] == [
            "trying the avx2 kernels in another process, once for this machine: some seconds",
            "still trying the avx2 kernels, for 120 s at most",
        ]
        caplog.clear()
        proven.prove_once(one, "avx2")
        assert not caplog.records, "it is remembered"


# --- what a proof holds for


def test_a_proof_holds_for_what_it_was_made_with(made, monkeypatch, tmp_path) -> None:
    one = made()
    cpus = tmp_path / "cpuinfo"
    core = "processor\t: {}\nmodel name\t: A\ncpu MHz\t\t: {}\nflags\t\t: avx2 {}\n\n"
    cpus.write_text(core.format(0, 800, "") + core.format(1, 900, ""))
    monkeypatch.setattr(proven, "_CPUINFO", cpus)
    before = proven.facts_of(one, "avx2")
    cpus.write_text(core.format(0, 1800, "") + core.format(1, 900, ""))
    assert proven.facts_of(one, "avx2") == before, "cores change their clocks"
    cpus.write_text(core.format(0, 800, "") + core.format(1, 900, "amx"))
    assert proven.facts_of(one, "avx2") != before, "a core of another kind"
    cpus.write_text(core.format(0, 800, "") + core.format(1, 900, ""))
    monkeypatch.setattr(proven, "usable_cores", lambda: 77)
    assert proven.facts_of(one, "avx2") != before, "a proof tries as many threads"
    monkeypatch.undo()


def test_a_proof_is_not_remembered_where_its_files_cannot_be_read(made, children, monkeypatch, tmp_path) -> None:
    answers, tried = children
    answers += [(0, steps(*PARTS), "")] * 2
    one = made()
    monkeypatch.setattr(proven.ggml, "loaded_files", lambda *names: (tmp_path / "gone.so",))
    assert [proven.prove_once(one, "avx2").parts for _ in range(2)] == [PARTS] * 2
    assert len(tried) == 2


_FILES = """
import json
from types import SimpleNamespace
from pathlib import Path
from uad.llama.kernels import proven
library = SimpleNamespace(path=Path(proven.__file__), parts=(), needed=("ggml_barrier", "ggml_no_such"))
print(json.dumps(proven.facts_of(library, "")["files"]))
"""


def test_a_proof_holds_for_the_files_that_are_loaded(tmp_path) -> None:
    """Whether they are llama_cpp's own, or those of LLAMA_CPP_LIB_PATH, or others that the linker prefers."""

    def files(**environment: str) -> dict[str, list[object]]:
        done = subprocess.run(
            [sys.executable, "-c", _FILES], env=os.environ | environment, check=True, capture_output=True, text=True
        )
        return {file[0]: file[1:] for file in json.loads(done.stdout)}

    own = files()
    assert any("ggml" in name for name in own)
    folder = tmp_path / "lib"
    shutil.copytree(ggml.loaded_files()[0].parent, folder, symlinks=True)
    assert files(LLAMA_CPP_LIB_PATH=str(folder)) == own, "a copy is the same"
    name = next(name for name in own if "ggml-cpu" in name)
    status, data = (folder / name).stat(), (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # a section header, which nothing loads
    os.utime(folder / name, ns=(status.st_atime_ns, status.st_mtime_ns))
    changed = files(LLAMA_CPP_LIB_PATH=str(folder))
    assert {name for name in own if changed[name] != own[name]} == {name}, "its content counts"
    assert changed[name][:2] == own[name][:2], "not its size and its time alone"


# --- using


def test_what_is_proven_is_switched_on_and_named_at_start(made, children) -> None:
    children[0].append((0, steps(*ALL, wrong={"q4_K": "off"}), ""))
    one = made(parts=ALL)
    kernels = use.started()
    assert one.functions.log[1:] == [("q8_0", True), ("q4_K", False), ("attention", True), ("activations", False)]
    for words, said in {(): "for weights of q8_0", ("92 % of the weights",): "92 % of the weights"}.items():
        line = f"kernels: avx512, {said}, attention, activations; q4_K is left to llama.cpp (off)"
        assert kernels.note(*words) == line
    assert kernels.facts == {"kernels": f"avx512 0.1.0 {one.digest}: q8_0 attention activations"}
    one.path.write_bytes(b"another build of the same version")
    assert replace(one).digest != one.digest
    assert use.counts() == {"products": 8, "experts": 7, "attention": 9, "activations": 11}
    assert replace(kernels, wrong={}).note("all weights") == "kernels: avx512, all weights, attention, activations"


def test_types_that_are_slower_than_llama_cpps_are_named_and_left_to_it_where_that_is_wanted(made, children) -> None:
    times = [{"step": "q8_0", "times": [0.5, 1.04, 1.25]}, {"step": "q4_K", "times": [1.5, 0.9, 1.2]}]
    children[0].append((0, [*steps(*ALL), *times], ""))
    log = made(parts=ALL).functions.log
    fastest = replace(CONFIG, kernels="fastest")
    assert use.of(CONFIG).types == ("q8_0", "q4_K")
    assert use.of(fastest).types == ("q8_0",)
    way_out = "; --kernels fastest leaves it to llama.cpp"
    for name, said in {"q4_K": f"1 row 1.5 times, 512 rows 1.2 times{way_out}", "q8_0": "512 rows 1.2 times"}.items():
        assert use.of(CONFIG).slower(name) == f"{name} takes longer than in llama.cpp's own ({said})"
    assert use.of(CONFIG).slower("q6_K") == ""
    del log[:]
    use.before_load(fastest)
    assert log == [("q8_0", True), ("q4_K", False)]


@pytest.mark.parametrize(("change", "why"), [({"kernels": False}, "--no-kernels"), ({"repack": False}, "--no-repack")])
def test_who_wants_none_gets_llama_cpps_and_nothing_is_tried(change, why, made, children) -> None:
    made()
    config = replace(CONFIG, **change)
    use.before_load(config)
    assert use.of(config).note() == f"kernels: llama.cpp's own ({why})"
    assert use.of(config).facts == {}
    assert not use.parts_of_passes(config)
    assert children[1] == []
    assert use.counts() == {}


def test_models_of_one_process_may_want_different_kernels(made, children) -> None:
    children[0].append((0, steps(*ALL), ""))
    log = made(parts=ALL).functions.log
    use.before_load(CONFIG)
    del log[:]
    use.before_load(replace(CONFIG, kernels=False))
    assert log == [("q8_0", False), ("q4_K", False)]
    use.before_load(CONFIG)
    assert log[2:] == [("q8_0", True), ("q4_K", True)]
    del log[:]
    own, none = use.parts_of_passes(CONFIG), use.parts_of_passes(replace(CONFIG, kernels=False))
    for wanted in (own, own, none, none, own):
        use.before_pass(wanted)
    of_passes = [log[i : i + 3] for i in range(0, len(log), 3)]
    tiles = (library.IN_TILES, True)
    assert of_passes == [[("attention", is_on), ("activations", is_on), tiles] for is_on in (True, False, True)], (
        "only where it changes"
    )
    use.before_pass(own | {library.ANYWHERE})
    assert log[9:] == [("attention", True), ("activations", True), (library.IN_TILES, False)]


def test_a_model_that_was_loaded_before_leaves_all_to_llama_cpp(made, children, monkeypatch) -> None:
    children[0].append((0, steps(*PARTS), ""))
    one = made()
    monkeypatch.setattr(use, "extra_buffers", lambda device: {"CPU_REPACK": 1})
    assert use.started().note() == "kernels: llama.cpp's own (a model was loaded without them before)"
    assert one.functions.log[1:] == [(part, False) for part in PARTS]


# --- the process that tries


def test_results_that_are_off_or_worse_are_wrong() -> None:
    random = np.random.default_rng(3)
    exact = random.standard_normal((8, 64))
    theirs = (exact + random.normal(0, 0.005, exact.shape)).astype(np.float32)
    proof._check_far(theirs, theirs, exact, 0.03, "x")
    for change in (0.05 * random.standard_normal(exact.shape), np.where(np.arange(64) == 63, 0.5, 0), np.nan):
        with pytest.raises(proof.WrongError, match=r"x are off llama\.cpp's"):
            proof._check_far((exact + change).astype(np.float32), theirs, exact, 0.03, "x")
    with pytest.raises(proof.WrongError, match="x have an error of"):
        proof._check_far((exact + random.normal(0, 0.01, exact.shape)).astype(np.float32), theirs, exact, 0.03, "x")


def test_one_bit_is_another_result() -> None:
    x = np.ones((2, 3), np.float32)
    proof._check_bits(x, x.copy(), "a product")
    y = x.copy()
    y[1, 2] = np.nextafter(np.float32(1), np.float32(2))
    with pytest.raises(proof.WrongError, match="a product has other bits"):
        proof._check_bits(y, x, "a product")
    with pytest.raises(proof.WrongError, match="does not run in it"):
        proof._check_bits(None, x, "a product")


def test_a_library_that_cannot_be_loaded_ends_the_proof_at_once(tmp_path) -> None:
    (begun, ended) = proof.prove(tmp_path / "none.so", "avx2", PARTS)
    assert begun == ("register", None)
    assert "none.so" in (ended[1] or "")


@pytest.mark.model
def test_parts_are_proven_before_any_is_timed_and_what_cannot_be_timed_is_right(real: Library, monkeypatch) -> None:
    def fails(backend: CpuBackend, type_: str) -> tuple[float, ...]:
        raise GraphError("there is no memory")

    def loaded(path: Path) -> Library:
        return replace(real, functions=Functions(parts=("f32", "f16")))

    monkeypatch.setattr(proof, "load", loaded)
    monkeypatch.setattr(proof.Proof, "of", lambda self, part: None)
    for ratios, timed in ((fails, []), (lambda backend, type_: (0.5,), [("f32", (0.5,)), ("f16", (0.5,))])):
        monkeypatch.setattr(speed, "ratios", ratios)
        steps = list(proof.prove(real.path, "avx2", ("f32", "f16")))
        assert steps[2:] == [("f32", None), ("f32", ""), ("f16", None), ("f16", ""), *timed]


# --- the library that is installed


@pytest.fixture(scope="module")
def real() -> Library:
    """The library itself, where it is installed and this processor has kernels."""
    try:
        one = library.installed()
    except NoKernelsError as error:
        pytest.skip(str(error))
    if not one.kinds:
        pytest.skip("there are no kernels for this processor")
    return one


@pytest.mark.model
def test_every_part_of_the_installed_library_is_right_on_this_machine(real: Library) -> None:
    for kind in real.kinds:
        found = proven.try_parts(real, kind, real.parts)
        assert (found.parts, found.wrong, found.reason) == (real.parts, {}, ""), kind


@pytest.mark.model
def test_products_of_every_type_are_timed_beside_llama_cpps(real: Library) -> None:
    times = use.started().times
    assert set(times) == set(use.started().types)
    assert all(len(each) == len(speed.ROWS) and min(each) > 0 for each in times.values())


@pytest.mark.model
def test_a_model_computes_in_it_and_without_it_what_llama_cpp_does(real: Library) -> None:
    logits = {}
    for name, config in {"own": CONFIG, "theirs": replace(CONFIG, kernels=False)}.items():
        before = use.counts()
        with Model(config) as model, Context(model, config, 1) as context:
            context.decode([Rows(0, 0, [7, 8, 9], 3)])
            logits[name] = context.logits().copy()
        ran = {what: n - before.get(what, 0) for what, n in use.counts().items()}
        assert (ran["products"] > 0) == (ran["attention"] > 0) == (name == "own"), use.of(config).note()
    assert np.abs(logits["own"] - logits["theirs"]).max() < 0.05 * logits["theirs"].std()


@pytest.mark.model
def test_what_weights_take_in_its_buffers_is_known(real: Library) -> None:
    kernels = use.of(CONFIG)
    if kernels.library is None:
        pytest.skip(kernels.note())
    shape, kind = (256, 640), types()["q4_K"]
    own = Tensor("blk.0.ffn_up.weight", shape, kind, (0, 144 * 640))
    tied = Tensor("token_embd.weight", shape, kind, own.span)
    output = Tensor("output.weight", shape, kind, own.span)
    norm = Tensor("output_norm.weight", (256,), types()["f32"], (0, 1024))
    before, after = copied(kernels, [own, norm])
    assert before == own.n_bytes <= after <= 1.1 * own.n_bytes
    assert copied(kernels, [own, tied, norm]) == (before, 2 * after), "the tied embedding is there twice"
    assert copied(kernels, [own, tied, output]) == (2 * before, 2 * after)
