"""Which package may import which: the table of docs/rooms.md as data, checked on the source of every module; none
imports itself over others, so each can be imported first.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import pytest
from kit.source_imports import MODULES, ROOT, imports


@dataclass(frozen=True)
class Package:
    """`allowed` are prefixes of modules of uad beside the package itself; `lazy` ones only inside functions."""

    allowed: tuple[str, ...] = ()
    lazy: tuple[str, ...] = ()


PACKAGES = {
    "uad": Package(),
    "uad.__main__": Package(("uad.base.common.interrupts",), lazy=("uad.tools.cli",)),
    "uad.base": Package(),
    "uad.text": Package(("uad.base",)),
    "uad.engine": Package(("uad.base", "uad.text.vocab", "uad.text.grammar.protocol")),
    "uad.drafts": Package(("uad.base", "uad.text", "uad.engine.drafter", "uad.engine.sampling")),
    "uad.llama": Package(("uad.base", "uad.text.vocab", "uad.engine.sampling.stages")),
    "uad.runtime": Package(("uad.base", "uad.text", "uad.engine", "uad.drafts", "uad.llama")),
    "uad.vllm": Package(("uad.base", "uad.text", "uad.engine", "uad.drafts", "uad.runtime")),
    "uad.http": Package(("uad.base", "uad.text")),
    "uad.pairs": Package(("uad.base", "uad.text")),
    "uad.router": Package(("uad.base", "uad.http", "uad.pairs", "uad.__version__")),
    "uad.tools": Package(
        ("uad.base", "uad.__version__"),
        lazy=("uad.text", "uad.engine", "uad.llama", "uad.runtime", "uad.http", "uad.pairs", "uad.router"),
    ),
}
INSIDE: dict[str, tuple[str, ...]] = {
    "uad.text.vocab": (),
    "uad.text.templates": (),
    "uad.text.mapping": ("uad.text.templates", "uad.text.vocab"),
    "uad.text.grammar": ("uad.text.vocab",),
    "uad.engine.policy": (),
    "uad.engine.sampling": (),
    "uad.engine.decode": ("uad.engine.drafter", "uad.engine.policy.protocol", "uad.engine.sampling"),
    "uad.drafts.lookup": (),
    "uad.drafts.model": (),
    "uad.llama.backend": (),
    "uad.runtime.costs": (),
    "uad.http.requests": (),
    "uad.http.apis": ("uad.http.requests",),
    "uad.http.edge": ("uad.http.apis",),
    "uad.tools.bench": ("uad.tools.hub",),
    "uad.tools.hub": (),
    "uad.tools.trim": (),
}
"""What these rooms may import of their own package. Those that are missing may import all of it."""
LIBRARIES: dict[str, tuple[str, ...]] = {
    "PIL": ("uad.http.requests.decoding",),
    "aiohttp": ("uad.http.edge", "uad.http.server", "uad.router", "uad.tools.bench"),
    "huggingface_hub": ("uad.tools.hub",),
    "jinja2": ("uad.text.templates",),
    "llama_cpp": ("uad.llama",),
    "llguidance": ("uad.text.grammar",),
    "matplotlib": ("uad.tools.cli.cost_plot",),
    "multidict": ("uad.router",),
    "numpy": (
        *("uad.base.common", "uad.text.vocab", "uad.text.grammar", "uad.engine.sampling", "uad.drafts", "uad.llama"),
        *("uad.runtime", "uad.vllm", "uad.http.edge", "uad.http.server", "uad.http.requests.decoding"),
    ),
    "platformdirs": ("uad.base.common.cache",),
    "prometheus_client": ("uad.http.server",),
    "pydantic": ("uad.http",),
    "pydantic_core": ("uad.http.edge", "uad.http.server"),
    "rapidfuzz": ("uad.base.common", "uad.text.mapping"),
    "rich": ("uad.base.console", "uad.tools"),
    "tokenizers": ("uad.text.vocab",),
    "torch": ("uad.vllm.proposer",),
    "vllm": ("uad.vllm.proposer",),
    "yaml": ("uad.base",),
}
"""Who may import what others wrote."""


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module imports but may not, one sentence each."""
    name = package_of(module)
    if name not in PACKAGES:
        return [f"{module}: the package {name} is not in the table"]
    package = PACKAGES[name]
    room = next((one for one in INSIDE if within(module, (one,))), None)
    own = (name,) if room is None else (room, *INSIDE[room])
    found = []
    for item in imports(ast.parse(source), module, is_package):
        library = item.name.split(".")[0]
        if library in sys.stdlib_module_names:
            continue
        if library != "uad":
            fits = within(module, LIBRARIES.get(library, ()))
        elif name == "uad":
            fits = item.name == "uad"
        else:
            fits = within(item.name, (*own, *package.allowed)) or (item.lazy and within(item.name, package.lazy))
        if not fits:
            where = "; only inside functions" if within(item.name, package.lazy) else ""
            found.append(f"{module}:{item.line} imports {item.name}{where}")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_table(module):
    path = MODULES[module]
    assert violations(module, path.read_text(encoding="utf-8"), path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("module", "source", "named"),
    [
        ("uad.engine.decode.engine", "from uad.runtime.runtime import Runtime", "uad.runtime"),
        ("uad.engine.decode.engine", "import llama_cpp", "llama_cpp"),
        ("uad.engine.decode.engine", "def f():\n    from llama_cpp import llama_cpp", "llama_cpp"),
        ("uad.engine.decode.engine", "from ...http.server import app", "uad.http.server"),
        ("uad.engine.decode.engine", "from uad import drafts", "uad.drafts"),
        ("uad.engine.decode.engine", "from uad.engine.policy import auto", "uad.engine.policy.auto"),
        ("uad.engine.policy.choose", "import numpy", "numpy"),
        ("uad.drafts.model.model_drafter", "from uad.llama import model", "uad.llama.model"),
        ("uad.drafts.lookup.suffix", "from uad.drafts.model import mirror", "uad.drafts.model.mirror"),
        ("uad.tools.bench.ratios", "import matplotlib.pyplot", "matplotlib.pyplot"),
        ("uad.tools.bench.ratios", "from uad.engine.policy.cost import CostCurve", "uad.engine.policy.cost"),
        ("uad.runtime.open", "from experiment import Experiment", "experiment"),
        ("uad.http.server.app", "import uad.llama.model", "uad.llama.model"),
        ("uad.http.requests.job", "from uad.http.server import app", "uad.http.server.app"),
        ("uad.tools.cli.serve", "from uad.runtime.runtime import Runtime", "only inside functions"),
        ("uad.tools.cli.serve", "if True:\n    import uad.http.server.app", "only inside functions"),
        ("uad.nowhere", "", "not in the table"),
    ],
)
def test_the_checker_finds_a_violation(module, source, named):
    (found,) = violations(module, source)
    assert named in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("uad.tools.cli.cost_plot", "import matplotlib.pyplot as plt"),
        (
            "uad.engine.decode.engine",
            "from uad.engine.drafter import Drafter\nimport json, collections.abc\nfrom . import verify",
        ),
        (
            "uad.tools.cli.serve",
            "from uad import __version__\ndef main():\n    from uad.http.server.app import serve",
        ),
    ],
)
def test_the_checker_leaves_the_rest_alone(module, source):
    assert violations(module, source) == []


def test_packages_stand_on_floors():
    """Each imports only those below it, inside functions too: then a reader can begin at the bottom."""
    graph = {
        package: {package_of(name) for name in (*rules.allowed, *rules.lazy) if name.count(".")} - {package}
        for package, rules in PACKAGES.items()
    }
    assert sum(map(len, graph.values())) <= 45
    TopologicalSorter(graph).prepare()


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
        {"uad.base.errors": "import uad.base.stats", "uad.base.stats": "def f():\n    import uad.base.errors"},
        # a package runs before its parts
        {"uad.base.errors": "import uad.engine.policy.cost", "uad.engine.policy": "import uad.base.errors"},
    ],
    ids=["lazy", "over a package"],
)
def test_a_circle_is_found(sources):
    graph = {module: neighbours(module, source, module == "uad.engine.policy") for module, source in sources.items()}
    with pytest.raises(CycleError, match=r"uad\.base\.errors"):
        TopologicalSorter(graph).prepare()


def test_packages_around_a_module_may_import_it():
    assert neighbours("uad.engine.policy.cost", "import uad.engine.policy.machine", False) == {
        "uad.engine.policy.machine"
    }


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


@pytest.mark.parametrize("module", ["uad", "uad.base.config", "uad.tools.cli", "uad.base.types"])
def test_light_modules_load_nothing_heavy(module):
    heavy = ("llama_cpp", "matplotlib", "aiohttp", "pydantic", "numpy", "gguf", "tokenizers", "huggingface_hub")
    program = f"import sys, {module}\nprint(*(name for name in {heavy!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.split() == []


def test_importing_the_bench_loads_no_llama():
    program = "import sys, uad.tools.bench.requests\nprint('matplotlib' in sys.modules, 'llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]
