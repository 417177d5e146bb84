"""What modules import, read from their sources: for the table of rooms, and to know which tests need llama.cpp."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TESTS = Path(__file__).parents[1]

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "uad").rglob("*.py"))
}


KEPT = ROOT / ".pytest_cache" / "imports.json"
"""What files import, by path, with the date and size that they had: all sources take three seconds to parse."""

KIT = {f"kit.{path.stem}" for path in (TESTS / "kit").glob("*.py")}


@dataclass(frozen=True)
class Import:
    """A module that is imported: at run time of a function (or for type checkers only) if `lazy`."""

    name: str
    line: int
    lazy: bool


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of a module. `from a import b` counts as a.b when that is a module, or uad's version."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node, lazy in walk(tree, lazy=False):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                is_module = inner in MODULES or inner in KIT or inner == "uad.__version__"
                yield Import(inner if is_module else base, node.lineno, lazy)


def walk(node: ast.AST, lazy: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Statements below, but for expressions and what they hold, and whether they run later than the import of the
    module (or never).
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        later = lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) or is_type_checking(child)
        yield child, later
        yield from walk(child, later)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def needs_llama(path: Path) -> bool:
    """Whether importing this file imports llama_cpp: itself, or through modules of uad, of the tests, of lab/ and of
    scripts/.
    """
    importer: dict[Path, Path | None] = {path: None}
    ahead = [path]
    while ahead:
        at = ahead.pop()
        if at in _needing or any(name.partition(".")[0] == "llama_cpp" for name in _at_once(at)):
            _needing.update(_way_to(at, importer))
            return True
        for new in {file for name in _at_once(at) for file in _files(name, at.parent)} - importer.keys() - _needless:
            importer[new] = at
            ahead.append(new)
    _needless.update(importer)
    return False


_needing: set[Path] = set()
_needless: set[Path] = set()
"""Files that are known to import llama_cpp, and those known not to."""


def _way_to(file: Path, importer: dict[Path, Path | None]) -> Iterator[Path]:
    """The file, what imports it, what imports that, and so on."""
    at: Path | None = file
    while at is not None:
        yield at
        at = importer[at]


@cache
def _at_once(path: Path) -> tuple[str, ...]:
    """Modules imported where this one is, not later in functions."""
    stat, kept = path.stat(), _kept().get(str(path))
    is_same = [stat.st_mtime_ns, stat.st_size]
    if kept is not None and kept[:2] == is_same:
        return tuple(kept[2])
    module = next((name for name, known in MODULES.items() if known == path), path.stem)
    found = imports(ast.parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py")
    names = tuple(item.name for item in found if not item.lazy)
    _kept()[str(path)] = [*is_same, names]
    _new.append(path)
    return names


_new: list[Path] = []


@cache
def _kept() -> dict[str, list[Any]]:
    try:
        kept = json.loads(KEPT.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the first run, or another one's file that was cut
        return {}
    return kept if isinstance(kept, dict) else {}


def keep() -> None:
    """Write down what was parsed, for the next process."""
    if not _new:
        return
    KEPT.parent.mkdir(exist_ok=True)
    own = KEPT.with_suffix(f".{os.getpid()}")
    own.write_text(json.dumps(_kept()), encoding="utf-8")
    own.replace(KEPT)
    _new.clear()


@cache
def _files(name: str, beside: Path) -> tuple[Path, ...]:
    """Files of ours that importing a module runs: its own, and the packages above it. Files of tests import those
    beside them.
    """
    parts = name.split(".")
    packages = (MODULES.get(".".join(parts[:n])) for n in range(1, len(parts) + 1))
    others = (folder.joinpath(*parts).with_suffix(".py") for folder in (TESTS, beside, ROOT / "lab", ROOT / "scripts"))
    return (*(path for path in packages if path is not None), *(path for path in others if path.exists()))
