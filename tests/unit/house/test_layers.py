"""Who may import whom: the table of docs/rooms.md as data, checked on the source of every module; none imports itself
over others, so each can be imported first.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import pytest
from kit.source_imports import MODULES, ROOT, imports

BASE = ("uad.errors", "uad.types", "uad.stats", "uad.events", "uad.common", "uad.checkpoint")


@dataclass(frozen=True)
class Room:
    """`allowed` are prefixes of module names beside the standard library and the room itself; `lazy` ones only inside
    functions.
    """

    allowed: tuple[str, ...] = ()
    lazy: tuple[str, ...] = ()


ROOMS = {
    "uad": Room(),
    "uad.__main__": Room(("uad.cli",)),
    "uad.checkpoint": Room(),
    "uad.errors": Room(),
    "uad.console": Room(("uad.common", "rich")),
    "uad.common": Room(("uad.errors", "uad.checkpoint", "rapidfuzz", "yaml", "numpy")),
    "uad.gguf": Room(("uad.common", "uad.errors")),
    "uad.types": Room(("uad.common",)),
    "uad.stats": Room(("uad.common", "uad.types")),
    "uad.events": Room(("uad.common", "uad.types", "uad.stats")),
    "uad.config": Room((*BASE, "yaml")),
    "uad.backend": Room((*BASE, "uad.config", "llama_cpp", "numpy")),
    "uad.llama": Room((*BASE, "uad.backend", "uad.config", "uad.gguf", "uad.vocab.table", "llama_cpp", "numpy")),
    "uad.vocab": Room((*BASE, "numpy", "tokenizers")),
    "uad.templates": Room((*BASE, "jinja2")),
    "uad.mapping": Room((*BASE, "uad.templates", "uad.vocab", "rapidfuzz")),
    "uad.calls": Room((*BASE, "uad.templates", "uad.mapping", "uad.grammar", "uad.vocab")),
    "uad.sampling": Room((*BASE, "uad.grammar.protocol", "numpy")),
    "uad.grammar": Room((*BASE, "uad.vocab", "llguidance", "numpy")),
    "uad.drafters": Room((*BASE, "uad.vocab", "uad.mapping", "uad.sampling", "numpy")),
    "uad.lookup": Room((*BASE, "uad.config", "uad.drafters.protocol", "uad.grammar.protocol", "uad.vocab", "numpy")),
    "uad.policy": Room(BASE),
    "uad.decode": Room(
        (
            *BASE,
            "uad.vocab",
            "uad.sampling",
            "uad.drafters.protocol",
            "uad.grammar.protocol",
            "uad.policy.protocol",
            "numpy",
        )
    ),
    "uad.trim": Room((*BASE, "uad.gguf")),
    "uad.hub": Room((*BASE, "uad.config", "uad.console"), lazy=("huggingface_hub",)),
    "uad.costs": Room((*BASE, "uad.backend", "uad.config", "uad.llama", "uad.policy.cost", "numpy", "platformdirs")),
    "uad.runtime": Room(
        (
            *BASE,
            *("uad.backend", "uad.config", "uad.llama", "uad.vocab", "uad.templates", "uad.mapping", "uad.calls"),
            *("uad.sampling", "uad.grammar", "uad.drafters", "uad.lookup", "uad.policy", "uad.decode", "uad.costs"),
        )
    ),
    "uad.requests": Room((*BASE, "uad.config", "uad.calls", "uad.vocab.table", "pydantic")),
    "uad.apis": Room((*BASE, "uad.calls", "uad.requests", "pydantic")),
    "uad.server": Room(
        (
            *(*BASE, "uad.config", "uad.requests", "uad.apis"),
            *("aiohttp", "numpy", "prometheus_client", "pydantic_core"),
        )
    ),
    "uad.bench": Room((*BASE, "uad.config", "uad.console", "uad.gguf", "uad.hub", "rich", "aiohttp")),
    "uad.cli": Room(
        (*BASE, "uad.config", "uad.console", "uad.hub", "uad.__version__", "rich"),
        lazy=(
            *(
                "uad.backend",
                "uad.gguf",
                "uad.llama",
                "uad.vocab",
                "uad.mapping",
                "uad.calls",
                "uad.policy",
                "uad.trim",
            ),
            *("uad.costs", "uad.runtime", "uad.requests", "uad.server", "uad.bench"),
        ),
    ),
}
EXTRA = {
    "uad.llama.vocab": ("uad.vocab.quick", "uad.vocab.bounded", "uad.vocab.letters", "uad.vocab.markers"),
    "uad.llama.samplers": ("uad.sampling.stages",),
    "uad.cli.cost_plot": ("matplotlib",),
}
"""Modules that may import more than their room."""


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module imports but may not, one sentence each."""
    name = room_of(module)
    if name not in ROOMS:
        return [f"{module}: the room {name} is not in the table"]
    room = ROOMS[name]
    extra = tuple(more for start, names in EXTRA.items() if module.startswith(start) for more in names)
    found = []
    for item in imports(ast.parse(source), module, is_package):
        own = within(item.name, (name,)) if name != "uad" else item.name == "uad"
        standard = item.name.split(".")[0] in sys.stdlib_module_names
        if (
            own
            or standard
            or within(item.name, (*room.allowed, *extra))
            or (item.lazy and within(item.name, room.lazy))
        ):
            continue
        where = "; only inside functions" if within(item.name, room.lazy) else ""
        found.append(f"{module}:{item.line} imports {item.name}{where}")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_table(module):
    path = MODULES[module]
    assert violations(module, path.read_text(encoding="utf-8"), path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("module", "source", "named"),
    [
        ("uad.decode.engine", "from uad.runtime import Runtime", "uad.runtime"),
        ("uad.decode.engine", "import llama_cpp", "llama_cpp"),
        ("uad.decode.engine", "def f():\n    from llama_cpp import llama_cpp", "llama_cpp"),
        ("uad.decode.engine", "from ..server import app", "uad.server"),
        ("uad.decode.engine", "from uad import drafters", "uad.drafters"),
        ("uad.decode.engine", "from uad.drafters import model", "uad.drafters.model"),
        ("uad.drafters.model", "from uad.llama import model", "uad.llama.model"),
        ("uad.lookup.suffix", "from uad.drafters import mirror", "uad.drafters.mirror"),
        ("uad.bench.report", "import matplotlib.pyplot", "matplotlib.pyplot"),
        ("uad.bench.report", "def f():\n    from uad.policy.cost import CostCurve", "uad.policy.cost"),
        ("uad.runtime.parts", "from experiment import Experiment", "experiment"),
        ("uad.server.app", "import uad.llama.model", "uad.llama.model"),
        ("uad.cli.serve", "from uad.runtime import Runtime", "only inside functions"),
        ("uad.cli.serve", "if True:\n    import uad.server.app", "only inside functions"),
        ("uad.policy.value", "import numpy", "numpy"),
        ("uad.nowhere", "", "not in the table"),
    ],
)
def test_the_checker_finds_a_violation(module, source, named):
    (found,) = violations(module, source)
    assert named in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("uad.cli.cost_plot", "import matplotlib.pyplot as plt"),
        (
            "uad.decode.engine",
            "from uad.drafters.protocol import Drafter\nimport json, collections.abc\nfrom . import verify",
        ),
        ("uad.cli.serve", "from uad import __version__\ndef main():\n    from uad.server.app import serve"),
    ],
)
def test_the_checker_leaves_the_rest_alone(module, source):
    assert violations(module, source) == []


def test_no_modules_import_each_other_in_a_circle():
    """Lazy imports and those for type checkers count, too. Without a circle each module can be imported first."""
    graph = {
        module: neighbours(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
        for module, path in MODULES.items()
    }
    assert len(graph["uad.runtime.runtime"]) > 3
    TopologicalSorter(graph).prepare()  # CycleError names the circle


@pytest.mark.parametrize(
    "sources",
    [
        {"uad.errors": "import uad.stats", "uad.stats": "def f():\n    import uad.errors"},
        {"uad.errors": "import uad.policy.cost", "uad.policy": "import uad.errors"},  # a package runs before its parts
    ],
    ids=["lazy", "over a package"],
)
def test_a_circle_is_found(sources):
    graph = {module: neighbours(module, source, module == "uad.policy") for module, source in sources.items()}
    with pytest.raises(CycleError, match=r"uad\.errors"):
        TopologicalSorter(graph).prepare()


def test_packages_around_a_module_may_import_it():
    assert neighbours("uad.policy.cost", "import uad.policy.machine", False) == {"uad.policy.machine"}


def neighbours(module: str, source: str, is_package: bool) -> set[str]:
    """The modules of uad that importing a module runs: those it names, and the packages around these, which run first.

    Packages around the module itself run before it, whatever it imports; what they re-export is theirs.
    """
    found: set[str] = set()
    for item in imports(ast.parse(source), module, is_package):
        if item.name in MODULES and item.name != module:
            found.add(item.name)
            if not item.lazy:
                found |= packages_around(item.name) - packages_around(module) - {module}
    return found


def packages_around(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


@pytest.mark.llama
def test_every_module_imports_without_warnings():
    names = [name for name in MODULES if not name.endswith("__main__")]
    program = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["uad", "uad.config", "uad.cli", "uad.types"])
def test_light_modules_load_nothing_heavy(module):
    heavy = ("llama_cpp", "matplotlib", "aiohttp", "pydantic", "numpy", "gguf", "tokenizers", "huggingface_hub")
    program = f"import sys, {module}\nprint(*(name for name in {heavy!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.split() == []


def test_importing_the_bench_loads_no_llama():
    program = "import sys, uad.bench.run\nprint('matplotlib' in sys.modules, 'llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]
