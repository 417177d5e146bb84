"""The Makefile, the workflows and the metadata: what they promise, without running them."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def recipe(*words: str) -> str:
    """What `make` would run."""
    if shutil.which("make") is None:
        pytest.skip("no make")
    return subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_bundled_pair_is_served_so_that_drafting_shows_and_one_line_says_why() -> None:
    lines = recipe("serve")
    assert "--draft samples/draft-zephyr.gguf --host 127.0.0.1 --port 8080 --spec-policy fixed" in lines
    assert lines.count("so fast that the automatic policy leaves drafts alone") == 1


@pytest.mark.parametrize("given", ["TARGET=mine.gguf", "DRAFT=mine.gguf"])
def test_models_of_ones_own_get_the_automatic_policy_and_no_line(given: str) -> None:
    lines = recipe("serve", given)
    assert "mine.gguf" in lines
    assert "--spec-policy" not in lines
    assert "automatic policy" not in lines


def test_an_edit_of_the_kernels_compiles_nothing_else(tmp_path: Path) -> None:
    """Beside an environment that was made after all other files."""
    (tmp_path / ".installed").touch()
    assert "setup.sh" not in recipe("serve", f"VENV={tmp_path}")
    edited = recipe("serve", f"VENV={tmp_path}", "-W", "kernels/src/library.h")
    assert f"scripts/setup.sh {tmp_path} . kernels\n" in edited
    other = recipe("serve", f"VENV={tmp_path}", "-W", "pyproject.toml", "-W", "kernels/src/library.h")
    assert f"scripts/setup.sh {tmp_path} . \n" in other


def test_flags_of_the_user_come_last_and_win() -> None:
    assert re.search(
        r"--spec-policy fixed --spec-policy auto$", recipe("serve", "ARGS=--spec-policy auto"), re.MULTILINE
    )


def test_the_demo_serves_a_real_pair_from_the_folder_of_models() -> None:
    lines = recipe("demo")
    assert "scripts/fetch_models.py qwen2.5-coder-1.5b-q8_0 smollm2-135m" in lines
    assert '--draft "$folder/smollm2-135m.gguf"' in lines


def test_ci_runs_what_gates_a_change() -> None:
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "make lint" in run
    assert "make test\n" in run
    assert "make test-kernels\n" in run, "what make test leaves out"
    assert re.search(r'git clone --quiet \. "\$fresh/uad"\n.*make -C "\$fresh/uad" unit TESTS="tests/unit/cli ', run)
    assert all(tool in recipe("lint") for tool in ("ruff format --check", "ruff check", "mypy"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_and_forms_are_yaml_and_name_targets_that_exist(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)
    for target in re.findall(r"\bmake ([a-z]+)", path.read_text(encoding="utf-8").replace("# ", "")):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_the_workflow_runs_every_python_that_the_metadata_names() -> None:
    versions = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]["unit"][
        "strategy"
    ]["matrix"]
    named = [one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert versions["python"] == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"


def test_types_are_part_of_the_package() -> None:
    assert (ROOT / "uad" / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_the_wheel_lacks_the_laboratory_and_developers_have_all_that_it_needs() -> None:
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["uad"]
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras["lab"]) <= set(extras["dev"])


def test_every_target_is_phony_and_told_at_the_top() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert set(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()) == targets
    assert all(f"make {target} " in MAKEFILE.partition("\n\n")[0] for target in targets)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([\w./-]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        assert (ROOT / link).exists(), link


def test_a_name_of_a_type_means_one_thing() -> None:
    """Classes and aliases of types of any two modules have different names, a leading underscore left out."""
    places: dict[str, set[str]] = {}
    for path in sorted((ROOT / "uad").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                aimed = node.targets if isinstance(node, ast.Assign) else [node.target]
                names += [target.id for target in aimed if isinstance(target, ast.Name)]
        for name in names:
            if re.match(r"_?[A-Z]\w*[a-z]", name):
                places.setdefault(name.lstrip("_"), set()).add(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def public_classes_and_functions() -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Those at module level of all files of uad, each with its file."""
    for path in sorted((ROOT / "uad").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, *FUNCTIONS)) and not node.name.startswith("_"):
                yield path.relative_to(ROOT).as_posix(), node


def public_methods(node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Methods and properties of a class; of a function none."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    return [one for one in body if isinstance(one, FUNCTIONS) and not one.name.startswith("_")]


def test_no_class_has_more_than_fifteen_methods() -> None:
    """Where it would, it does two things: each gets a class, or functions."""
    large = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "uad").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) for member in node.body) > 15
    }
    assert large == set()


def test_every_public_name_has_a_docstring() -> None:
    """A method needs none where a protocol documents a method of that name."""
    found = list(public_classes_and_functions())
    classes = [node for _, node in found if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if "Protocol" in map(ast.unparse, node.bases)]
    told = {one.name for node in protocols for one in public_methods(node) if ast.get_docstring(one)}
    missing = [f"{where}: {node.name}" for where, node in found if not ast.get_docstring(node)]
    for where, node in found:
        methods = [one for one in public_methods(node) if one.name not in told and not ast.get_docstring(one)]
        missing += [f"{where}: {node.name}.{one.name}" for one in methods]
    assert told
    assert missing == []


def test_a_file_of_tests_has_a_name_of_its_own() -> None:
    """pytest imports them by their names alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
