"""Every name that uad.llama uses of the binding is checked at start, and what is missing is said in one line. Needs no
llama.cpp.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[3]
ROOMS = (ROOT / "uad" / "llama" / "backend", ROOT / "uad" / "llama" / "kernels", ROOT / "uad" / "llama")
SYMBOLS, NEXTN = ROOMS[0] / "symbols.py", ROOMS[-1] / "nextn.py"


def symbols() -> SimpleNamespace:
    """uad/llama/backend/symbols.py, read without its room, which needs llama.cpp."""
    names: dict[str, object] = {}
    exec(compile(SYMBOLS.read_text(encoding="utf-8"), "symbols.py", "exec"), names)
    return SimpleNamespace(**names)


def files() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted(room.glob("*.py"))


def trees() -> Iterator[ast.Module]:
    for path in files():
        yield ast.parse(path.read_text(encoding="utf-8"))


def used_names(tree: ast.Module) -> set[str]:
    """Attributes of `lib`, and names imported out of the binding."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lib":
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llama_cpp"):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.startswith(("llama_", "ggml_"))}


def set_fields(tree: ast.Module) -> set[tuple[str, str]]:
    """(structure, field) of every `params.field = …` in a function where `params` are llama.cpp's default ones, or what
    `model_params` or `context_params` made of them.
    """
    found = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        made = ""
        for node in sorted(
            (node for node in ast.walk(function) if isinstance(node, ast.Assign)), key=lambda node: node.lineno
        ):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == "params" and isinstance(node.value, ast.Call):
                made = ast.unparse(node.value.func).removeprefix("lib.").replace("_default_params", "_params")
                made = f"llama_{made}" if made in ("model_params", "context_params") else made
            elif (
                made
                and isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "params"
            ):
                found.add((made, target.attr))
    return found


def test_the_checked_names_are_those_that_the_rooms_use() -> None:
    used = set().union(*map(used_names, trees()))
    assert set(symbols().SYMBOLS) == used, "bring SYMBOLS in uad/llama/backend/symbols.py up to date"
    assert sorted(set(symbols().SYMBOLS)) == list(symbols().SYMBOLS)


def test_the_checked_fields_are_those_that_the_rooms_set() -> None:
    fields = {(structure, field) for structure, names in symbols().FIELDS.items() for field in names}
    used = {
        (structure, field)
        for structure, field in set().union(*map(set_fields, trees()))
        if structure.startswith("llama_")
    }
    assert len(used) > 15
    assert used <= fields, "bring FIELDS in uad/llama/backend/symbols.py up to date"


def looked_up(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names that are looked up in the library, and those of a registry: in texts, whoever looks them up."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    found = {text for text in texts if re.fullmatch(r"ggml_[a-z0-9_]+", text)}
    of_registry = {
        node.args[-1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("registered", "ggml.registered", "_proc")
        and isinstance(node.args[-1], ast.Constant)
    }
    return found - of_registry, of_registry


def test_every_function_that_the_binding_has_no_name_for_stands_in_one_table() -> None:
    checked, in_library, in_registry = symbols(), set[str](), set[str]()
    for path in files():
        if path != SYMBOLS:
            library, registry = looked_up(ast.parse(path.read_text(encoding="utf-8")))
            in_library |= library
            in_registry |= registry
    assert in_library | set(checked.UNSTABLE) | set(checked.SAMPLING_GGML) == set(checked.GGML)
    assert in_registry == set(checked.REGISTERED)
    assert list(checked.GGML) == sorted(checked.GGML)


def test_no_other_place_has_signatures() -> None:
    for path in files():
        if path.name not in ("ggml.py", "symbols.py", "library.py"):  # the last has those of uad's own library
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\._lib\b|\brestype\b|\bargtypes\b|CFUNCTYPE", text), path


MIRRORED = {
    "InitParams": "uad/llama/kernels/proof.py",
    "TensorPlace": "uad/llama/placing.py",
    "NativeTensor": "uad/llama/rearranging.py",
}
"""Structures of C that the binding has no names for, and the process that tries each before a server relies on it."""


def structures(path: Path) -> Iterator[str]:
    """Classes laid out by hand in this file, and numpy's records of several fields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and any("Structure" in ast.unparse(base) for base in node.bases):
            yield node.name
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "np.dtype" and isinstance(node.args[0], ast.List):
            yield ast.unparse(node)


def test_every_structure_laid_out_by_hand_is_tried_in_another_process() -> None:
    mirrored = {path: [*structures(path)] for path in (ROOT / "uad").rglob("*.py")}
    assert sorted(mirrored[SYMBOLS]) == sorted(MIRRORED), "add the process that tries it, or take the binding's own"
    assert mirrored.pop(SYMBOLS.with_name("ggml.py")) == ["_SymbolPlace"], "of the system's dlfcn.h, not of llama.cpp"
    assert {path for path, names in mirrored.items() if names} == {SYMBOLS}, "structures of C stand in symbols.py"
    for tried in MIRRORED.values():
        assert '__name__ == "__main__"' in (ROOT / tried).read_text(encoding="utf-8"), tried


def test_a_structure_in_two_spellings_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "new.py"
    file.write_text("class Pair(ctypes.Structure): ...\nROW = np.dtype([('id', int)])\nOTHER = np.dtype(lib.row)\n")
    assert list(structures(file)) == ["Pair", "np.dtype([('id', int)])"]


class Library:
    """A library with these functions."""

    def __init__(self, names: Iterable[str]) -> None:
        self.__dict__.update(dict.fromkeys(names, 1))


def test_a_function_of_ggml_that_the_library_lacks_is_missed_at_start() -> None:
    checked = symbols()
    binding = SimpleNamespace(**dict.fromkeys((*checked.SYMBOLS, *checked.CONSTRUCTORS), 1))
    for structure, fields in checked.FIELDS.items():
        setattr(binding, structure, SimpleNamespace(**dict.fromkeys(fields, 1)))
    for name in checked.GGML:
        binding._lib = Library(set(checked.GGML) - {name})
        can_do_without = name in (*checked.UNSTABLE, *checked.SAMPLING_GGML)
        assert list(checked.missing(binding)) == ([] if can_do_without else [name])
    binding._lib = Library(())
    assert list(checked.missing(binding)) == [], "a library on Windows leads to none of them"


def test_the_search_finds_names_and_fields() -> None:
    source = "import llama_cpp.llama_cpp as lib\nfrom llama_cpp.llama_cpp import llama_x\ndef f():\n"
    source += (
        "    params = lib.llama_model_default_params()\n    params.n_new = lib.llama_new(lib.LLAMA_ONE, "
        "other.llama_no)\n"
    )
    tree = ast.parse(source)
    assert used_names(tree) == {"llama_x", "llama_new", "llama_model_default_params"}
    assert set_fields(tree) == {("llama_model_params", "n_new")}
    lookups = ast.parse("f('ggml_new', 1); registered(r, 'ggml_other'); 'ggml_no: text'")
    assert looked_up(lookups) == ({"ggml_new"}, {"ggml_other"})


def test_what_a_binding_lacks_is_named() -> None:
    checked = symbols()
    binding = SimpleNamespace(**dict.fromkeys((*checked.SYMBOLS, *checked.CONSTRUCTORS), 1))
    for structure, fields in checked.FIELDS.items():
        setattr(binding, structure, SimpleNamespace(**dict.fromkeys(fields, 1)))
    assert list(checked.missing(binding)) == []
    del binding.llama_n_ctx_seq
    del binding.llama_sampler_init_xtc
    del binding.llama_context_params.swa_full
    assert list(checked.missing(binding)) == [
        "llama_n_ctx_seq",
        "llama_sampler_init_xtc",
        "llama_context_params.swa_full",
    ]


def test_what_heads_need_is_asked_for_apart() -> None:
    """uad.llama.nextn is the only module that uses experimental names, and the list has them all."""
    tree = ast.parse(NEXTN.read_text(encoding="utf-8"))
    used: dict[str, set[str]] = {"binding": set(), "extension": set(), "params": set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in used:
            used[node.value.id].add(node.attr)
    checked = symbols()
    assert used["binding"] == {*checked.HEAD_NAMES, *checked.LAYER_NAMES}
    assert used["extension"] == set(checked.HEAD_EXTENSION)
    assert used["params"] == {field for fields in checked.HEAD_FIELDS.values() for field in fields}
    others = [path for path in files() if path not in (NEXTN, SYMBOLS)]
    assert not [path for path in others if "llama_cpp_ext" in path.read_text(encoding="utf-8")]


def test_each_name_that_heads_need_is_missed_by_name() -> None:
    checked = symbols()

    def binding() -> SimpleNamespace:
        one = SimpleNamespace(**dict.fromkeys(checked.HEAD_NAMES, 1))
        for structure, fields in checked.HEAD_FIELDS.items():
            setattr(one, structure, SimpleNamespace(**dict.fromkeys(fields, 1)))
        return one

    extension = SimpleNamespace(**dict.fromkeys(checked.HEAD_EXTENSION, 1))
    assert list(checked.missing_for_heads(binding(), extension)) == []
    assert list(checked.missing_for_heads(binding(), None)) == list(checked.HEAD_EXTENSION)
    for name in checked.HEAD_NAMES:
        old = binding()
        delattr(old, name)
        assert list(checked.missing_for_heads(old, extension)) == [name]
    for structure, fields in checked.HEAD_FIELDS.items():
        for field in fields:
            old = binding()
            delattr(getattr(old, structure), field)
            assert list(checked.missing_for_heads(old, extension)) == [f"{structure}.{field}"]


def test_the_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"llama-cpp-python{symbols().VERSIONS}" in project["dependencies"]


def run(binding: str) -> subprocess.CompletedProcess[str]:
    """`uad serve` where `llama_cpp.llama_cpp` is what this source makes of `lib`."""
    program = f"""
import sys, types
package, lib = types.ModuleType("llama_cpp"), types.ModuleType("llama_cpp.llama_cpp")
package.__path__, package.__version__, package.llama_cpp = [], "0.2.9", lib
{binding}
from uad.tools.cli import main
sys.exit(main(["serve", "--target", "samples/target-chatml.gguf", "--port", "0"]))
"""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT
    )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Its lines of errors, without that of a slow start: that requests get 503 meanwhile."""
    return [line for line in done.stderr.splitlines() if " INFO " not in line]


def test_without_the_binding_one_line_says_how_to_get_it() -> None:
    done = run("sys.modules['llama_cpp'] = None")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("uad: error: llama-cpp-python cannot be loaded")
    assert "pip install 'llama-cpp-python>=" in done.stderr
    assert len(complaints(done)) == 1


def test_an_older_binding_is_named_with_what_it_lacks_and_what_is_needed() -> None:
    done = run("sys.modules.update({'llama_cpp': package, 'llama_cpp.llama_cpp': lib})")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "uad: error: llama-cpp-python 0.2.9 lacks ggml_abort_callback, llama_"
    )
    assert "llama_n_ctx_seq" in done.stderr
    assert f"uad needs {symbols().VERSIONS}" in done.stderr
    assert len(complaints(done)) == 1


def test_what_images_need_is_asked_for_apart() -> None:
    """uad.llama.projector is the only module that uses the binding's names for images, and the list has them all."""
    projector, checked = ROOMS[-1] / "projector.py", symbols()
    tree = ast.parse(projector.read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used if name.lower().startswith("mtmd_")} == set(checked.IMAGE_NAMES)
    assert set(checked.IMAGE_FIELDS["mtmd_context_params"]) <= used
    others = [path for path in files() if path not in (projector, SYMBOLS)]
    assert not [path for path in others if "mtmd" in path.read_text(encoding="utf-8")]
    module = SimpleNamespace(**dict.fromkeys(checked.IMAGE_NAMES, 1))
    for structure, fields in checked.IMAGE_FIELDS.items():
        setattr(module, structure, SimpleNamespace(**dict.fromkeys(fields, 1)))
    assert list(checked.missing_for_images(module)) == []
    del module.mtmd_tokenize
    assert list(checked.missing_for_images(module)) == ["mtmd_tokenize"]


def test_each_name_that_trained_heads_need_besides_is_missed_by_name() -> None:
    checked = symbols()
    names = [*checked.LAYER_NAMES, *checked.LAYERS]
    for gone in [None, *names]:
        there = dict.fromkeys((name for name in names if name != gone), 1)
        binding = SimpleNamespace(**there, _lib=SimpleNamespace(**there))
        assert list(checked.missing_for_layers(binding)) == ([gone] if gone else [])
